"""A number that waits to be decided may be any operand of any operation: its placeholder is never computed with."""

from __future__ import annotations

import contextlib

import pytest
import torch

from specverify.exact.law import enumerate_law

WEIGHTS = torch.tensor([0.3, 0.7])
ONE, FIVE = torch.ones(1), torch.full((1,), 5.0)
OPERATIONS = {
    "divided by it": lambda k: ONE / k,
    "a number divided by it": lambda k: 2.0 / k,
    "divided by it, rounded": lambda k: torch.div(FIVE, k, rounding_mode="floor"),
    "to its power": lambda k: FIVE**k,
    "a number to its power": lambda k: 2.0**k,
    "less twice it": lambda k: torch.sub(ONE, k, alpha=2),
    "rsub": lambda k: torch.rsub(k, FIVE),
    "fmod": lambda k: torch.fmod(FIVE, k),
    "atan2": lambda k: torch.atan2(ONE, k),
    "hypot": lambda k: torch.hypot(ONE, k.to(torch.float32)),
    "lerp": lambda k: torch.lerp(ONE, FIVE, k.to(torch.float32)),
    "addcdiv": lambda k: torch.addcdiv(ONE, ONE, k.to(torch.float32)),
    "addcmul": lambda k: torch.addcmul(ONE, ONE, k.to(torch.float32)),
    "where": lambda k: torch.where(torch.tensor([True]), k, k * 2),
    "maximum": lambda k: torch.maximum(ONE * 1.5, k),
    "clamped by it": lambda k: torch.clamp(FIVE, max=k),
    "xlogy": lambda k: torch.xlogy(ONE, k),
    "logaddexp": lambda k: torch.logaddexp(ONE, k.to(torch.float32)),
    "matmul": lambda k: ONE @ k.to(torch.float32),
    "one-hot, at itself": lambda k: 3.0 * k / torch.nn.functional.one_hot(k.long(), 4).gather(-1, k.long()[:, None])[0],
}


@pytest.mark.parametrize("is_inference", [False, True], ids=["", "inference mode"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_the_true_value_is_used(operation, dtype, is_inference) -> None:
    def value(number: torch.Tensor) -> int:
        return round(float(operation(number).flatten()[0]) * 1e6)

    def program(source) -> int:
        with torch.inference_mode() if is_inference else contextlib.nullcontext():
            return value((torch.multinomial(WEIGHTS, 1, generator=source.torch_generator()) + 1).to(dtype))

    law = enumerate_law(program, cross_check_calls=0)

    wanted: dict[int, float] = {}
    for number, weight in ((1, 0.3), (2, 0.7)):
        outcome = value(torch.tensor([number], dtype=dtype))
        wanted[outcome] = wanted.get(outcome, 0.0) + weight
    assert law.probabilities.keys() == wanted.keys()
    assert all(abs(law.probabilities[outcome] - weight) < 1e-6 for outcome, weight in wanted.items())
