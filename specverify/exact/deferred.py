"""Integers and truth values that are not decided yet.

An argmax, an inverse CDF or a comparison gives a Deferred. If it reaches the program's output uninspected, its law is
added in one go; anything that looks at it decides it, which forks the path. Looking is everything a number can be
asked: int(), bool(), use as an index, hash(), str(). Arithmetic and comparisons give further Deferreds.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from specverify.exact.groups import decided_by_groups
from specverify.exact.opaque import Opaque
from specverify.exact.run import Run

if TYPE_CHECKING:
    from specverify.exact.leaves import Leaf

Get = Callable[[int], Any]
UNDECIDED: Any = object()


def _either_way(function: Callable[[Any, Any], Any]) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """A method for an operator, and the one for its operands exchanged."""
    return (
        lambda own, other: combined(function, own, other),
        lambda own, other: combined(function, other, own),
    )


class Deferred(Opaque):
    """A number that will be decided when somebody looks at it. Base of the leaves and of functions of them."""

    __slots__ = ("_value",)

    def __init__(self, run: Run) -> None:
        self.run = run
        self._value: Any = UNDECIDED

    def resolve(self) -> Any:
        """The value on this path, decided now if it was not before."""
        if self._value is UNDECIDED:
            self.run.require_current("use of a random number")
            self._value = self._decide()
        return self._value

    @property
    def is_decided(self) -> bool:
        return self._value is not UNDECIDED

    # The next three are for subclasses. No ABC: its isinstance takes ten times as long, and runs ask it all the time.

    def _decide(self) -> Any:
        raise NotImplementedError

    def leaves(self) -> Iterator[Leaf]:
        """The undecided leaves that this depends on; a leaf may come more than once."""
        raise NotImplementedError

    def value_given(self, values: dict[int, Any]) -> Any:
        """The value where each leaf (by id) takes the given value."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        return bool(self.resolve())

    def __int__(self) -> int:
        if self._value is UNDECIDED and self.run.int_calls is not None:
            self.run.int_calls.append(sys._getframe(1))
        return int(self.resolve())

    def __index__(self) -> int:
        value = self._value
        return operator.index(int(self.resolve() if value is UNDECIDED else value))

    def __float__(self) -> float:
        return float(self.resolve())

    def __hash__(self) -> int:
        # The hot path of programs that look laws up by their draft tokens.
        value = self._value
        return hash(self.resolve() if value is UNDECIDED else value)

    def __str__(self) -> str:
        return str(self.resolve())

    def __format__(self, form: str) -> str:
        return format(self.resolve(), form)

    def __repr__(self) -> str:
        return repr(self._value) if self.is_decided else f"<undecided {type(self).__name__}>"

    def tolist(self) -> Deferred:
        """As item()."""
        return self

    __add__, __radd__ = _either_way(operator.add)
    __sub__, __rsub__ = _either_way(operator.sub)
    __mul__, __rmul__ = _either_way(operator.mul)
    __floordiv__, __rfloordiv__ = _either_way(operator.floordiv)
    __mod__, __rmod__ = _either_way(operator.mod)
    __truediv__, __rtruediv__ = _either_way(operator.truediv)
    __lt__, __gt__ = _either_way(operator.lt)
    __le__, __ge__ = _either_way(operator.le)

    def __abs__(self) -> Any:
        return combined(abs, self)

    def __neg__(self) -> Any:
        return combined(operator.neg, self)

    def __invert__(self) -> Any:
        return combined(_invert, self)

    def __and__(self, other: Any) -> Any:
        return conjunction(self.run, (self, other)) if _is_truth(other) else combined(operator.and_, self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        return disjunction(self.run, (self, other)) if _is_truth(other) else combined(operator.or_, self, other)

    __ror__ = __or__

    def __eq__(self, other: Any) -> Any:
        known = other._value if isinstance(other, Deferred) else other
        if self._value is not UNDECIDED and known is not UNDECIDED:
            return self._value == known
        return combined(operator.eq, self, other)

    def __ne__(self, other: Any) -> Any:
        return combined(operator.ne, self, other)


class Function(Deferred):
    """A function of other numbers, decided or not. function(get) asks get(i) for part i: only those are decided."""

    __slots__ = ("function", "parts")

    def __init__(self, run: Run, parts: Sequence[Any], function: Callable[[Get], Any]) -> None:
        super().__init__(run)
        self.parts = parts
        self.function = function

    def _decide(self) -> Any:
        leaf = self.only_leaf()
        if leaf is not None and not leaf.is_binary:
            value = decided_by_groups(self.value_given, leaf, nothing=UNDECIDED)
            if value is not UNDECIDED:
                return value
        return self.function(lambda index: resolved(self.parts[index]))

    def only_leaf(self) -> Leaf | None:
        """The leaf that this depends on, where it is a single one."""
        found: Leaf | None = None
        for leaf in self.leaves():
            if found is not None and leaf is not found:
                return None
            found = leaf
        return found

    def leaves(self) -> Iterator[Leaf]:
        if not self.is_decided:
            for part in self.parts:
                if isinstance(part, Deferred):
                    yield from part.leaves()

    def value_given(self, values: dict[int, Any]) -> Any:
        if self.is_decided:
            return self._value

        def get(index: int) -> Any:
            part = self.parts[index]
            return part.value_given(values) if isinstance(part, Deferred) else part

        return self.function(get)


class Combined(Function):
    """operation(*parts)."""

    __slots__ = ("operation",)

    def __init__(self, run: Run, parts: Sequence[Any], operation: Callable[..., Any]) -> None:
        self.run = run
        self._value = UNDECIDED
        self.parts = parts
        self.operation = operation

    def function(self, get: Get) -> Any:
        return self.operation(*map(get, range(len(self.parts))))

    def value_given(self, values: dict[int, Any]) -> Any:
        if self.is_decided:
            return self._value
        return self.operation(
            *[part.value_given(values) if isinstance(part, Deferred) else part for part in self.parts]
        )


def plain(value: Any) -> Any:
    """A numpy scalar as a Python number."""
    return value.item() if isinstance(value, np.generic) else value


def opened(value: Any) -> Any:
    """The value itself; what was deferred and is decided by now as an ordinary number."""
    return value._value if isinstance(value, Deferred) and value._value is not UNDECIDED else value


def resolved(value: Any) -> Any:
    """The value itself, decided if it was deferred."""
    return value.resolve() if isinstance(value, Deferred) else value


def combined(function: Callable[..., Any], *parts: Any) -> Any:
    """function(*parts) with the parts decided only when the result is looked at; at once where one is an array."""
    first_open: Deferred | None = None
    for part in parts:
        if isinstance(part, Deferred):
            if first_open is None and not part.is_decided:
                first_open = part
        elif _is_array(part):
            first_open = None
            break
    if first_open is None:
        # Also what makes a decided number that outlived its run, in a program's cache, an ordinary number.
        return function(*(resolved(part) for part in parts))
    return Combined(first_open.run, parts, function)


def conjunction(run: Run, parts: Sequence[Any]) -> Any:
    """Whether all parts are true; decides them in order, up to the first that is not."""
    if not any(isinstance(part, Deferred) for part in parts):
        return all(parts)
    return Function(run, parts, lambda get: all(get(index) for index in range(len(parts))))


def disjunction(run: Run, parts: Sequence[Any]) -> Any:
    """Whether any part is true; decides them in order, up to the first that is."""
    if not any(isinstance(part, Deferred) for part in parts):
        return any(parts)
    return Function(run, parts, lambda get: any(get(index) for index in range(len(parts))))


def _is_array(value: Any) -> bool:
    if type(value) in (int, float, bool):
        return False
    return hasattr(value, "__array_function__") or hasattr(value, "__torch_function__")


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool | np.bool_ | Deferred)


def _invert(value: Any) -> Any:
    return not value if isinstance(value, bool | np.bool_) else ~value
