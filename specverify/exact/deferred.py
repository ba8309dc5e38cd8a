"""Integers and truth values that are not decided yet.

An argmax, an inverse CDF or a comparison gives a Deferred. If it reaches the program's output uninspected, its law is
added in one go; anything that looks at it decides it, which forks the path. Looking is everything a number can be
asked: int(), bool(), use as an index, hash(), str(). Arithmetic and comparisons give further Deferreds.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.exact.run import Run

Number = int | float | bool
Get = Callable[[int], Any]
_UNDECIDED: Any = object()


class Deferred:
    """A number that will be decided when somebody looks at it. Base of the leaves and of functions of them."""

    __slots__ = ("_value", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        self._value: Any = _UNDECIDED

    def resolve(self) -> Any:
        """The value on this path, decided now if it was not before."""
        if self._value is _UNDECIDED:
            self.run.require_current("use of a random number")
            self._value = self._decide()
        return self._value

    @property
    def is_decided(self) -> bool:
        return self._value is not _UNDECIDED

    def _decide(self) -> Any:
        raise NotImplementedError

    def leaves(self) -> Iterator[Leaf]:
        """The undecided leaves that this depends on; a leaf may come more than once."""
        raise NotImplementedError

    def value_given(self, values: dict[int, Any]) -> Any:
        """The value where each leaf (by id) takes the given value."""
        raise NotImplementedError

    # Looking --------------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self.resolve())

    def __int__(self) -> int:
        if self._value is _UNDECIDED and self.run.int_calls is not None:
            self.run.int_calls.append(sys._getframe(1))
        return int(self.resolve())

    def __index__(self) -> int:
        return operator.index(int(self.resolve()))

    def __float__(self) -> float:
        return float(self.resolve())

    def __hash__(self) -> int:
        return hash(self.resolve())

    def __str__(self) -> str:
        return str(self.resolve())

    def __format__(self, form: str) -> str:
        return format(self.resolve(), form)

    def __repr__(self) -> str:
        return repr(self._value) if self.is_decided else f"<undecided {type(self).__name__}>"

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from specverify.exact.numpy_ufuncs import apply_ufunc

        return apply_ufunc(self.run, ufunc, method, inputs, kwargs)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Makes torch's argument parsers accept it; the function mode in torch_calls.py turns it into a tensor."""
        return NotImplemented

    def item(self) -> Deferred:
        """As of numpy and torch scalars: the number itself, still undecided."""
        return self

    def tolist(self) -> Deferred:
        """As item()."""
        return self

    # Arithmetic -----------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        return combined(operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return combined(operator.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return combined(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return combined(operator.sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return combined(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return combined(operator.mul, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return combined(operator.floordiv, self, other)

    def __mod__(self, other: Any) -> Any:
        return combined(operator.mod, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return combined(operator.floordiv, other, self)

    def __rmod__(self, other: Any) -> Any:
        return combined(operator.mod, other, self)

    def __truediv__(self, other: Any) -> Any:
        return combined(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return combined(operator.truediv, other, self)

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
        if self.is_decided and not isinstance(other, Deferred):
            return self._value == other
        return combined(operator.eq, self, other)

    def __ne__(self, other: Any) -> Any:
        return combined(operator.ne, self, other)

    def __lt__(self, other: Any) -> Any:
        return combined(operator.lt, self, other)

    def __le__(self, other: Any) -> Any:
        return combined(operator.le, self, other)

    def __gt__(self, other: Any) -> Any:
        return combined(operator.gt, self, other)

    def __ge__(self, other: Any) -> Any:
        return combined(operator.ge, self, other)


class Leaf(Deferred):
    """A deferred draw with a law of its own.

    Part of it may be known: where a program asks only whether a token is the end token, the path forks in two, and
    the leaf goes on with the outcomes that are left.
    """

    __slots__ = ("_allowed", "operation")
    # A draw with two outcomes gains nothing from being asked only about a function of it.
    is_binary = False

    def __init__(self, run: Run, operation: str) -> None:
        super().__init__(run)
        self.operation = operation
        self._allowed: NDArray[np.bool_] | None = None

    @property
    def variables(self) -> NDArray[np.int64]:
        """The uniform variables it depends on."""
        raise NotImplementedError

    def outcomes(self) -> tuple[Any, Any]:
        """(values, weights) given what is known of its variables."""
        raise NotImplementedError

    def settle(self, index: int) -> None:
        """Records what outcome number index says about its variables."""

    def law(self) -> tuple[Any, Any]:
        """(values, weights), given all that is known; at the end of a run, or just before deciding."""
        values, weights = self.outcomes()
        if self._allowed is None:
            return values, weights
        kept = np.where(self._allowed, weights, 0.0)
        return values, kept / kept.sum()

    def restrict(self, allowed: NDArray[np.bool_]) -> None:
        """Rules outcomes out. Whoever asks about one of its variables from now on decides the leaf first."""
        self._allowed = allowed if self._allowed is None else self._allowed & allowed
        for variable in self.variables.tolist():
            self.run.hold(variable, self)

    def _decide(self) -> Any:
        values, weights = self.law()
        # Where the value is settled already there is nothing to choose.
        support = np.flatnonzero(weights)
        index = int(support[0]) if len(support) == 1 else self.run.choose(weights, self.operation)
        if self._allowed is not None:
            for variable in self.variables.tolist():
                self.run.release(variable)
        self.settle(index)
        value = values[index]
        return value.item() if isinstance(value, np.generic) else value

    def leaves(self) -> Iterator[Leaf]:
        if not self.is_decided:
            yield self

    def value_given(self, values: dict[int, Any]) -> Any:
        return self._value if self.is_decided else values[id(self)]


class Function(Deferred):
    """A function of other numbers, decided or not. function(get) asks get(i) for part i: only those are decided."""

    __slots__ = ("function", "parts")

    def __init__(self, run: Run, parts: Sequence[Any], function: Callable[[Get], Any]) -> None:
        super().__init__(run)
        self.parts = parts
        self.function = function

    def _decide(self) -> Any:
        leaf = self._only_leaf()
        if leaf is not None and not leaf.is_binary and self._decide_by_groups(leaf):
            return self._value
        return self.function(lambda index: resolved(self.parts[index]))

    def _only_leaf(self) -> Leaf | None:
        """The leaf that this depends on, where it is a single one."""
        found: Leaf | None = None
        for leaf in self.leaves():
            if found is not None and leaf is not found:
                return None
            found = leaf
        return found

    def _decide_by_groups(self, leaf: Leaf) -> bool:
        """Forks on the values of the function, not on all outcomes of the one leaf that it depends on."""
        outcomes, weights = leaf.law()
        support = np.flatnonzero(weights).tolist()
        groups: dict[Any, list[int]] = {}
        try:
            for index in support:
                groups.setdefault(self.value_given({id(leaf): plain(outcomes[index])}), []).append(index)
        except Exception:  # a value for which the program's own arithmetic fails, or one that has no hash
            return False
        if len(groups) == len(support) > 1:
            return False
        values = list(groups)
        if len(values) == 1:
            self._value = values[0]
            return True
        shares = [float(np.sum([weights[index] for index in groups[value]])) for value in values]
        total = sum(shares)
        self._value = values[self.run.choose([share / total for share in shares], leaf.operation)]
        allowed = np.zeros(len(weights), dtype=np.bool_)
        allowed[groups[self._value]] = True
        leaf.restrict(allowed)
        return True

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


def plain(value: Any) -> Any:
    """A numpy scalar as a Python number."""
    return value.item() if isinstance(value, np.generic) else value


def shown(value: Any) -> Any:
    """A scalar as the program gets it: open, or decided where the program insists on ordinary numbers."""
    return value.resolve() if isinstance(value, Deferred) and not value.run.defers_items else value


def resolved(value: Any) -> Any:
    """The value itself, decided if it was deferred."""
    return value.resolve() if isinstance(value, Deferred) else value


def combined(function: Callable[..., Any], *parts: Any) -> Any:
    """function(*parts) with the parts decided only when the result is looked at; at once where one is an array."""
    if any(_is_array(part) for part in parts):
        return function(*(resolved(part) for part in parts))
    open_parts = [part for part in parts if isinstance(part, Deferred) and not part.is_decided]
    if not open_parts:
        # Also what makes a decided number that outlived its run, in a program's cache, an ordinary number.
        return function(*(resolved(part) for part in parts))
    run = open_parts[0].run
    return Function(run, parts, lambda get: function(*(get(index) for index in range(len(parts)))))


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


def product(run: Run, parts: Sequence[Any]) -> Any:
    """Product of the parts; decides them in order, up to the first zero."""

    def function(get: Get) -> Any:
        value: Any = 1
        for index in range(len(parts)):
            factor = get(index)
            if factor == 0:
                return 0
            value = value * factor
        return value

    return Function(run, parts, function)


def total(run: Run, parts: Sequence[Any]) -> Any:
    """Sum of the parts."""
    return Function(run, parts, lambda get: sum(get(index) for index in range(len(parts))))


def selected(run: Run, condition: Any, first: Any, second: Any) -> Any:
    """first where the condition is true, else second; decides only the one that is taken."""
    if not isinstance(condition, Deferred):
        return first if condition else second
    return Function(run, (condition, first, second), lambda get: get(1) if get(0) else get(2))


def _is_array(value: Any) -> bool:
    return not isinstance(value, Deferred) and (
        hasattr(value, "__array_function__") or hasattr(value, "__torch_function__")
    )


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool | np.bool_ | Deferred)


def _invert(value: Any) -> Any:
    return not value if isinstance(value, bool | np.bool_) else ~value


def first_extreme(run: Run, parts: Sequence[Any], largest: bool) -> Any:
    """argmax (largest) or argmin of a row; for truth values it decides in order, up to the first extreme one."""

    def function(get: Get) -> int:
        best, best_index = None, 0
        for index in range(len(parts)):
            value = get(index)
            if best is None or (value > best if largest else value < best):
                best, best_index = value, index
            if isinstance(value, bool) and value is largest:
                break
        return best_index

    return Function(run, parts, function)
