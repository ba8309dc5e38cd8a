"""Generators of torch: the same state gives the same symbols, and what moves a generator unseen is found out."""

from __future__ import annotations

import threading

import pytest
import torch

from specverify.exact.errors import NotEnumerable, ReusedRandomness
from tests.exact.torch_programs import assert_law, probabilities, torch_law

WEIGHTS = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
LAW = {0: 0.2, 1: 0.3, 2: 0.5}


def uniform(generator, *size):
    return torch.rand(*size, dtype=torch.float64, generator=generator)


def test_two_generators_of_one_seed_give_the_same_symbols():
    """Draft and verification seeded alike are not independent."""

    def program(source):
        first, second = (torch.Generator().manual_seed(5) for _ in range(2))
        return [int(uniform(first, 1) < 0.3), int(uniform(second, 1) < 0.3)]

    assert_law({(1, 1): 0.3, (0, 0): 0.7}, program, calls=200)


def test_a_stream_seeded_again_gives_the_same_symbols():
    """torch.manual_seed in the program starts the global stream again, element by element."""

    def program(source):
        torch.manual_seed(7)
        first = torch.rand(2) < 0.3
        torch.manual_seed(7)
        torch.rand(1)
        return [first[1].long(), (torch.rand(1)[0] < 0.3).long()]

    assert_law({(1, 1): 0.3, (0, 0): 0.7}, program, calls=200)


def test_a_restored_state_gives_the_same_symbols():
    """set_state and fork_rng rewind a stream."""

    def program(source):
        generator = source.torch_generator()
        state = generator.get_state()
        first = torch.multinomial(WEIGHTS, 1, generator=generator)
        generator.set_state(state)
        second = torch.multinomial(WEIGHTS, 1, generator=generator)
        with torch.random.fork_rng():
            third = torch.rand(1) < 0.3
        return [*first.tolist(), *second.tolist(), int(third), int(torch.rand(1) < 0.3)]

    wanted = {(t, t, c, c): LAW[t] * (0.3 if c else 0.7) for t in LAW for c in (0, 1)}
    assert_law(wanted, program, calls=200)


def test_one_seed_read_in_two_ways_is_refused():
    """What a multinomial and a uniform of the same generator state have to do with each other is not known."""

    def program(source):
        first, second = (torch.Generator().manual_seed(5) for _ in range(2))
        return [int(torch.multinomial(WEIGHTS, 1, generator=first)), int(uniform(second, 1) < 0.3)]

    with pytest.raises(ReusedRandomness, match="share a seed"):
        probabilities(program)


def test_noise_used_for_two_races_is_reused_randomness():
    """One noise field for draft and recovery is a finding about the program."""

    def program(source):
        noise = torch.empty(3, dtype=torch.float64).exponential_(generator=source.torch_generator())
        return [(WEIGHTS / noise).argmax(), (WEIGHTS.flip(0) / noise).argmax()]

    with pytest.raises(ReusedRandomness):
        probabilities(program)


def test_draws_in_another_thread_are_hidden():
    """Modes do not reach other threads, but the generator moved."""

    def program(source):
        found = []
        thread = threading.Thread(target=lambda: found.append(torch.rand(1).item() < 0.3))
        thread.start()
        thread.join()
        return [int(found[0]), int(uniform(source.torch_generator(), 1) < 0.5)]

    with pytest.raises(NotEnumerable, match=r"hidden|not repeatable"):
        probabilities(program)


KEPT = torch.Generator().manual_seed(3)


def test_a_generator_kept_between_calls_starts_every_run_alike():
    """Its symbols are those of its place in its stream, and it is put back afterwards."""
    law = torch_law(lambda source: (uniform(KEPT, 2) < 0.3).long(), calls=200)

    assert law.probabilities[1, 1] == pytest.approx(0.09)
    assert law.cross_check.num_calls > 0
