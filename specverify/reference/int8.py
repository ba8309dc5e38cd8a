"""A matrix of int8 entries, and its product with activations that stay as wide as they are.

The product is torch's own for int8 on CPUs (torch._int_mm): each activation is written as two or three int8 digits, so
that nothing but weights is rounded that the model's type would not round as well. (torch's weight-only kernel,
_weight_int8pack_mm, takes 2 to 10 times as long as a dense product in float32.) Sums of integers are exact: a row of a
block comes out the same, to the bit, in whatever company it is computed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from specverify.core.errors import UsageError

LARGEST = 127  # of an int8 entry, as large below zero as above
# A digit leaves at most half a unit over, which the next one counts in units of 1 / _NEXT.
_NEXT = 254.0
DIGITS = {torch.float32: 3, torch.bfloat16: 2, torch.float16: 2}


class Int8Weight(Tensor):
    """A matrix [rows, columns] of int8 entries with a scale a row. All that can be done with it is `project`."""

    entries: Tensor  # [rows, columns], int8
    scales: Tensor  # [rows], float32

    @staticmethod
    def __new__(cls, entries: Tensor, scales: Tensor, dtype: torch.dtype) -> Int8Weight:
        made: Int8Weight = Tensor._make_wrapper_subclass(cls, entries.shape, dtype=dtype, device=entries.device)
        made.entries, made.scales = entries, scales
        return made

    def __init__(self, entries: Tensor, scales: Tensor, dtype: torch.dtype) -> None:
        pass

    def project(self, inputs: Tensor, bias: Tensor | None = None) -> Tensor:
        """inputs [tokens, columns] times the matrix, transposed, and the bias: [tokens, rows]."""
        wide = inputs.to(torch.float32)
        units = wide.abs().amax(dim=1, keepdim=True).clamp_(min=torch.finfo(torch.float32).tiny).div_(LARGEST)
        digits = _digits(wide / units, DIGITS[inputs.dtype])
        sums = torch._int_mm(digits.flatten(0, 1), self.entries.t()).to(torch.float32)
        worth = torch.tensor([_NEXT**-place for place in range(len(digits))], device=sums.device)
        total = torch.tensordot(worth, sums.view(*digits.shape[:2], -1), dims=1)
        product: Tensor = (total * units * self.scales).to(inputs.dtype)
        return product if bias is None else product + bias

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise UsageError(f"int8 weights are for products with activations only, not for {func}")


def _digits(rest: Tensor, count: int) -> Tensor:
    """Digits [count, rows, columns], int8, of values [rows, columns] between -LARGEST and LARGEST."""
    digits = torch.empty((count, *rest.shape), dtype=torch.int8, device=rest.device)
    for place in range(count):
        digit = rest.round()
        digits[place] = digit
        rest = (rest - digit) * _NEXT
    return digits
