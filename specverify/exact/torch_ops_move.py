"""Operations that only move elements: they are run a second time on the mirror of ids."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy import array

from specverify.exact.deferred import Deferred, Function, Get
from specverify.exact.leaves import Leaf
from specverify.exact.torch_coarse import HALVES, converted
from specverify.exact.torch_elements import Ids
from specverify.exact.torch_memory import to_tensor
from specverify.exact.torch_plan import HANDLERS, Call
from specverify.exact.torch_rows import Winner
from specverify.exact.torch_state import TorchState

_WHOLE = (
    "clone", "gather", "index", "index_select", "repeat", "flip", "roll", "take", "take_along_dim", "masked_select",
    "constant_pad_nd", "tril", "triu", "diag_embed", "repeat_interleave", "unfold_copy", "view_copy", "expand_copy",
    "permute_copy", "t_copy", "transpose_copy", "slice_copy", "select_copy", "squeeze_copy", "unsqueeze_copy",
    "alias_copy", "detach_copy", "lift_fresh_copy", "index_fill", "rot90",
)  # fmt: skip
# Operation -> arguments whose elements are moved. Every other tensor argument is an index or a mask, which is decided.
_MOVED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_WHOLE, ("self",)),
    "cat": ("tensors",),
    "concat": ("tensors",),
    "stack": ("tensors",),
    "hstack": ("tensors",),
    "vstack": ("tensors",),
    "embedding": ("weight",),
    "where": ("self", "other"),
    "copy": ("self", "src"),
    "fill": ("self", "value"),
    "slice_scatter": ("self", "src"),
    "select_scatter": ("self", "src"),
    "diagonal_scatter": ("self", "src"),
    "index_put": ("self", "values"),
    "_unsafe_index_put": ("self", "values"),
    "index_copy": ("self", "source"),
    "scatter": ("self", "src", "value"),
    "masked_fill": ("self", "value"),
    "masked_scatter": ("self", "source"),
}
_DROPPED = ("dtype", "device", "layout", "pin_memory", "memory_format", "non_blocking")


def moved(call: Call) -> Any:
    state, moved = call.state, _MOVED[call.name]
    if call["accumulate"] or call["reduce"]:
        raise call.refuse("random values are added into place")
    if call.name == "where" and "self" not in call.values:  # torch.where(condition): the positions of true entries
        state.settle([call["condition"]], call.func)
        return call.native()
    for name, value in call.values.items():
        if name not in moved:
            state.settle(value if isinstance(value, (list, tuple)) else [value], call.func)
    result = call.native()
    mirrored = {
        name: _mirror(state, value, result.dtype) if name in moved else _on_cpu(value)
        for name, value in call.values.items()
        if name not in _DROPPED
    }
    positional = [mirrored.pop(name) for name in call.plan.positional if name in mirrored]
    ids = call.func(*positional, **mirrored)
    return state.put_ids(result, ids.numpy().reshape(result.shape))


def _mirror(state: TorchState, value: Any, dtype: torch.dtype) -> Any:
    """Ids in place of elements, as the given type of result will hold them; 0 for a plain number."""
    if isinstance(value, torch.Tensor):
        ids = state.ids(value)
        if ids is None:
            return torch.zeros(value.shape, dtype=torch.int64)
        return to_tensor(converted_ids(state, ids, value.dtype, dtype, "type conversion"))
    if isinstance(value, (list, tuple)):
        return [_mirror(state, entry, dtype) for entry in value]
    return 0 if value is not None else None


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.cpu()
    if isinstance(value, (list, tuple)):
        return [_on_cpu(entry) for entry in value]
    return value


def _to_copy(call: Call) -> Any:
    state, source = call.state, call["self"]
    result = call.native()
    ids = state.ids(source)
    assert ids is not None
    return state.put_ids(result, converted_ids(state, ids, source.dtype, result.dtype, str(call.func)))


def converted_ids(state: TorchState, ids: Ids, source: torch.dtype, target: torch.dtype, operation: str) -> Ids:
    """Ids of the same elements in another type. Refuses a continuous symbol as an integer."""
    if source is target:
        return ids
    if target in HALVES or state.elements.has_coarse:
        ids = converted(state, ids, source, target)
    if target.is_floating_point:
        if source is torch.float64 and (ids > 0).any():
            state.run.notes.add(
                f"random values are rounded from {source} to {target}: the law is that of the unrounded values"
            )
        return ids
    if (ids > 0).any():
        from specverify.exact.torch_ops_real import floor_ids

        if target is torch.bool or source is torch.bool:
            raise state.run.refuse("a continuous random value is converted to a truth value", operation)
        ids = floor_ids(state, ids, operation, towards_zero=True)
    if target is torch.bool or source.is_floating_point or is_narrower(target, source):
        ids = array([_converted(state, element, target) for element in ids.ravel().tolist()], dtype=np.int64).reshape(
            ids.shape
        )
    return ids


def _converted(state: TorchState, element: int, target: torch.dtype) -> int:
    if element == 0 or state.elements.is_truth(element):
        return element
    item = state.elements.get(element)
    if target is not torch.bool and _holds_all(target, item):
        return element
    convert = whole_number_of(target)

    def function(get: Get) -> Any:
        return convert(get(0))

    return state.elements.add(Function(state.run, (item,), function), is_truth=target is torch.bool)


def is_narrower(target: torch.dtype, source: torch.dtype) -> bool:
    """Whether an integer type cannot hold every number of another one."""
    if source is torch.bool:
        return False
    own, other = torch.iinfo(target), torch.iinfo(source)
    return own.min > other.min or own.max < other.max


def _holds_all(target: torch.dtype, item: Deferred) -> bool:
    """Whether every outcome of a draw is a whole number within an integer type."""
    limits = torch.iinfo(target)
    if isinstance(item, Winner):  # a position in memory
        return limits.bits >= 32
    if not isinstance(item, Leaf):
        return False
    values = item.possible_values
    return values.dtype.kind in "iub" and bool(values.min() >= limits.min and values.max() <= limits.max)


@functools.cache
def whole_number_of(dtype: torch.dtype) -> Callable[[Any], Any]:
    """Turns a number into one of an integer or truth type, as memory of that type would hold it: it wraps around."""
    if dtype is torch.bool:
        return bool
    limits = torch.iinfo(dtype)
    low, high, size = limits.min, limits.max, 1 << limits.bits

    def wrapped(value: Any) -> int:
        number = int(value)
        return number if low <= number <= high else (number - low) % size + low

    return wrapped


HANDLERS.update({name: moved for name in _MOVED if name != "where"})
HANDLERS["_to_copy"] = _to_copy
HANDLERS["to"] = _to_copy
