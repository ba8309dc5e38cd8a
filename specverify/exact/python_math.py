"""Python's math functions on random numbers, which they would otherwise read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from specverify.exact.scalar import Symbol

_MATH: dict[str, Callable[[Any], Any]] = {
    "log": lambda x: x.log(),
    "log2": lambda x: x.log() / math.log(2.0),
    "log10": lambda x: x.log() / math.log(10.0),
    "log1p": lambda x: (x + 1.0).log(),
    "exp": lambda x: x.exp(),
    "expm1": lambda x: x.exp() - 1.0,
    "sqrt": lambda x: x.sqrt(),
    "fabs": abs,
}


def math_replacements() -> dict[tuple[Any, str], Callable[..., Any]]:
    """What stands in for the functions of math while a law is enumerated; ordinary numbers go to the real ones."""
    return {(math, name): _math_function(name, function) for name, function in _MATH.items()}


def _math_function(name: str, symbolic: Callable[[Any], Any]) -> Callable[..., Any]:
    real = getattr(math, name)

    def function(x: Any, *rest: Any) -> Any:
        if not isinstance(x, Symbol):
            return real(x, *rest)
        value = symbolic(x)
        return value / math.log(*rest) if rest and name == "log" else value

    function.__name__ = name
    return function
