"""One symbolic random number, as a light Python object: what random() of numpy or Python returns.

It is not a float: C code reads a float subclass silently, whereas this raises when its value is asked for. The algebra
is that of algebra.py, with math in place of arrays for speed; rare forms go through a block of one entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from specverify.exact import algebra, conditions, transforms
from specverify.exact.comparisons import UNIFORM, comparison
from specverify.exact.deferred import Deferred
from specverify.exact.events import Condition
from specverify.exact.run import Run
from specverify.exact.scalar_form import ScalarForm
from specverify.exact.symbols import LOG_E, POWER_E, POWER_U, Symbols


def _refusal(operation: str) -> Callable[..., Any]:
    def method(symbol: Symbol, *args: Any) -> NoReturn:
        symbol._refuse(operation)

    return method


class Symbol(ScalarForm):
    """f(U) for one uniform variable U; see symbols.py for the forms."""

    __slots__ = ()
    shape = ()

    def _shift(self, other: Any, sign: float) -> Any:
        number = other if type(other) is float else _number(other)
        if number is None:
            return self._with_other(other, lambda x, y: algebra.add(x, y if sign > 0 else algebra.negative(y)))
        total = self.a + sign * number
        return self._with(total, self.b) if math.isfinite(total) else total

    def _scale(self, other: Any) -> Any:
        number = _number(other)
        if number is None:
            return self._with_other(other, algebra.multiply)
        if number == 0.0 or not math.isfinite(number):
            return from_block(algebra.scale(self.block(), number))
        return self._with(self.a * number, self.b * number)

    def _with_other(self, other: Any, function: Callable[[Symbols, Symbols], Symbols]) -> Any:
        if isinstance(other, Symbol):
            return from_block(function(self.block(), other.block()))
        return NotImplemented

    def __add__(self, other: Any) -> Any:
        return self._shift(other, 1.0)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if type(other) is float:
            a = self.a - other
            if a - a == 0.0:  # finite; the rest is _with, for programs that subtract in a loop
                symbol = Symbol()
                symbol.run = self.run
                symbol.variable = self.variable
                symbol.a = a
                symbol.b = self.b
                symbol.core = self.core
                return symbol
        return self._shift(other, -1.0)

    def __rsub__(self, other: Any) -> Any:
        return (-self)._shift(other, 1.0)

    def __mul__(self, other: Any) -> Any:
        return self._scale(other)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self._with(-self.a, -self.b)

    def __pos__(self) -> Symbol:
        return self

    def __truediv__(self, other: Any) -> Any:
        number = _number(other)
        if number is None:
            return self._with_other(other, lambda x, y: algebra.multiply(x, transforms.power(y, -1.0)))
        if number == 0.0 or not math.isfinite(number):
            with np.errstate(divide="ignore"):
                return from_block(algebra.scale(self.block(), 1.0 / np.float64(number)))
        return self._with(self.a / number, self.b / number)

    def __rtruediv__(self, other: Any) -> Any:
        number = _number(other)
        if number is None:
            return NotImplemented
        if self.a == 0.0 and self.kind <= POWER_E and number != 0.0 and math.isfinite(number):
            b = 1.0 / self.b * number
            return new_symbol(self.run, self.variable, self.kind, mirror=self.mirror, b=b, c=-self.c)
        return self**-1.0 * number

    def __pow__(self, other: Any) -> Any:
        number = _number(other)
        if number is None:
            return NotImplemented
        if number == -1.0 and self.a == 0.0 and self.kind <= POWER_E:
            return new_symbol(self.run, self.variable, self.kind, mirror=self.mirror, b=1.0 / self.b, c=-self.c)
        return from_block(transforms.power(self.block(), number))

    def __rpow__(self, other: Any) -> Any:
        number = _number(other)
        if number is None or number <= 0.0:
            return NotImplemented
        return (self * math.log(number)).exp()

    def log(self) -> Any:
        """Natural logarithm; np.log and math.log are led here."""
        if self.a == 0.0 and self.b > 0.0 and self.kind <= POWER_E:
            if self.kind == POWER_U:
                return new_symbol(self.run, self.variable, POWER_E, mirror=self.mirror, a=math.log(self.b), b=-self.c)
            return new_symbol(self.run, self.variable, LOG_E, mirror=self.mirror, a=math.log(self.b), b=self.c)
        return from_block(transforms.log(self.block()))

    def exp(self) -> Any:
        return from_block(transforms.exp(self.block()))

    def sqrt(self) -> Any:
        return self**0.5

    def compare(self, operation: str, other: Any) -> Any:
        """A Condition or a plain truth value; operation is numpy's name, such as "less"."""
        number = other if type(other) is float else _number(other)
        if number is None:
            if not isinstance(other, Symbol):
                return NotImplemented
            difference = self - other
            if not isinstance(difference, Symbol):
                return bool(getattr(np, operation)(difference, 0.0))
            return difference.compare(operation, 0.0)
        if operation not in conditions.IS_LESS:
            return operation == "not_equal"
        if number != number:
            return False
        if self.core is UNIFORM:
            threshold, increasing = (number - self.a) / self.b, self.b > 0.0
        else:
            threshold, increasing = conditions.threshold(self, number)
        condition = Condition(self.run, self.variable, threshold, increasing == conditions.IS_LESS[operation])
        return condition if self.run.defers_items else condition.resolve()

    __lt__ = comparison("less")
    __le__ = comparison("less_equal")
    __gt__ = comparison("greater")
    __ge__ = comparison("greater_equal")
    __eq__ = comparison("equal")
    __ne__ = comparison("not_equal")
    __hash__ = None  # type: ignore[assignment]

    def _refuse(self, operation: str) -> NoReturn:
        raise self.run.refuse("the program looks at the value of a random number", operation)

    __float__ = _refusal("float()")
    __bool__ = _refusal("bool()")
    __round__ = _refusal("round()")
    __index__ = _refusal("use as an index")
    __str__ = _refusal("str()")
    __format__ = _refusal("format()")

    def __int__(self) -> int:
        """Whole part: a step function of the uniform where the range is small."""
        if float(algebra.value_bounds(self.block())[0]) < 0.0:
            self._refuse("int()")
        return int(self.__floor__())

    def __floor__(self) -> Any:
        from specverify.exact.selections import whole_part

        return whole_part(self.block())

    def __abs__(self) -> Any:
        low, high = algebra.value_bounds(self.block())
        if low >= 0.0:
            return self
        if high <= 0.0:
            return -self
        self._refuse("abs()")

    def __repr__(self) -> str:
        return f"<random number, function of uniform {self.variable}>"

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from specverify.exact.numpy_functions import apply_function

        return apply_function(self.run, function, args, kwargs)


