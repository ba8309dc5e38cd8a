"""Functions of undecided numbers that decide no more of them than they need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specverify.exact.deferred import Deferred, Function, Get
from specverify.exact.run import Run


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


def shown(value: Any) -> Any:
    """A scalar as the program gets it: open, or decided where the program insists on ordinary numbers."""
    return value.resolve() if isinstance(value, Deferred) and not value.run.defers_items else value
