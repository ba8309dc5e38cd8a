"""Streams have identity: equal seeds give equal symbols, so correlated draws never look independent."""

# ruff: noqa: NPY002 (the legacy generator is what is tested)

from __future__ import annotations

import random
from random import random as imported_random

import numpy as np
import pytest
from numpy.random import default_rng as imported_default_rng

from specverify.exact.errors import NotEnumerable
from specverify.exact.law import enumerate_law

SAME = {(0, 0): 0.5, (1, 1): 0.5}
INDEPENDENT = {(0, 0): 0.25, (0, 1): 0.25, (1, 0): 0.25, (1, 1): 0.25}


def bit(value):
    return int(value < 0.5)


def law_of(program):
    return enumerate_law(program, cross_check_calls=400)


def two_generators_of_one_seed():
    return bit(np.random.default_rng(5).random()), bit(np.random.default_rng(5).random())


def a_generator_made_twice_on_one_seed():
    generators = [np.random.Generator(np.random.PCG64(5)), np.random.default_rng(5)]
    return tuple(bit(generator.random()) for generator in generators)


def reseeding_the_global_generator():
    np.random.seed(3)
    first = bit(np.random.rand())
    np.random.seed(3)
    return first, bit(np.random.random_sample())


def a_random_state_like_the_global_generator():
    np.random.seed(3)
    return bit(np.random.rand()), bit(np.random.RandomState(3).uniform())


def reseeding_python():
    random.seed("x")
    first = bit(random.random())
    random.seed("x")
    return first, bit(random.random())


def two_python_generators_of_one_seed():
    return bit(random.Random(9).random()), bit(random.Random(9).uniform(0.0, 1.0))


def choice_and_random_of_one_seed():
    """numpy's choice reads one double and searches the cumulative law with it."""
    return 1 - int(np.random.default_rng(5).choice(2, p=[0.5, 0.5])), bit(np.random.default_rng(5).random())


def imported_by_name():
    return bit(imported_default_rng(5).random()), bit(np.random.default_rng(5).random())


@pytest.mark.parametrize(
    "draws",
    [
        two_generators_of_one_seed, a_generator_made_twice_on_one_seed, reseeding_the_global_generator,
        a_random_state_like_the_global_generator, reseeding_python, two_python_generators_of_one_seed,
        choice_and_random_of_one_seed, imported_by_name,
    ],
)  # fmt: skip
def test_equal_seeds_give_equal_draws(draws):
    """Two streams of one seed are one stream, and the law says that it is over the seeds."""
    law = law_of(lambda source: draws())

    assert law.probabilities == SAME
    assert any("law is over its seeds" in note for note in law.notes)


@pytest.mark.parametrize(
    "draws",
    [
        lambda source: (bit(np.random.default_rng(1).random()), bit(np.random.default_rng(2).random())),
        lambda source: (bit(np.random.default_rng().random()), bit(np.random.default_rng().random())),
        lambda source: (bit(source.numpy_generator().random()), bit(source.numpy_generator().random())),
        lambda source: (bit(source.python_random().random()), bit(source.numpy_generator().random())),
        lambda source: (bit(np.random.rand()), bit(random.random())),
        lambda source: (bit(imported_random()), bit(np.random.default_rng(0).random())),
        lambda source: tuple(bit(value) for value in source.uniforms(2)),
    ],
    ids=["two seeds", "no seeds", "two sources", "two libraries", "globals", "imported", "uniforms"],
)
def test_other_streams_are_independent(draws):
    """Different seeds, and generators without one, share nothing."""
    assert law_of(draws).probabilities == INDEPENDENT


def test_a_stream_goes_on_where_it_was():
    """A second draw of one generator is new; a copy of the generator repeats it."""
    import copy

    def program(source):
        generator = source.numpy_generator()
        twin = copy.deepcopy(generator)
        first, second = bit(generator.random()), bit(generator.random())
        return first, second, bit(twin.random()), bit(twin.random())

    law = law_of(program)

    assert len(law.probabilities) == 4
    assert all(key[:2] == key[2:] for key in law.probabilities)


def test_generators_on_one_bit_generator_share_its_place():
    """Two generators on the same bit generator object read on from each other."""

    def program(source):
        bits = np.random.PCG64(4)
        return bit(np.random.Generator(bits).random()), bit(np.random.Generator(bits).random())

    assert law_of(program).probabilities == INDEPENDENT


def test_one_seed_read_in_two_ways_is_refused():
    """How a float64 draw depends on an exponential of the same seed is unknown."""

    def program(source):
        return bit(np.random.default_rng(5).random()), int(np.random.default_rng(5).exponential() < 1.0)

    with pytest.raises(NotEnumerable, match="one seed is read in two ways"):
        law_of(program)


def test_vector_and_scalar_draws_read_one_stream():
    """random(3) and three times random() are the same numbers."""

    def program(source):
        vector = np.random.default_rng(5).random(3)
        other = np.random.default_rng(5)
        other.random()
        return bit(vector[1]), bit(other.random())

    assert law_of(program).probabilities == SAME


def test_the_libraries_are_left_as_they_were():
    """After an enumeration numpy and random are themselves, also where they were imported by name."""
    before = np.random.default_rng, np.random.rand, random.random, np.array, np.random.Generator

    law_of(lambda source: (bit(source.numpy_generator().random()), 0))

    assert before == (np.random.default_rng, np.random.rand, random.random, np.array, np.random.Generator)
    assert imported_default_rng is np.random.default_rng
    assert imported_random is random.random
    assert isinstance(np.random.default_rng(0).random(), float)


@pytest.mark.parametrize("name", ["get_state", "set_state", "get_bit_generator", "set_bit_generator"])
def test_reaching_for_the_global_state_is_refused(name):
    """The state of the real global generator says nothing about symbols."""

    def program(source):
        return bit(np.random.rand()), bool(getattr(np.random, name)())

    with pytest.raises(NotEnumerable, match=r"reaches for the global generator|no symbolic form"):
        law_of(program)
