"""Elementwise functions of random values, each for one Symbol and for a block of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from specverify.exact import algebra
from specverify.exact.scalar import Symbol
from specverify.exact.symbols import Symbols, some, where

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
    if some((first.variable >= 0) & (second.variable >= 0)):
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
    if some(symbolic & (low < 0.0) & (high > 0.0)):
        raise block.run.refuse("the absolute value of a random value of either sign is not monotone", "abs")
    return algebra.scale(block, np.where(symbolic & (high <= 0.0), -1.0, 1.0))


OneOfTwo = Callable[[Any, Any], Any]
OneOfOne = Callable[[Any], Any]

BINARY: dict[str, tuple[OneOfTwo, Callable[[Symbols, Symbols], Symbols]]] = {
    "add": (lambda first, second: first + second, _sum),
    "sub": (lambda first, second: first - second, _difference),
    "rsub": (lambda first, second: second - first, lambda first, second: _difference(second, first)),
    "mul": (_times, _product),
    "multiply": (_times, _product),
    "div": (_over, _quotient),
    "divide": (_over, _quotient),
    "true_divide": (_over, _quotient),
    "pow": (lambda first, second: first**second, _power),
}
"""Operation -> (for two numbers of which one is a Symbol, for two blocks)."""

UNARY: dict[str, tuple[OneOfOne | None, Callable[[Symbols], Symbols]]] = {
    "neg": (lambda symbol: -symbol, algebra.negative),
    "log": (lambda symbol: symbol.log(), algebra.log),
    "exp": (lambda symbol: symbol.exp(), algebra.exp),
    "abs": (None, _absolute),
    "log2": (None, lambda block: algebra.scale(algebra.log(block), 1.0 / math.log(2.0))),
    "log10": (None, lambda block: algebra.scale(algebra.log(block), 1.0 / math.log(10.0))),
    "log1p": (None, lambda block: algebra.log(algebra.shift(block, 1.0))),
    "expm1": (None, lambda block: algebra.shift(algebra.exp(block), -1.0)),
    "exp2": (None, lambda block: algebra.exp(algebra.scale(block, math.log(2.0)))),
    "reciprocal": (lambda symbol: symbol**-1.0, lambda block: algebra.power(block, -1.0)),
    "sqrt": (None, lambda block: algebra.power(block, 0.5)),
    "rsqrt": (None, lambda block: algebra.power(block, -0.5)),
    "square": (None, lambda block: algebra.power(block, 2.0)),
}
"""Operation -> (for one Symbol, or None where only blocks know it; for a block)."""
