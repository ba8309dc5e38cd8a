"""Elementwise operations on undecided numbers and truth values: they stay undecided until somebody looks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from specverify.exact.deferred import Deferred, Function, Get, conjunction, disjunction
from specverify.exact.events import Condition
from specverify.exact.lazy import selected
from specverify.exact.run import Run
from specverify.exact.torch_elements import SMALL
from specverify.exact.torch_ops_move import whole_number_of
from specverify.exact.torch_plan import HANDLERS, Call

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "rsub": lambda first, second: second - first,
    "mul": operator.mul,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "minimum": min,
    "maximum": max,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__xor__": operator.xor,
    "logical_and": lambda first, second: bool(first) and bool(second),
    "logical_or": lambda first, second: bool(first) or bool(second),
    "logical_xor": lambda first, second: bool(first) != bool(second),
}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "abs": abs,
    "relu": lambda value: max(value, 0),
    "floor": lambda value: value,
    "trunc": lambda value: value,
}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}
_CONJUNCTIONS = ("bitwise_and", "__and__", "logical_and")
_DISJUNCTIONS = ("bitwise_or", "__or__", "logical_or")
# More elements than this are decided at once: an object for each would cost more than the forks it could save.
MAX_ITEMS = 1 << 17


class CountOfTruths(Function):
    """How many of several truth values hold. Compared with a number, it counts no further than it has to."""

    __slots__ = ()

    def __init__(self, run: Run, parts: Sequence[Any]) -> None:
        super().__init__(run, parts, lambda get: sum(bool(get(index)) for index in range(len(parts))))

    def compared(self, compare: Callable[[Any, Any], bool], number: float) -> Function:
        """compare(count, number), decided with as few of the truth values as possible."""
        parts = self.parts

        def function(get: Get) -> bool:
            count, rest = 0, len(parts)
            for index in range(len(parts)):
                if compare in (operator.eq, operator.ne):
                    is_open = count <= number <= count + rest
                else:
                    is_open = compare(count, number) != compare(count + rest, number)
                if not is_open:
                    break
                count += bool(get(index))
                rest -= 1
            return compare(count, number)

        return Function(self.run, parts, function)


def elementwise(call: Call) -> Any:
    """Any elementwise operation of which no argument holds a continuous symbol."""
    state = call.state
    if call.name in ("clamp", "clamp_min", "clamp_max", "clip"):
        return _clamped(call)
    function = _UNARY.get(call.name) or _BINARY.get(call.name)
    alpha = call["alpha"]
    if function is None or (alpha is not None and alpha != 1):
        state.settle(call.values.values(), call.func)
        return call.native()
    operands = [call["self"]] + ([call["other"]] if call.name in _BINARY else [])
    result = call.native()
    short_circuit = _short_circuit(call, result)
    return _put(call, result, operands, short_circuit or _within(result.dtype, function))


def _within(dtype: torch.dtype, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its result as memory of an integer type holds it. Sums of token ids stay within 64 bits."""
    if dtype.is_floating_point or dtype is torch.bool or (dtype is torch.int64 and function is not operator.mul):
        return function
    wrapped = whole_number_of(dtype)
    return lambda *parts: wrapped(function(*parts))


def _put(call: Call, result: torch.Tensor, operands: list[Any], function: Callable[..., Any]) -> torch.Tensor:
    state, shape = call.state, tuple(result.shape)
    if result.numel() > MAX_ITEMS:
        state.settle(operands, call.func)
        return call.native()  # type: ignore[no-any-return]
    columns = [state.items(operand, shape) for operand in operands]
    items = [
        _applied(state.run, function, parts) if any(isinstance(part, Deferred) for part in parts) else function(*parts)
        for parts in zip(*columns, strict=True)
    ]
    is_truth = result.dtype is torch.bool
    return state.put_items(result, items, are_truths=is_truth)


def _applied(run: Run, function: Callable[..., Any], parts: Sequence[Any]) -> Any:
    if function is _and:
        return _connected(run, parts, conjunction, False)
    if function is _or:
        return _connected(run, parts, disjunction, True)
    if function is _not and isinstance(parts[0], Condition):
        return ~parts[0]
    if len(parts) == 1:
        return Function(run, tuple(parts), lambda get: function(get(0)))
    return Function(run, tuple(parts), lambda get: function(get(0), get(1)))


