"""One symbolic random number, as a light Python object: what random() of numpy or Python returns.

It is not a float: C code reads a float subclass silently, whereas this raises when its value is asked for. The algebra
is that of algebra.py, with math in place of arrays for speed; rare forms go through a block of one entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy import array

from specverify.exact import algebra, conditions
from specverify.exact.deferred import Deferred, shown
from specverify.exact.leaves import Condition
from specverify.exact.run import Run
from specverify.exact.symbols import CONSTANT, LOG_E, POWER_E, POWER_U, Form, Symbols

_MIRRORED_COMPARISON = {
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
    "equal": "equal",
    "not_equal": "not_equal",
}


class Symbol:
    """f(U) for one uniform variable U; see symbols.py for the forms."""

    __slots__ = ("a", "b", "c", "kind", "mirror", "parent", "run", "variable")

    def __init__(
        self, run: Run, variable: int, kind: int = POWER_U, *, mirror: bool = False, a: float = 0.0, b: float = 1.0,
        c: float = 1.0, parent: int = 0,
    ) -> None:  # fmt: skip
        self.run = run
        self.variable = variable
        self.kind = kind
        self.mirror = mirror
        self.a = a
        self.b = b
        self.c = c
        self.parent = parent

    def block(self) -> Symbols:
        """The same symbol as a block of shape ()."""
        return Symbols(
            self.run,
            array(self.variable, dtype=np.int64),
            array(self.kind, dtype=np.uint8),
            array(self.mirror),
            array(self.a),
            array(self.b),
            array(self.c),
            array(self.parent, dtype=np.int64),
            form=[Form(self.kind, self.mirror, self.c, self.a == 0.0 and self.b > 0.0)],
        )

    # Arithmetic -----------------------------------------------------------------------------------------------

    def _with(self, a: float, b: float) -> Symbol:
        return Symbol(self.run, self.variable, self.kind, mirror=self.mirror, a=a, b=b, c=self.c, parent=self.parent)

    def _shift(self, other: Any, sign: float) -> Any:
        number = _number(other)
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
        return self._shift(other, -1.0)

    def __rsub__(self, other: Any) -> Any:
        return (-self)._shift(other, 1.0)

    def __mul__(self, other: Any) -> Any:
        return self._scale(other)

    __rmul__ = __mul__

    def __neg__(self) -> Symbol:
        return self._with(-self.a, -self.b)

    def __pos__(self) -> Symbol:
        return self

    def __truediv__(self, other: Any) -> Any:
        number = _number(other)
        if number is None:
            return self._with_other(other, lambda x, y: algebra.multiply(x, algebra.power(y, -1.0)))
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
            return Symbol(self.run, self.variable, self.kind, mirror=self.mirror, b=b, c=-self.c)
        return self**-1.0 * number

    def __pow__(self, other: Any) -> Any:
        number = _number(other)
        if number is None:
            return NotImplemented
        if number == -1.0 and self.a == 0.0 and self.kind <= POWER_E:
            return Symbol(self.run, self.variable, self.kind, mirror=self.mirror, b=1.0 / self.b, c=-self.c)
        return from_block(algebra.power(self.block(), number))

    def __rpow__(self, other: Any) -> Any:
        number = _number(other)
        if number is None or number <= 0.0:
            return NotImplemented
        return (self * math.log(number)).exp()

    def log(self) -> Any:
        """Natural logarithm; numpy calls this for object arrays, np.log and math.log are led here."""
        if self.a == 0.0 and self.b > 0.0 and self.kind <= POWER_E:
            if self.kind == POWER_U:
                return Symbol(self.run, self.variable, POWER_E, mirror=self.mirror, a=math.log(self.b), b=-self.c)
            return Symbol(self.run, self.variable, LOG_E, mirror=self.mirror, a=math.log(self.b), b=self.c)
        return from_block(algebra.log(self.block()))

    def exp(self) -> Any:
        """Exponential function."""
        return from_block(algebra.exp(self.block()))

    def sqrt(self) -> Any:
        """Square root."""
        return self**0.5

    # Comparisons ----------------------------------------------------------------------------------------------

    def compare(self, operation: str, other: Any) -> Any:
        """A Condition or a plain truth value; operation is numpy's name, such as "less"."""
        number = _number(other)
        if number is None:
            if not isinstance(other, Symbol):
                return NotImplemented
            difference = self - other
            if not isinstance(difference, Symbol):
                return bool(getattr(np, operation)(difference, 0.0))
            return difference.compare(operation, 0.0)
        if operation in ("equal", "not_equal"):
            return operation == "not_equal"
        if number != number:
            return False
        if self.kind == POWER_U and self.c == 1.0 and not self.mirror:
            threshold, increasing = (number - self.a) / self.b, self.b > 0.0
        else:
            threshold, increasing = self._threshold(number)
        return shown(Condition(self.run, self.variable, threshold, increasing == operation.startswith("less")))

    def _threshold(self, number: float) -> tuple[float, bool]:
        """(u, increasing): the symbol is below the number exactly where U < u (increasing) or U > u."""
        core = (number - self.a) / self.b
        if self.kind == POWER_E and abs(self.c) == 1.0:
            exponential = max(core, 0.0)
            if self.c < 0.0:
                exponential = 1.0 / exponential if exponential > 0.0 else math.inf
            grows = (self.b > 0.0) == (self.c > 0.0)
        elif self.kind == LOG_E and core < 700.0:
            exponential, grows = math.exp(core), self.b > 0.0
        else:
            thresholds, directions = conditions.thresholds(self.block(), array(number))
            return float(thresholds), bool(directions)
        # Z = exp(-E) falls as E rises, and U = 1 - Z where the symbol is mirrored.
        u = -math.expm1(-exponential) if self.mirror else math.exp(-exponential)
        return u, grows == self.mirror

    def __lt__(self, other: Any) -> Any:
        return self.compare("less", other)

    def __le__(self, other: Any) -> Any:
        return self.compare("less_equal", other)

    def __gt__(self, other: Any) -> Any:
        return self.compare("greater", other)

    def __ge__(self, other: Any) -> Any:
        return self.compare("greater_equal", other)

    def __eq__(self, other: Any) -> Any:
        return self.compare("equal", other)

    def __ne__(self, other: Any) -> Any:
        return self.compare("not_equal", other)

    __hash__ = None  # type: ignore[assignment]

    # Looking at the value -------------------------------------------------------------------------------------

    def _refuse(self, operation: str) -> NoReturn:
        raise self.run.refuse("the program looks at the value of a random number", operation)

    def __float__(self) -> float:
        self._refuse("float()")

    def __bool__(self) -> bool:
        self._refuse("bool()")

    def __int__(self) -> int:
        """Whole part: a step function of the uniform where the range is small."""
        if float(algebra.value_bounds(self.block())[0]) < 0.0:
            self._refuse("int()")
        return floor(self).resolve()  # type: ignore[no-any-return]

    def __floor__(self) -> Any:
        return floor(self)

    def __abs__(self) -> Any:
        low, high = algebra.value_bounds(self.block())
        if low >= 0.0:
            return self
        if high <= 0.0:
            return -self
        self._refuse("abs()")

    def __round__(self, digits: int | None = None) -> Any:
        self._refuse("round()")

    def __index__(self) -> int:
        self._refuse("use as an index")

    def __str__(self) -> str:
        self._refuse("str()")

    def __format__(self, form: str) -> str:
        self._refuse("format()")

    def __repr__(self) -> str:
        return f"<random number, function of uniform {self.variable}>"

    def item(self) -> Symbol:
        """As of numpy scalars: itself."""
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from specverify.exact.numpy_ufuncs import apply_ufunc

        return apply_ufunc(self.run, ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from specverify.exact.numpy_functions import apply_function

        return apply_function(self.run, function, args, kwargs)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Makes torch's argument parsers accept it; the function mode in torch_calls.py turns it into a tensor."""
        return NotImplemented


def from_block(block: Symbols) -> Any:
    """The scalar of a block of one entry: a Symbol, or a float where it is constant."""
    variable = int(block.variable.reshape(()))
    a = float(block.a.reshape(()))
    if variable < 0:
        return a
    return Symbol(
        block.run, variable, int(block.kind.reshape(())), mirror=bool(block.mirror.reshape(())), a=a,
        b=float(block.b.reshape(())), c=float(block.c.reshape(())), parent=int(block.parent.reshape(())),
    )  # fmt: skip


def block_of_items(run: Run, items: Sequence[Any], shape: tuple[int, ...]) -> Symbols:
    """Symbols and numbers, in order, as a block of that shape."""
    symbols = [item for item in items if type(item) is Symbol]
    form = None
    if symbols:
        kind, mirror, c = symbols[0].kind, symbols[0].mirror, symbols[0].c
        if all(symbol.kind == kind and symbol.mirror == mirror and symbol.c == c for symbol in symbols):
            is_pure = all(symbol.a == 0.0 and symbol.b > 0.0 for symbol in symbols)
            form = Form(kind, mirror, c, is_pure, len(symbols) == len(items))
    constant = Symbol(run, CONSTANT, b=0.0)
    entries = [item if type(item) is Symbol else constant for item in items]
    return Symbols(
        run,
        array([entry.variable for entry in entries], dtype=np.int64).reshape(shape),
        array([entry.kind for entry in entries], dtype=np.uint8).reshape(shape),
        array([entry.mirror for entry in entries], dtype=np.bool_).reshape(shape),
        array([item.a if type(item) is Symbol else item for item in items], dtype=np.float64).reshape(shape),
        array([entry.b for entry in entries], dtype=np.float64).reshape(shape),
        array([entry.c for entry in entries], dtype=np.float64).reshape(shape),
        array([entry.parent for entry in entries], dtype=np.int64).reshape(shape),
        form=[form],
    )


def floor(symbol: Symbol) -> Any:
    """The whole part of a symbol of bounded range, as a Deferred."""
    from specverify.exact.selections import search

    low, high = (float(bound) for bound in algebra.value_bounds(symbol.block()))
    if not (math.isfinite(low) and math.isfinite(high) and high - low <= 1e6):
        symbol._refuse("int()")
    steps = np.arange(math.floor(low) + 1, math.ceil(high))
    return search(symbol.block(), steps, "int()") + math.floor(low)


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


def mirrored(operation: str) -> str:
    """The comparison with its sides exchanged."""
    return _MIRRORED_COMPARISON[operation]