def new_symbol(
    run: Run, variable: int, kind: int = POWER_U, *, mirror: bool = False, a: float = 0.0, b: float = 1.0,
    c: float = 1.0, parent: int = 0,
) -> Symbol:  # fmt: skip
    """A symbol of this form."""
    symbol = Symbol()
    symbol.run = run
    symbol.variable = variable
    symbol.a = a
    symbol.b = b
    core = (kind, mirror, c, parent)
    symbol.core = UNIFORM if core == UNIFORM else core
    return symbol


def from_block(block: Symbols) -> Any:
    """The scalar of a block of one entry: a Symbol, or a float where it is constant."""
    variable = int(block.variable.reshape(()))
    a = float(block.a.reshape(()))
    if variable < 0:
        return a
    return new_symbol(
        block.run, variable, int(block.kind.reshape(())), mirror=bool(block.mirror.reshape(())), a=a,
        b=float(block.b.reshape(())), c=float(block.c.reshape(())), parent=int(block.parent.reshape(())),
    )  # fmt: skip


def _number(value: Any) -> float | None:
    """The value as a float where it is a plain number; a Deferred is decided; None for anything else."""
    if type(value) is float:
        return value
    if isinstance(value, int | float | np.generic):
        return float(value)
    if isinstance(value, Deferred):
        return float(value.resolve())
    if isinstance(value, np.ndarray) and value.shape == () and value.dtype != object:
        return float(value)
    return None
