"""Soundness: everything that could make an enumerated law wrong is refused, with the operation and the line."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.exact.choices import EnumerationBudget
from specverify.exact.cross_check import cross_check, log_evidence
from specverify.exact.errors import NotEnumerable, ReusedRandomness, UnsoundEnumeration
from specverify.exact.law import enumerate_law

HIDDEN = np.random.default_rng(123)
HIDDEN_PYTHON = random.Random(123)


def test_a_program_without_random_calls_is_not_called_exact():
    """No random call seen: either there is none, or it was hidden."""
    with pytest.raises(NotEnumerable, match="no random call was seen"):
        enumerate_law(lambda source: (1, 2))


def test_a_deterministic_program_is_exact_where_its_caller_allows_it():
    """Greedy functions have a law too, if their caller says that they are meant to be deterministic."""
    law = enumerate_law(lambda source: (1, 2), allow_deterministic=True)

    assert law.probabilities == {(1, 2): 1.0}


def entropy_token():
    import os

    return os.urandom(1)[0] % 2


def test_hidden_randomness_is_not_called_deterministic():
    """Ordinary calls that differ betray randomness that no front end saw."""
    with pytest.raises(NotEnumerable, match=r"not repeatable|randomness is hidden"):
        enumerate_law(lambda source: entropy_token(), allow_deterministic=True)


@pytest.mark.parametrize(
    "hidden",
    [lambda: int(HIDDEN.integers(0, 2**30)) % 2, lambda: HIDDEN_PYTHON.getrandbits(1)],
    ids=["numpy", "random"],
)
def test_a_generator_made_beforehand_is_found(hidden):
    """A module-level generator draws real numbers that the enumeration cannot see."""

    def program(source):
        return int(source.numpy_generator().random() < 0.5), hidden()

    with pytest.raises(NotEnumerable, match="made before it was called"):
        enumerate_law(program)


def test_a_generator_used_on_a_rare_path_only_is_found():
    """The first path need not be the one that draws from a hidden generator."""

    def program(source):
        if source.numpy_generator().random() < 0.9:
            return 0, 0
        return 1, int(HIDDEN.random() < 1.0)

    with pytest.raises(NotEnumerable, match="made before it was called"):
        enumerate_law(program)


def test_hidden_randomness_in_an_output_is_found():
    """One path that gives two outputs is not a law."""

    def program(source):
        return int(source.numpy_generator().random() < 0.5), int.from_bytes(__import__("os").urandom(4), "big")

    with pytest.raises(NotEnumerable, match="not repeatable"):
        enumerate_law(program)


def test_hidden_randomness_in_a_weight_is_found():
    """A threshold that moves between calls is reported, although every run makes one binary choice."""
    calls = []

    def program(source):
        calls.append(0)
        return int(source.numpy_generator().random() < 0.5 + 1e-4 * len(calls))

    with pytest.raises(NotEnumerable, match="weights of a choice moved"):
        enumerate_law(program)


def test_state_kept_between_calls_is_found():
    """A cache that changes which law is drawn from mixes two laws."""
    seen = set()

    def program(source):
        generator = source.numpy_generator()
        first = int(generator.random() < 0.5)
        if first in seen:
            return first, int(generator.random() < 0.9)
        seen.add(first)
        return first, int(generator.random() < 0.1)

    with pytest.raises(NotEnumerable, match="not repeatable"):
        enumerate_law(program)


def test_a_reset_hook_puts_state_back():
    """A subject with state is enumerable when its caller resets it before every call."""
    state = {"calls": 0}

    def program(source):
        state["calls"] += 1
        return int(source.numpy_generator().random() < 0.1 * state["calls"])

    law = enumerate_law(program, reset=lambda: state.update(calls=0))

    assert pytest.approx({1: 0.1, 0: 0.9}) == law.probabilities


def test_a_random_value_kept_from_an_earlier_call_is_refused():
    """A symbol is of no use after its run."""
    kept = []

    def program(source):
        kept.append(source.numpy_generator().random())
        return int(kept[0] < 0.5)

    with pytest.raises(NotEnumerable, match=r"earlier call|not repeatable"):
        enumerate_law(program)


def test_a_swallowed_refusal_still_counts():
    """A program that catches everything cannot turn a refusal into a law."""

    def program(source):
        try:
            return int(float(source.numpy_generator().random()) < 0.5)
        except Exception:
            return 0

    with pytest.raises(NotEnumerable, match="looks at the value"):
        enumerate_law(program)


def test_a_refusal_names_the_operation_and_the_line():
    """The reader is told what to look for and where."""

    def program(source):
        return int(source.numpy_generator().standard_normal() < 0.5)

    with pytest.raises(NotEnumerable) as caught:
        enumerate_law(program)

    assert caught.value.operation == "numpy.random.Generator.standard_normal"
    assert "test_law.py" in caught.value.source_line
    assert "standard_normal() < 0.5" in caught.value.source_line


def test_one_noise_field_for_two_races_is_reused_randomness():
    """Drafting and recovering with one noise row couples two draws that must be independent: a finding."""

    def program(source):
        noise = source.numpy_generator().exponential(size=3)
        first = int(np.argmax(np.array([0.2, 0.3, 0.5]) / noise))
        return first, int(np.argmax(np.array([0.5, 0.3, 0.2]) / noise))

    with pytest.raises(ReusedRandomness):
        enumerate_law(program)


def test_a_crash_of_the_program_is_its_own():
    """What ordinary calls raise too is passed on as it is."""

    def program(source):
        if source.numpy_generator().random() < 0.5:
            raise ValueError("broken")
        return 0

    with pytest.raises(ValueError, match="broken"):
        enumerate_law(program)


def test_a_crash_that_only_symbols_cause_is_not_the_programs():
    """An exception that ordinary calls do not raise means that the stand-ins were not good enough."""

    def program(source):
        value = source.numpy_generator().random()
        assert isinstance(value, float)
        return int(value < 0.5)

    with pytest.raises(NotEnumerable, match="raised AssertionError on a path of probability 1"):
        enumerate_law(program)


def test_a_compiler_that_meets_replaced_functions_is_no_crash_of_the_program():
    """numba knows math.exp by identity; before any random call, and again and again while things are replaced."""
    exp = math.exp

    def program(source):
        if math.exp is not exp:
            raise NotImplementedError("no definition for lowering this function")
        return int(source.numpy_generator().random() < 0.5)

    with pytest.raises(NotEnumerable, match="raised NotImplementedError on a path of probability 1"):
        enumerate_law(program)


@pytest.mark.parametrize("bias", [0.2, 1.0])
def test_ordinary_calls_are_held_against_the_law(bias):
    """Where the enumeration is fooled, ordinary calls contradict it: here the program tells the two apart."""

    def program(source):
        value = source.numpy_generator().random()
        return int(value < 0.5) if not isinstance(value, float) else int(value < bias)

    with pytest.raises(UnsoundEnumeration):
        enumerate_law(program)


def test_an_output_called_impossible_is_unsound():
    """A single ordinary output of enumerated probability zero is a contradiction."""
    with pytest.raises(UnsoundEnumeration, match="impossible"):
        cross_check({(0,): 1.0}, [(0,)] * 99 + [(1,)], seconds=0.0)


def test_evidence_against_a_right_law_stays_low():
    """The cross check is an e-value: its mean under the law is 1, so it exceeds 20 in at most 1 of 20 samples."""
    generator = np.random.default_rng(7)
    law = generator.dirichlet(np.ones(20))

    alarms = sum(log_evidence(generator.multinomial(500, law), law) > np.log(20) for _ in range(400))

    assert alarms <= 20


def test_the_cross_check_respects_its_time():
    """A slow program gets fewer ordinary calls."""
    import time

    def program(source):
        time.sleep(0.002)
        return int(source.numpy_generator().random() < 0.5)

    law = enumerate_law(program, cross_check_calls=100_000, cross_check_seconds=0.05)

    assert law.cross_check is not None
    assert 1 <= law.cross_check.num_calls < 1000


def test_the_budget_is_kept():
    """A law that is too large ends in NotEnumerable, not in hours."""

    def program(source):
        generator = source.numpy_generator()
        return [int(generator.random() < 0.5) for _ in range(40)]

    with pytest.raises(NotEnumerable, match="budget of 500 runs"):
        enumerate_law(program, budget=EnumerationBudget(max_runs=500))


def test_progress_is_the_explored_probability():
    """A long enumeration reports how much probability it has explored."""
    import time

    seen = []

    def program(source):
        time.sleep(0.01)
        generator = source.numpy_generator()
        return [bool(generator.random() < 0.5) for _ in range(5)]

    enumerate_law(program, cross_check_calls=0, progress=lambda share, runs: seen.append((share, runs)))

    assert seen
    assert seen == sorted(seen)
    assert all(0.0 < share <= 1.0 for share, _ in seen)


@pytest.mark.parametrize("output", [object(), {1, 2}, lambda: 0])
def test_unreadable_outputs_are_named(output):
    """A program must return ints, or collections of ints."""

    def program(source):
        source.numpy_generator().random()
        return output

    with pytest.raises(TypeError, match="the program returned a"):
        enumerate_law(program)


def test_a_random_number_in_the_output_is_refused():
    """A continuous output has no discrete law."""
    with pytest.raises(NotEnumerable, match="returns a random number"):
        enumerate_law(lambda source: (1, source.numpy_generator().random()))


def test_clipped_mass_is_reported():
    """Guards that were dropped are part of the law's error bound."""

    def program(source):
        uniforms = np.maximum(source.numpy_generator().random(3), 1e-20)
        return np.argmax(np.log([0.2, 0.3, 0.5]) - np.log(-np.log(uniforms)))

    law = enumerate_law(program)

    assert pytest.approx(3e-20) == law.clipped_mass
    assert pytest.approx({0: 0.2, 1: 0.3, 2: 0.5}) == law.probabilities


