"""Elementwise functions of random values, each for one Symbol and for a block of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from specverify.exact import algebra, transforms
from specverify.exact.scalar import Symbol
from specverify.exact.symbols import Symbols

_QUIET: dict[str, Any] = {"divide": "ignore", "invalid": "ignore", "over": "ignore", "under": "ignore"}


def _times(first: Any, second: Any) -> Any:
    # A finite symbol times 0 is 0, without the detour that Symbol takes to find that out.
    if (not isinstance(first, Symbol) and first == 0.0) or (not isinstance(second, Symbol) and second == 0.0):
        return 0.0
    return first * second


def _over(first: Any, second: Any) -> Any:
    if isinstance(second, Symbol):
        return 0.0 if not isinstance(first, Symbol) and first == 0.0 else first / second
    return first / second if second != 0.0 else first * math.inf


def _quotient(first: Symbols, second: Symbols) -> Symbols:
    if (second.variable < 0).all():
        with np.errstate(**_QUIET):
            return algebra.scale(first, 1.0 / second.a)
    return algebra.multiply(first, transforms.power(second, -1.0))


def _power(first: Symbols, second: Symbols) -> Symbols:
    if (second.variable < 0).all():
        return transforms.power(first, second.a)
    if not (first.variable < 0).all():
        raise first.run.refuse("a random value raised to a random power has no closed form", "pow")
    with np.errstate(**_QUIET):
        return transforms.exp(algebra.scale(second, np.log(first.a)))


OneOfTwo = Callable[[Any, Any], Any]
OneOfOne = Callable[[Any], Any]

BINARY: dict[str, tuple[OneOfTwo, Callable[[Symbols, Symbols], Symbols]]] = {
    "add": (lambda first, second: first + second, algebra.add),
    "sub": (lambda first, second: first - second, algebra.subtract),
    "rsub": (lambda first, second: second - first, lambda first, second: algebra.subtract(second, first)),
    "mul": (_times, algebra.multiply),
    "multiply": (_times, algebra.multiply),
    "div": (_over, _quotient),
    "divide": (_over, _quotient),
    "true_divide": (_over, _quotient),
    "pow": (lambda first, second: first**second, _power),
}
"""Operation -> (for two numbers of which one is a Symbol, for two blocks)."""

UNARY: dict[str, tuple[OneOfOne | None, Callable[[Symbols], Symbols]]] = {
    "neg": (lambda symbol: -symbol, algebra.negative),
    "log": (lambda symbol: symbol.log(), transforms.log),
    "exp": (lambda symbol: symbol.exp(), transforms.exp),
    "abs": (None, transforms.absolute),
    "log2": (None, lambda block: algebra.scale(transforms.log(block), 1.0 / math.log(2.0))),
    "log10": (None, lambda block: algebra.scale(transforms.log(block), 1.0 / math.log(10.0))),
    "log1p": (None, lambda block: transforms.log(algebra.shift(block, 1.0))),
    "expm1": (None, lambda block: algebra.shift(transforms.exp(block), -1.0)),
    "exp2": (None, lambda block: transforms.exp(algebra.scale(block, math.log(2.0)))),
    "reciprocal": (lambda symbol: symbol**-1.0, lambda block: transforms.power(block, -1.0)),
    "sqrt": (None, lambda block: transforms.power(block, 0.5)),
    "rsqrt": (None, lambda block: transforms.power(block, -0.5)),
    "square": (None, lambda block: transforms.power(block, 2.0)),
}
"""Operation -> (for one Symbol, or None where only blocks know it; for a block)."""
