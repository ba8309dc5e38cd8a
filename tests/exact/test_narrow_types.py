"""Whole numbers of narrow types wrap around in an enumeration as they do in memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specverify.exact.law import enumerate_law

# Token 0 or token 299, which a byte turns into 43.
LAW = np.zeros(300)
LAW[[0, 299]] = 0.5


def token(source):
    return torch.multinomial(torch.tensor(LAW), 1, generator=source.torch_generator())


def race(source):
    noise = torch.empty(300, dtype=torch.float64).exponential_(generator=source.torch_generator())
    return (torch.tensor(LAW) / noise).argmax(-1, keepdim=True)


def filled(source, dtype):
    output = torch.full((3,), 1, dtype=dtype)
    output[1:2] = token(source)
    return output.long()


def numpy_token(source):
    return source.numpy_generator().choice(300, size=1, p=LAW)


PROGRAMS = {
    "to uint8": (lambda source: token(source).to(torch.uint8).long(), {(0,), (43,)}),
    "to int8": (lambda source: token(source).to(torch.int8), {(0,), (43,)}),
    "of a race": (lambda source: race(source).byte(), {(0,), (43,)}),
    "to int16": (lambda source: token(source).to(torch.int16), {(0,), (299,)}),
    "to int32": (lambda source: race(source).to(torch.int32), {(0,), (299,)}),
    "below zero": (lambda source: (token(source) - 1).to(torch.uint8), {(255,), (42,)}),
    "to bool": (lambda source: token(source).to(torch.bool).long(), {(0,), (1,)}),
    "written into bytes": (lambda source: filled(source, torch.uint8), {(1, 0, 1), (1, 43, 1)}),
    "sum of bytes": (
        lambda source: token(source).byte() + torch.tensor([250], dtype=torch.uint8), {(250,), (37,)},
    ),
    "product of int32": (lambda source: token(source).to(torch.int32) * 2**24, {(0,), (721420288,)}),
    "product of int64": (lambda source: token(source) * 2**56, {(0,), (299 * 2**56 % 2**64,)}),
    "numpy astype": (lambda source: numpy_token(source).astype(np.int8), {(0,), (43,)}),
    "numpy array": (lambda source: np.array(numpy_token(source), dtype=np.uint8), {(0,), (43,)}),
    "numpy sum of bytes": (lambda source: numpy_token(source).astype(np.uint8) + np.uint8(250), {(250,), (37,)}),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_narrow_whole_numbers_wrap_around(name):
    """The law has the numbers that memory holds, each half of the time; ordinary calls of torch and numpy agree."""
    program, wanted = PROGRAMS[name]

    law = enumerate_law(program)

    assert law.probabilities == pytest.approx(dict.fromkeys(wanted, 0.5), abs=1e-15)