@pytest.mark.parametrize(
    "insist",
    [
        lambda value: value if isinstance(value, int) else -1,
        lambda value: value if type(value) is int else -1,
        lambda value: value.bit_length(),
    ],
)
def test_programs_that_insist_on_ints_are_enumerated_with_decided_ones(insist):
    """Where an open draw is not good enough, because it is no int, the law is enumerated again with real ints."""

    def program(source):
        token = int(source.numpy_generator().choice(2, p=[0.25, 0.75]))
        return insist(token)

    law = enumerate_law(program)

    assert pytest.approx({0: 0.25, 1: 0.75}) == law.probabilities


def guarded_race(source):
    uniforms = np.clip(source.numpy_generator().random(3), 1e-10, 1.0)
    return np.argmax(np.log([0.2, 0.3, 0.5]) - np.log(-np.log(uniforms)))


def test_a_clamp_before_a_race_is_no_reuse():
    """A guard that is too wide to be dropped is refused, and not called reused randomness."""
    with pytest.raises(NotEnumerable, match="clip_mass") as caught:
        enumerate_law(guarded_race)

    assert not isinstance(caught.value, ReusedRandomness)


def test_a_larger_clip_mass_drops_a_wider_guard():
    """Whoever accepts the error bound may drop wider guards."""
    law = enumerate_law(guarded_race, budget=EnumerationBudget(clip_mass=1e-9))

    assert pytest.approx(3e-10) == law.clipped_mass
    assert pytest.approx({0: 0.2, 1: 0.3, 2: 0.5}) == law.probabilities


