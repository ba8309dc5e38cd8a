"""int8 weights: every matrix of a model rounded to one byte an entry, with one scale a row. Activations stay as wide.

Where torch has no product for them, and in float64, the rounded weights are kept in the model's type: the same law
without the speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from specverify.core.errors import UsageError
from specverify.reference.int8 import DIGITS, LARGEST, Int8Weight
from specverify.reference.model import Model

MODES = ("int8",)
_MATRICES = ("query_key_value", "attention_out", "gate_up", "down")


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(entries int8 [rows, columns], scales float32 [rows]): the largest entry of each row is 127 or -127 scales."""
    wide = weight.to(torch.float64)
    largest = wide.abs().amax(dim=1)
    scales = torch.where(largest > 0.0, largest / LARGEST, 1.0).to(torch.float32)
    entries = (wide / scales.to(torch.float64)[:, None]).round().clamp(-LARGEST, LARGEST)
    return entries.to(torch.int8), scales


@lru_cache(maxsize=8)
def quantized(model: Model, mode: str = "int8") -> Model:
    """The model with its matrices rounded; embedding, norms and biases stay as they are. The same object each time.

    Raises UsageError for an unknown mode.
    """
    if mode not in MODES:
        raise UsageError(f"quantisation {mode!r} is unknown; choose from {', '.join(MODES)}")
    layers = tuple(
        replace(layer, **{name: _quantized(getattr(layer, name)) for name in _MATRICES})
        for layer in model.weights.layers
    )
    return Model(model.config, replace(model.weights, layers=layers, head=_quantized(model.weights.head)))


def _quantized(weight: Tensor) -> Tensor:
    entries, scales = rounded(weight)
    if weight.dtype in DIGITS and _has_kernel(entries):
        return Int8Weight(entries, scales, weight.dtype)
    return (entries.to(torch.float64) * scales.to(torch.float64)[:, None]).to(weight.dtype)


def _has_kernel(entries: Tensor) -> bool:
    """Whether torch multiplies a few rows by an int8 matrix of this shape on this device."""
    try:
        torch._int_mm(torch.zeros_like(entries[:1]), entries.t())
    except (RuntimeError, AttributeError):
        return False
    return True


def num_bytes(model: Model) -> int:
    """Memory of the matrices that a pass reads: layers and head."""
    matrices = [getattr(layer, name) for layer in model.weights.layers for name in _MATRICES]
    return sum(_bytes_of(matrix) for matrix in [*matrices, model.weights.head])


def _bytes_of(matrix: Tensor) -> int:
    parts = (matrix.entries, matrix.scales) if isinstance(matrix, Int8Weight) else (matrix,)
    return sum(part.numel() * part.element_size() for part in parts)


def modes_by_model(quantize: str | Mapping[str, str] | None) -> Mapping[str, str]:
    """Mode of "target" and "draft", where there is one; a mode by itself is for both.

    Raises UsageError for an unknown mode or model.
    """
    if quantize is None:
        return {}
    asked = dict.fromkeys(("target", "draft"), quantize) if isinstance(quantize, str) else dict(quantize)
    for name, mode in asked.items():
        if name not in ("target", "draft"):
            raise UsageError(f"quantize names {name!r}; choose from target, draft")
        if mode not in MODES:
            raise UsageError(f"quantisation {mode!r} is unknown; choose from {', '.join(MODES)}")
    return asked
