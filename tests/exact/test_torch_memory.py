"""What random tensors leave in memory, and who may read it: placeholders never pass for values."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

from specverify.exact.errors import NotEnumerable
from specverify.exact.torch_shadow import poison
from tests.exact.torch_programs import assert_law, probabilities

WEIGHTS = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
LAW = {0: 0.2, 1: 0.3, 2: 0.5}


def uniform(generator, *size):
    return torch.rand(*size, dtype=torch.float64, generator=generator)


def test_numbers_written_over_symbols_are_numbers():
    """A tensor that held random values and was overwritten is ordinary again; a symbol written into it is not."""

    def program(source):
        values = uniform(source.torch_generator(), 3)
        values.fill_(0.25)
        values[1] = uniform(source.torch_generator(), 1)[0]
        return (values < 0.3).long()

    assert_law({(1, 1, 1): 0.3, (1, 0, 1): 0.7}, program, calls=200)


def test_freed_memory_taints_nobody():
    """A tensor that gets the address of a freed random one is not random."""

    def program(source):
        generator = source.torch_generator()
        for _ in range(30):
            values = uniform(generator, 4)
            del values
            assert bool((torch.full((4,), 0.25, dtype=torch.float64) == 0.25).all())
        return (uniform(generator, 1) < 0.3).long()

    assert_law({(1,): 0.3, (0,): 0.7}, program)


def test_views_and_expansions_read_the_same_symbols():
    """One uniform seen through views, transposes and expansions is one uniform."""

    def program(source):
        values = uniform(source.torch_generator(), 1, 2)
        wide = values.expand(3, 2).t()
        return (wide[0] < torch.tensor([0.2, 0.5, 0.7], dtype=torch.float64)).long()

    assert_law({(1, 1, 1): 0.2, (0, 1, 1): 0.3, (0, 0, 1): 0.2, (0, 0, 0): 0.3}, program, calls=200)


BUFFER = torch.zeros(2, dtype=torch.float64)


def test_random_numbers_of_an_earlier_call_are_refused():
    """A tensor kept between calls holds no usable values of the call before."""

    def program(source):
        before = int(BUFFER[0] < 0.5)
        BUFFER.uniform_(generator=source.torch_generator())
        return before

    with pytest.raises(NotEnumerable, match="keeps state"):
        probabilities(program)


def test_a_kept_buffer_that_is_overwritten_first_is_fine():
    """Reusing memory between calls is no state."""

    def program(source):
        BUFFER.uniform_(generator=source.torch_generator())
        return (BUFFER < 0.5).long()

    assert_law({(a, b): 0.25 for a in (0, 1) for b in (0, 1)}, program, calls=100)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_float_placeholders_are_nan_then_large(dtype):
    """Whoever reads memory unseen meets NaN, and in replays numbers of either sign."""
    placeholders = [torch.tensor(poison(dtype, seed), dtype=dtype).item() for seed in range(3)]

    assert np.isnan(placeholders[0])
    assert placeholders[1] < -1e4
    assert placeholders[2] > 1e4


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16])
def test_integer_placeholders_are_no_tokens(dtype):
    """Integer placeholders lie outside every vocabulary, and change between replays."""
    first, second = (poison(dtype, seed) for seed in range(2))

    assert first < -30000
    assert second > 30000


@pytest.mark.parametrize("is_below", [True, False])
def test_memory_read_behind_torch_is_found_out(is_below):
    """An array that shares memory with a tensor shows placeholders; the law that follows from them is not accepted."""

    def program(source):
        values = torch.zeros(1, dtype=torch.float64)
        shared = values.numpy()
        values.uniform_(generator=source.torch_generator())
        return int(shared[0] < 0.5 if is_below else shared[0] > 0.5)

    with pytest.raises(NotEnumerable, match=r"not repeatable|calls impossible"):
        probabilities(program, calls=500)


@pytest.mark.parametrize(
    "leak",
    [
        lambda values: values.data_ptr() % 2,
        lambda values: int(np.from_dlpack(values)[0] < 0.5),
        lambda values: int(pickle.loads(pickle.dumps(values))[0] < 0.5),
        lambda values: int(float(values[0]) < 0.5),
        lambda values: int(np.asarray(values)[0] < 0.5),
    ],
)
def test_memory_handed_out_of_torch_is_refused(leak):
    """Pointers, pickles and arrays of random values end the enumeration."""
    with pytest.raises(NotEnumerable):
        probabilities(lambda source: leak(uniform(source.torch_generator(), 2)))


def test_deep_copies_are_copies_of_symbols():
    """copy.deepcopy copies the memory below the dispatcher."""

    def program(source):
        values = uniform(source.torch_generator(), 1)
        twin = copy.deepcopy(values)
        return [(values < 0.3).long(), (twin < 0.3).long()]

    assert_law({((1,), (1,)): 0.3, ((0,), (0,)): 0.7}, program, calls=200)


@pytest.mark.parametrize(
    "build",
    [
        lambda token: torch.tensor([token, token + 1]),
        lambda token: torch.tensor([[token[0], token[0] + 1]])[0],
        lambda token: torch.tensor([token.item(), token.item() + 1]),
        lambda token: torch.as_tensor([token[0], token[0] + 1]),
        lambda token: token.new_tensor([token[0], token[0] + 1]),
        lambda token: torch.stack([torch.tensor(token.item()), torch.as_tensor(token[0] + 1)]),
        lambda token: torch.cat([torch.tensor(token.tolist()), torch.asarray(token) + 1]),
        lambda token: torch.tensor([token, token + 1], dtype=torch.int32),
        lambda token: torch.tensor((token + torch.arange(2)).tolist()),
    ],
)
def test_tensors_built_from_lists_of_tensors_keep_their_symbols(build):
    """torch.tensor([...]) and its kin read tensors in the list below every dispatch mode."""

    def program(source):
        return build(torch.multinomial(WEIGHTS, 1, generator=source.torch_generator()))

    assert_law({(token, token + 1): share for token, share in LAW.items()}, program, calls=200)


def test_tolist_keeps_its_nesting():
    """A two-dimensional tensor gives nested lists."""

    def program(source):
        rows = uniform(source.torch_generator(), 2, 1).tolist()
        return [int(rows[0][0] < 0.3), int(rows[1][0] < 0.5)]

    assert_law({(1, 1): 0.15, (1, 0): 0.15, (0, 1): 0.35, (0, 0): 0.35}, program)
