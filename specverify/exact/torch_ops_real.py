"""Arithmetic and comparisons on continuous symbols in tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from specverify.exact import algebra, conditions, selections
from specverify.exact.columns import some
from specverify.exact.deferred import Deferred, resolved
from specverify.exact.scalar import Symbol
from specverify.exact.symbols import where
from specverify.exact.torch_elements import SMALL, Ids
from specverify.exact.torch_functions import BINARY, UNARY
from specverify.exact.torch_memory import to_numbers
from specverify.exact.torch_ops_discrete import compared_items, elementwise
from specverify.exact.torch_plan import HANDLERS, Call
from specverify.exact.torch_state import TorchState

_COMPARISONS = {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
}


_READY = (Symbol, float)


def _plain(state: TorchState, values: tuple[Any, ...], shape: tuple[int, ...]) -> NDArray[np.bool_] | None:
    """Entries into which nothing symbolic goes: the native result is right there. None: no entry."""
    plain = np.ones(shape, dtype=np.bool_)
    for value in values:
        ids = state.ids(value, shape)
        if ids is not None:
            plain &= ids == 0
    return plain if plain.any() else None


def _one_by_one(call: Call, result: torch.Tensor, operands: list[Any], function: Callable[..., Any]) -> torch.Tensor:
    """A small result, item by item; items without a symbol keep the native result."""
    state, shape = call.state, tuple(result.shape)
    for operand in operands:
        if isinstance(operand, torch.Tensor) and not operand.dtype.is_floating_point:
            state.settle_discrete(operand)
    columns = [state.items(operand, shape) for operand in operands]
    items = [
        function(*[part if type(part) in _READY else float(resolved(part)) for part in parts])
        if any(type(part) is Symbol or isinstance(part, Deferred) for part in parts)
        else None
        for parts in zip(*columns, strict=True)
    ]
    return state.put_items(result, items)


def _binary(call: Call) -> Any:
    state, first, second = call.state, call["self"], call["other"] if call.name != "pow" else call["exponent"]
    if not (state.is_continuous(first) or state.is_continuous(second)):
        return elementwise(call)
    if call["rounding_mode"] is not None:
        raise call.refuse("a rounded division of a random value is not modelled")
    result, alpha = call.native(), call["alpha"]
    one, many = BINARY[call.name]
    if alpha is None or alpha == 1:
        if result.numel() <= SMALL:
            return _one_by_one(call, result, [first, second], one)
        alpha = 1.0
    shape = tuple(result.shape)
    left, right = state.block(first, shape), state.block(second, shape)
    if alpha != 1:
        left, right = (
            (algebra.scale(left, alpha), right) if call.name == "rsub" else (left, algebra.scale(right, alpha))
        )
    return state.put_symbols(result, many(left, right), _plain(state, (first, second), shape))


def _unary(call: Call) -> Any:
    state, value = call.state, call["self"]
    if not state.is_continuous(value):
        return elementwise(call)
    result = call.native()
    one, many = UNARY[call.name]
    if one is not None and result.numel() <= SMALL:
        return _one_by_one(call, result, [value], one)
    shape = tuple(result.shape)
    return state.put_symbols(result, many(state.block(value, shape)), _plain(state, (value,), shape))


def _comparison(call: Call) -> Any:
    state, first, second = call.state, call["self"], call["other"]
    if not (state.is_continuous(first) or state.is_continuous(second)):
        return compared_items(call)
    result = call.native()
    operation = _COMPARISONS[call.name]
    if result.numel() <= SMALL:
        return _one_by_one(call, result, [first, second], lambda left, right: _compared(left, operation, right))
    shape = tuple(result.shape)
    left, right = state.block(first, shape), state.block(second, shape)
    if (right.variable < 0).all():
        outcome = conditions.compare(left, operation, right.a)
    elif (left.variable < 0).all():
        outcome = conditions.compare(right, conditions.mirrored(operation), left.a)
    else:
        outcome = conditions.compare(algebra.subtract(left, right), operation, 0.0)
    plain = _plain(state, (first, second), shape)
    if plain is not None:
        native = to_numbers(result).astype(np.bool_)
        outcome = conditions.Conditions(
            state.run,
            np.where(plain, -1, outcome.variable),
            outcome.threshold,
            np.where(plain, native, outcome.below),
        )
    return state.put_conditions(result, outcome)


def _compared(left: Any, operation: str, right: Any) -> Any:
    if isinstance(left, Symbol):
        return left.compare(operation, right)
    if isinstance(right, Symbol):
        return right.compare(conditions.mirrored(operation), left)
    return bool(getattr(np, operation)(left, right))


def _clamp(call: Call) -> Any:
    state, value = call.state, call["self"]
    low, high = call["min"], call["max"]
    if call.name == "relu":
        low = 0.0
    if any(state.is_continuous(bound) for bound in (low, high)):
        raise call.refuse("a clamp to a random bound has no closed form")
    if not state.is_continuous(value):
        return elementwise(call)
    result = call.native()
    shape = tuple(result.shape)
    bounds = [None if bound is None else state.block(bound, shape).a for bound in (low, high)]
    block = conditions.clamp(state.block(value, shape), *bounds)
    return state.put_symbols(result, block, _plain(state, (value,), shape))


def extreme(call: Call) -> Any:
    """minimum and maximum of a random value and a number: a clamp."""
    state, first, second = call.state, call["self"], call["other"]
    if not (state.is_continuous(first) or state.is_continuous(second)):
        return elementwise(call)
    result = call.native()
    shape = tuple(result.shape)
    left, right = state.block(first, shape), state.block(second, shape)
    if some((left.variable >= 0) & (right.variable >= 0)):
        raise call.refuse("the smaller or larger of two random values has no closed form")
    lead = left.variable >= 0
    block, bounds = where(lead, left, right), np.where(lead, right.a, left.a)
    is_minimum = call.name in ("minimum", "min", "fmin")
    clipped = conditions.clamp(block, None if is_minimum else bounds, bounds if is_minimum else None)
    return state.put_symbols(result, clipped, _plain(state, (first, second), shape))


def _floor(call: Call) -> Any:
    state, value = call.state, call["self"]
    ids = state.ids(value)
    if ids is None or not state.is_continuous(value):
        return elementwise(call)
    result = call.native()
    return state.put_ids(result, floor_ids(state, ids, str(call.func), towards_zero=call.name == "trunc"))


def floor_ids(state: TorchState, ids: Ids, operation: str, *, towards_zero: bool) -> Ids:
    """Ids of the whole parts of symbols: step functions of their variables."""
    result = ids.copy()
    for position in map(tuple, np.argwhere(ids > 0).tolist()):
        symbol = state.elements.get(int(ids[position]))
        if towards_zero and float(algebra.value_bounds(symbol.block())[0]) < 0.0:
            raise state.run.refuse("the whole part of a random value that may be negative", operation)
        whole = selections.whole_part(symbol.block())
        result[position] = state.elements.add(whole)
    return result


def _never(call: Call) -> Any:
    """isnan and isinf: a symbol is finite with probability 1."""
    state, result = call.state, call.native()
    ids = state.ids(call["self"])
    assert ids is not None
    return state.put_items(result, [False if element else None for element in ids.ravel().tolist()])


HANDLERS.update(dict.fromkeys(BINARY, _binary))
HANDLERS.update(dict.fromkeys(UNARY, _unary))
HANDLERS.update(dict.fromkeys(_COMPARISONS, _comparison))
HANDLERS.update(dict.fromkeys(("clamp", "clamp_min", "clamp_max", "clip", "relu"), _clamp))
HANDLERS.update(dict.fromkeys(("minimum", "maximum", "fmin", "fmax"), extreme))
HANDLERS.update(dict.fromkeys(("floor", "trunc"), _floor))
HANDLERS.update(dict.fromkeys(("isnan", "isinf", "isposinf", "isneginf"), _never))
