"""Arithmetic and comparisons on continuous symbols in tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.exact import algebra, conditions
from specverify.exact.leaves import Piecewise
from specverify.exact.symbols import Symbols, where
from specverify.exact.torch_elements import Ids
from specverify.exact.torch_mode import HANDLERS, Call
from specverify.exact.torch_ops_discrete import compared_items, elementwise
from specverify.exact.torch_state import TorchState, to_numbers, to_tensor

# A floor() of a random value may fall on at most so many integers.
_MAX_STEPS = 1 << 16
_QUIET: dict[str, Any] = {"divide": "ignore", "invalid": "ignore", "over": "ignore", "under": "ignore"}


def _sum(first: Symbols, second: Symbols) -> Symbols:
    if (second.variable < 0).all():
        return algebra.shift(first, second.a)
    if (first.variable < 0).all():
        return algebra.shift(second, first.a)
    return algebra.add(first, second)


def _difference(first: Symbols, second: Symbols) -> Symbols:
    return _sum(first, algebra.negative(second))


def _product(first: Symbols, second: Symbols) -> Symbols:
    if (second.variable < 0).all():
        return algebra.scale(first, second.a)
    if (first.variable < 0).all():
        return algebra.scale(second, first.a)
    both = (first.variable >= 0) & (second.variable >= 0)
    if both.any():
        raise first.run.refuse("a product of two random values has no closed form", "mul")
    return where(second.variable < 0, algebra.scale(first, second.a), algebra.scale(second, first.a))


def _quotient(first: Symbols, second: Symbols) -> Symbols:
    if (second.variable < 0).all():
        with np.errstate(**_QUIET):
            return algebra.scale(first, 1.0 / second.a)
    return _product(first, algebra.power(second, -1.0))


def _power(first: Symbols, second: Symbols) -> Symbols:
    if (second.variable < 0).all():
        return algebra.power(first, second.a)
    if not (first.variable < 0).all():
        raise first.run.refuse("a random value raised to a random power has no closed form", "pow")
    with np.errstate(**_QUIET):
        return algebra.exp(algebra.scale(second, np.log(first.a)))


def _absolute(block: Symbols) -> Symbols:
    low, high = algebra.value_bounds(block)
    symbolic = block.variable >= 0
    if bool((symbolic & (low < 0.0) & (high > 0.0)).any()):
        raise block.run.refuse("the absolute value of a random value of either sign is not monotone", "abs")
    return algebra.scale(block, np.where(symbolic & (high <= 0.0), -1.0, 1.0))


_BINARY: dict[str, Callable[[Symbols, Symbols], Symbols]] = {
    "add": _sum,
    "sub": _difference,
    "rsub": lambda first, second: _difference(second, first),
    "mul": _product,
    "multiply": _product,
    "div": _quotient,
    "true_divide": _quotient,
    "divide": _quotient,
    "pow": _power,
}
_UNARY: dict[str, Callable[[Symbols], Symbols]] = {
    "neg": algebra.negative,
    "log": algebra.log,
    "exp": algebra.exp,
    "abs": _absolute,
    "log2": lambda block: algebra.scale(algebra.log(block), 1.0 / math.log(2.0)),
    "log10": lambda block: algebra.scale(algebra.log(block), 1.0 / math.log(10.0)),
    "log1p": lambda block: algebra.log(algebra.shift(block, 1.0)),
    "expm1": lambda block: algebra.shift(algebra.exp(block), -1.0),
    "exp2": lambda block: algebra.exp(algebra.scale(block, math.log(2.0))),
    "reciprocal": lambda block: algebra.power(block, -1.0),
    "sqrt": lambda block: algebra.power(block, 0.5),
    "rsqrt": lambda block: algebra.power(block, -0.5),
    "square": lambda block: algebra.power(block, 2.0),
}
_COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal"}
_MIRRORED = {
    "less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal",
    "equal": "equal", "not_equal": "not_equal",
}  # fmt: skip


def _plain(state: TorchState, values: tuple[Any, ...], shape: tuple[int, ...]) -> NDArray[np.bool_] | None:
    """Entries into which nothing symbolic goes: the native result is right there. None: no entry."""
    plain = np.ones(shape, dtype=np.bool_)
    for value in values:
        ids = state.ids(value, shape)
        if ids is not None:
            plain &= ids == 0
    return plain if plain.any() else None


def _binary(call: Call) -> Any:
    state, first, second = call.state, call["self"], call["other"] if call.name != "pow" else call["exponent"]
    if not (state.is_continuous(first) or state.is_continuous(second)):
        return elementwise(call)
    if call["rounding_mode"] is not None:
        raise call.refuse("a rounded division of a random value is not modelled")
    result = call.native()
    shape = tuple(result.shape)
    left, right = state.block(first, shape), state.block(second, shape)
    alpha = call["alpha"]
    if alpha is not None and alpha != 1:
        if call.name == "rsub":
            left = algebra.scale(left, float(alpha))
        else:
            right = algebra.scale(right, float(alpha))
    return state.put_symbols(result, _BINARY[call.name](left, right), _plain(state, (first, second), shape))


def _unary(call: Call) -> Any:
    state, value = call.state, call["self"]
    if not state.is_continuous(value):
        return elementwise(call)
    result = call.native()
    shape = tuple(result.shape)
    return state.put_symbols(result, _UNARY[call.name](state.block(value, shape)), _plain(state, (value,), shape))


def _comparison(call: Call) -> Any:
    state, first, second = call.state, call["self"], call["other"]
    if not (state.is_continuous(first) or state.is_continuous(second)):
        return compared_items(call)
    result = call.native()
    shape = tuple(result.shape)
    left, right = state.block(first, shape), state.block(second, shape)
    operation = _COMPARISONS[call.name]
    if (right.variable < 0).all():
        outcome = conditions.compare(left, operation, right.a)
    elif (left.variable < 0).all():
        outcome = conditions.compare(right, _MIRRORED[operation], left.a)
    else:
        outcome = conditions.compare(_difference(left, right), operation, 0.0)
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
    if bool(((left.variable >= 0) & (right.variable >= 0)).any()):
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
    return state.put_ids(result, floor_ids(state, ids, str(call.func)))


def floor_ids(state: TorchState, ids: Ids, operation: str) -> Ids:
    """Ids of the whole parts of symbols that are never negative: step functions of their variables."""
    result = ids.copy()
    for position in map(tuple, np.argwhere(ids > 0)):
        symbol = state.elements.symbols(ids[position].reshape(1))
        low, high = (float(bound[0]) for bound in algebra.value_bounds(symbol))
        if low < 0.0 or not high - low < _MAX_STEPS:
            raise state.run.refuse("the whole part of a random value that is negative or unbounded", operation)
        first, last = math.floor(low), math.ceil(high) - 1
        values = np.arange(first, max(last, first) + 1)
        edges, increasing = conditions.thresholds(symbol.broadcast((len(values) - 1,)), values[1:].astype(np.float64))
        if len(edges) and not increasing[0]:
            edges, values = edges[::-1], values[::-1]
        piecewise = Piecewise(state.run, int(symbol.variable[0]), edges, values, operation)
        result[position] = state.elements.add_node(piecewise)
    return result


def _never(call: Call) -> Any:
    """isnan and isinf: a symbol is finite with probability 1."""
    result = call.native()
    ids = call.state.ids(call["self"])
    return call.state.put_ids(result.masked_fill_(_mask(ids), False), np.zeros(tuple(result.shape), dtype=np.int64))


def _mask(ids: Ids | None) -> Any:
    import torch

    assert ids is not None
    return to_tensor(ids != 0)


HANDLERS.update(dict.fromkeys(_BINARY, _binary))
HANDLERS.update(dict.fromkeys(_UNARY, _unary))
HANDLERS.update(dict.fromkeys(_COMPARISONS, _comparison))
HANDLERS.update(dict.fromkeys(("clamp", "clamp_min", "clamp_max", "clip", "relu"), _clamp))
HANDLERS.update(dict.fromkeys(("minimum", "maximum", "fmin", "fmax"), extreme))
HANDLERS.update(dict.fromkeys(("floor", "trunc"), _floor))
HANDLERS.update(dict.fromkeys(("isnan", "isinf", "isposinf", "isneginf"), _never))