def test_what_the_source_chooses_is_part_of_the_law():
    """A test's own draws fork the enumeration as the program's do, and ordinary calls draw them too."""

    def program(source):
        first = source.choose((0.25, 0.75))
        return first, int(source.numpy_generator().random() < 0.5), source.choose(np.array([0.0, 1.0 + 1e-8]))

    law = enumerate_law(program)

    assert pytest.approx({(0, 0, 1): 0.125, (0, 1, 1): 0.125, (1, 0, 1): 0.375, (1, 1, 1): 0.375}) == law.probabilities
    assert law.num_random_calls == 1


def test_what_the_source_chooses_is_no_random_call_of_the_program():
    """A program whose own randomness was not seen is not called exact because its test drew something for it."""
    with pytest.raises(NotEnumerable, match="no random call was seen"):
        enumerate_law(lambda source: source.choose((0.5, 0.5)))


def test_a_deterministic_program_may_be_given_what_the_source_chose():
    """Ordinary calls that must repeat are given the same choices."""
    law = enumerate_law(lambda source: source.choose((0.25, 0.75)), allow_deterministic=True)

    assert pytest.approx({0: 0.25, 1: 0.75}) == law.probabilities


@pytest.mark.parametrize("law", [(0.5, 0.4), (1.5, -0.5), (), (float("nan"), 1.0)])
def test_the_source_chooses_from_laws_only(law):
    """Weights that are no law are a mistake of whoever wrote the test."""
    with pytest.raises(UsageError, match="needs a law"):
        enumerate_law(lambda source: (source.choose(law), source.numpy_generator().random() < 0.5))
