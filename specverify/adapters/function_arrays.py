"""Turns laws and token ids into the arrays that a verify function takes, and its answers into plain tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.core.errors import UsageError

FloatArray = NDArray[np.float64]


# What the rows of logits are shifted by. Any number is right; these are exact in every type.
_TARGET_SHIFTS, _DRAFT_SHIFTS = (1.5, -2.0, 0.5, 3.0), (-1.0, 2.5, 0.0)
# exp of this is 0 in every type, and every type holds it.
_NO_CHANCE = -1e4
# Roundings until a law stays what it is; two or three do.
_MOST_ROUNDINGS = 32


def in_form(law: FloatArray, form: str, *, finite: bool = False, side: str = "") -> FloatArray:
    """Probabilities as they are, their logarithm, or logits: a logarithm shifted by another number in every row.

    law: [vocab] or [rows, vocab]. finite: for functions that refuse -inf, a logarithm whose exponential is 0 all the
    same. side: "draft" and others are shifted differently, so that comparing logits of the two shows.
    """
    if form == "probs":
        return law
    with np.errstate(divide="ignore"):
        logs = np.log(law)
    if form == "logits":
        shifts = _DRAFT_SHIFTS if side == "draft" else _TARGET_SHIFTS
        logs = logs + (np.resize(shifts, len(law))[:, None] if law.ndim > 1 else shifts[0])
    return np.maximum(logs, _NO_CHANCE) if finite else logs


def fresh_copy(value: Any) -> Any:
    """A copy that shares nothing with the original: of an array, a tensor, or a list of either."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [fresh_copy(item) for item in value]
    return value.clone() if hasattr(value, "clone") else value


def encode_floats(rows: Sequence[FloatArray], kind: str, dtype: str, layout: str, rounding: str = "") -> Any:
    """The arrays of all batch rows as one argument. rows: one array a batch row, each [k, vocab], [k] or [vocab]."""
    joined = _join([np.asarray(row, dtype=np.float64) for row in rows], layout)
    if rounding:
        joined = joined.astype(rounding).astype(np.float64)
    return _as_kind(joined, kind, dtype)


def encode_ids(rows: Sequence[NDArray[np.int64]], kind: str, layout: str) -> Any:
    """The token ids of all batch rows as one argument."""
    joined = _join([np.asarray(row, dtype=np.int64) for row in rows], layout)
    return _as_kind(joined, kind.split(" ")[0], "int64")


def _join(rows: Sequence[NDArray[Any]], layout: str) -> NDArray[Any]:
    if layout == "single":
        if len(rows) != 1:
            raise UsageError(f"this function takes one sequence a call, not {len(rows)}")
        return rows[0].copy()
    if layout == "flat":
        return np.concatenate([np.atleast_1d(row) for row in rows], axis=0)
    if len({row.shape for row in rows}) != 1:
        raise UsageError("the rows of a batch need the same number of draft tokens here")
    return np.stack(rows)


def _as_kind(array: NDArray[Any], kind: str, dtype: str) -> Any:
    if kind == "list":
        return array.tolist()
    if kind.endswith("rows"):
        return [_as_kind(row, kind.split(" ")[0], dtype) for row in array]
    if kind == "torch rows [1, vocab]":
        return [_as_kind(row[None], "torch", dtype) for row in array]
    if kind == "torch":
        import torch

        return torch.as_tensor(array).to(getattr(torch, dtype)).clone()
    if dtype == "bfloat16":
        raise UsageError("numpy has no bfloat16; use dtype='float32', or kind='torch'")
    return array.astype(dtype)


def rounded_law(law: FloatArray, dtype: str) -> FloatArray:
    """The law that is left after its probabilities went through a narrower type: rounded, renormalised.

    Such that rounding it once more leaves the same numbers: it is what a function gets that is given it in this type.
    """
    if dtype == "float64":
        return law
    for _ in range(_MOST_ROUNDINGS):
        rounded = _rounded(law, dtype)
        law = rounded / rounded.sum(axis=-1, keepdims=True)
        if np.array_equal(rounded, _rounded(law, dtype)):
            break
    return law


def _rounded(law: FloatArray, dtype: str) -> FloatArray:
    if dtype == "bfloat16":
        import torch

        return np.asarray(torch.from_numpy(law.copy()).to(torch.bfloat16).to(torch.float64))
    return law.astype(dtype).astype(np.float64)


def as_nested(value: Any) -> Any:
    """Arrays, tensors and lists as nested tuples of Python numbers. Reads every element."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return tuple(as_nested(item) for item in value)
    return value


def snapshot(value: Any) -> Any:
    """A copy of an argument to compare with after the call, or None where it can't change or isn't ours to copy."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [snapshot(item) if isinstance(item, list) or hasattr(item, "shape") else item for item in value]
    if type(value).__module__.startswith("torch") and hasattr(value, "detach"):
        return value.detach().clone()
    return None


def is_changed(before: Any, after: Any) -> bool:
    """Whether an argument differs from its snapshot, element by element, NaN equal to NaN."""
    if before is None:
        return False
    if isinstance(before, list):
        return (
            not isinstance(after, list)
            or len(before) != len(after)
            or any(is_changed(one, other) if hasattr(one, "shape") or isinstance(one, list) else one != other
                   for one, other in zip(before, after, strict=True))
        )  # fmt: skip
    if tuple(before.shape) != tuple(after.shape):
        return True
    if isinstance(before, np.ndarray):
        return not np.array_equal(before, after, equal_nan=before.dtype.kind == "f")
    differs = (before != after) & ~((before != before) & (after != after))
    return bool(differs.any())