def _connected(run: Run, parts: Sequence[Any], connect: Callable[[Run, Sequence[Any]], Any], decisive: bool) -> Any:
    for part in parts:
        if not isinstance(part, Deferred) and bool(part) is decisive:
            return decisive
    undecided = [part for part in parts if isinstance(part, Deferred)]
    return undecided[0] if len(undecided) == 1 else connect(run, undecided)


def _and(first: Any, second: Any) -> bool:
    return bool(first) and bool(second)


def _or(first: Any, second: Any) -> bool:
    return bool(first) or bool(second)


def _short_circuit(call: Call, result: torch.Tensor) -> Callable[..., Any] | None:
    """and and or of truth values: the second is looked at only where the first leaves it open."""
    if result.dtype is not torch.bool:
        return None
    if any(isinstance(v, torch.Tensor) and v.dtype is not torch.bool for v in (call["self"], call["other"])):
        return None
    return _and if call.name in _CONJUNCTIONS else _or if call.name in _DISJUNCTIONS else None


def _negated(call: Call) -> Any:
    """~ and logical_not of conditions: further conditions, in a block where there are many."""
    state, value = call.state, call["self"]
    if value.numel() > SMALL:
        block = state.conditions(value)
        if block is not None:
            return state.put_conditions(call.native(), block.inverted())
    return _put(call, call.native(), [value], _not)


def _not(value: Any) -> Any:
    return not value


def _bitwise_not(call: Call) -> Any:
    value = call["self"]
    if value.dtype is torch.bool:
        return _negated(call)
    return _put(call, call.native(), [value], operator.invert)


def _clamped(call: Call) -> Any:
    state, value = call.state, call["self"]
    low, high = call["min"], call["max"]
    if any(isinstance(bound, torch.Tensor) for bound in (low, high)):
        state.settle([value, low, high], call.func)
        return call.native()

    def function(number: Any) -> Any:
        number = number if low is None else max(number, low)
        return number if high is None else min(number, high)

    return _put(call, call.native(), [value], function)


def compared_items(call: Call) -> Any:
    """Comparisons where no side holds a continuous symbol."""
    state, first, second = call.state, call["self"], call["other"]
    result = call.native()
    compare = _COMPARISONS[call.name]

    def function(left: Any, right: Any) -> Any:
        return compare(left, right)

    shape = tuple(result.shape)
    if result.numel() > MAX_ITEMS:
        state.settle([first, second], call.func)
        return call.native()
    items: list[Any] = []
    for left, right in zip(state.items(first, shape), state.items(second, shape), strict=True):
        if isinstance(left, CountOfTruths) and not isinstance(right, Deferred):
            items.append(left.compared(compare, right))
        elif isinstance(left, Deferred) or isinstance(right, Deferred):
            items.append(_applied(state.run, function, (left, right)))
        else:
            items.append(compare(left, right))
    return state.put_items(result, items, are_truths=True)


def _where(call: Call) -> Any:
    """where() with an undecided condition; its branches stay undecided where they hold whole numbers."""
    from specverify.exact.torch_ops_move import moved

    state, condition = call.state, call["condition"]
    if not state.is_symbolic(condition):
        return moved(call)
    branches = [call["self"], call["other"]]
    result = call.native() if "self" in call.values else None
    if result is None or result.dtype.is_floating_point or result.numel() > MAX_ITEMS:
        state.settle([condition], call.func)
        return moved(call) if any(state.is_symbolic(branch) for branch in branches) else call.native()
    shape = tuple(result.shape)
    columns = [state.items(value, shape) for value in (condition, *branches)]
    items = [selected(state.run, *parts) for parts in zip(*columns, strict=True)]
    return state.put_items(result, items, are_truths=result.dtype is torch.bool)


def _isin(call: Call) -> Any:
    state, elements, wanted = call.state, call["elements"], call["test_elements"]
    if not isinstance(elements, torch.Tensor) or not isinstance(wanted, torch.Tensor) or state.is_symbolic(wanted):
        state.settle([elements, wanted], call.func)
        return call.native()
    accepted, invert = set(wanted.reshape(-1).tolist()), bool(call["invert"])
    return _put(call, call.native(), [elements], lambda number: (number in accepted) is not invert)


HANDLERS.update(dict.fromkeys(set(_BINARY) | set(_UNARY), elementwise))
HANDLERS["bitwise_not"] = _bitwise_not
HANDLERS["logical_not"] = _negated
HANDLERS["where"] = _where
HANDLERS["isin"] = _isin
