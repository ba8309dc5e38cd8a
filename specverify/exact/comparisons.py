"""Comparisons of one symbol with a number, as programs make them in loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specverify.exact.conditions import IS_LESS
from specverify.exact.deferred import UNDECIDED
from specverify.exact.events import Condition
from specverify.exact.symbols import POWER_U

Core = tuple[int, bool, float, int]
UNIFORM: Core = (POWER_U, False, 1.0, 0)
"""(kind, mirror, c, parent) of U itself; a symbol of U has this very tuple."""


class Comparison(Condition):
    """A condition whose slots are set by whoever makes it, which takes half of the time."""

    __slots__ = ()
    operation = "comparison"
    __init__ = object.__init__


def comparison(operation: str) -> Callable[[Any, Any], Any]:
    """The method of Symbol for an operator. operation: numpy's name, such as "less"."""
    is_less = IS_LESS.get(operation)

    def method(symbol: Any, other: Any) -> Any:
        if type(other) is not float or other != other or symbol.core is not UNIFORM or is_less is None:
            return symbol.compare(operation, other)
        # The hot path of programs that compare in a loop, a million times: what is affine in a uniform, with a float.
        b = symbol.b
        condition = Comparison()
        condition.run = run = symbol.run
        condition.variable = symbol.variable
        condition.threshold = (other - symbol.a) / b
        condition.below = (b > 0.0) is is_less
        condition._value = UNDECIDED
        return condition if run.defers_items else condition.resolve()

    return method
