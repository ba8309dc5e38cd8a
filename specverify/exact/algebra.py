"""Arithmetic on blocks of symbols: what stays inside the family of monotone forms, and refusals for what does not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numpy import asarray

from specverify.exact.columns import Floats, every, least_of, some
from specverify.exact.symbols import CONSTANT, LOG_E, NEST_EXP, NEST_LOG, POWER_E, POWER_U, Symbols, common_shape

_QUIET: dict[str, Any] = {"divide": "ignore", "invalid": "ignore", "over": "ignore", "under": "ignore"}


Operation = TypeVar("Operation", bound=Callable[..., Any])


def through_rows(function: Operation) -> Operation:
    """Runs a function of blocks on rows of one entry where it is given single entries: numpy makes scalars of those."""

    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        for arg in args:
            if arg is not None and type(arg) is not float and (arg.ndim if type(arg) is Symbols else np.ndim(arg)):
                return function(*args)
        rows = [arg.reshaped((1,)) if isinstance(arg, Symbols) else arg for arg in args]
        result = function(*rows)
        if isinstance(result, tuple):
            return tuple(part.reshape(()) for part in result)
        return result.reshaped(())

    return cast(Operation, wrapper)


@through_rows
def shift(block: Symbols, number: Any) -> Symbols:
    """block + number. Infinite and NaN numbers make constants, as symbols are finite with probability 1."""
    numbers = asarray(number, dtype=np.float64)
    shape = common_shape(block, numbers)
    variable, kind, mirror, a, b, c, parent = block.broadcast(shape).columns
    form = block.form[0]
    if form is not None and numbers.size and least_of(numbers) > -np.inf:
        return Symbols(
            block.run, variable, kind, mirror, a + numbers, b, c, parent, form=[form._replace(is_pure=False)]
        )
    with np.errstate(**_QUIET):
        total = a + numbers
    variable = np.where(np.isfinite(numbers), variable, CONSTANT)
    if form is not None:
        form = form._replace(is_pure=False, is_full=False)
    return Symbols(block.run, variable, kind, mirror, total, b, c, parent, form=[form])


@through_rows
def scale(block: Symbols, number: Any) -> Symbols:
    """block * number. A factor 0 gives the constant 0; an infinite factor needs a symbol whose sign is known."""
    numbers = asarray(number, dtype=np.float64)
    shape = common_shape(block, numbers)
    wide = block.broadcast(shape)
    variable, kind, mirror, a, b, c, parent = wide.columns
    form = block.form[0]
    if form is not None:
        is_product = form.is_pure and form.is_full  # b Z^c or b E^c throughout: a is 0
        with np.errstate(**_QUIET):
            new_a, new_b = a if is_product else a * numbers, b * numbers
        least = least_of(new_b) if new_b.size else 1.0
        if least == least and (is_product or every(np.isfinite(new_a))):
            if least > 0.0:
                if not form.is_pure and form.is_full and not some(new_a):  # as of -log(u)
                    form = form._replace(is_pure=True)
            elif every(new_b):
                form = form._replace(is_pure=False)
            else:  # a factor 0, or a product that underflows, makes a constant
                variable = np.where(new_b == 0.0, CONSTANT, variable)
                is_pure = form.is_pure and not some(new_b < 0.0)
                form = form._replace(is_pure=is_pure, is_full=False)
            return Symbols(block.run, variable, kind, mirror, new_a, new_b, c, parent, form=[form])
    numbers = np.broadcast_to(numbers, shape)
    symbolic = variable >= 0
    with np.errstate(**_QUIET):
        new_a, new_b = a * numbers, b * numbers
    odd = symbolic & ~np.isfinite(numbers)
    if some(odd):
        low, high = value_bounds(wide)
        signs = np.where(low >= 0.0, 1.0, np.where(high <= 0.0, -1.0, np.nan))
        if some(odd & np.isnan(signs) & ~np.isnan(numbers)):
            raise block.run.refuse("a random value of unknown sign is multiplied by infinity", "multiply")
        with np.errstate(**_QUIET):
            new_a = np.where(odd, signs * numbers, new_a)
    if some(symbolic & ~odd & ~(np.isfinite(new_a) & np.isfinite(new_b))):
        raise block.run.refuse("a multiplication of a random value overflows", "multiply")
    # Where b underflows to 0 the value is the constant a to within the smallest float.
    variable = np.where(odd | (new_b == 0.0), CONSTANT, variable)
    return Symbols(block.run, variable, kind, mirror, new_a, new_b, c, parent)


def negative(block: Symbols) -> Symbols:
    """-block."""
    return scale(block, -1.0)


@through_rows
def add(first: Symbols, second: Symbols) -> Symbols:
    """Sum of two blocks: where both entries are symbols they must be alike functions of one variable."""
    if every(second.variable < 0):
        return shift(first, second.a)
    if every(first.variable < 0):
        return shift(second, first.a)
    shape = np.broadcast_shapes(first.shape, second.shape)
    first, second = first.broadcast(shape), second.broadcast(shape)
    both = (first.variable >= 0) & (second.variable >= 0)
    if some(both):
        alike = (
            (first.variable == second.variable) & (first.kind == second.kind) & (first.mirror == second.mirror)
            & (first.c == second.c) & (first.kind <= LOG_E)
        )  # fmt: skip
        if not every(alike | ~both):
            same = bool((first.variable == second.variable)[both].any())
            raise first.run.refuse(
                "a sum or comparison of two different functions of one random value" if same
                else "a sum or comparison of two random values has no closed form",
                "add",
            )  # fmt: skip
    lead = first.variable >= 0
    columns = [np.where(lead, x, y) for x, y in zip(first.columns, second.columns, strict=True)]
    b = np.where(both, first.b + second.b, columns[4])
    with np.errstate(**_QUIET):
        a = first.a + second.a
    odd = ~np.isfinite(a) | (both & (b == 0.0))
    variable = np.where(odd, CONSTANT, columns[0])
    return Symbols(first.run, variable, columns[1], columns[2], a, b, columns[5], columns[6])


def subtract(first: Symbols, second: Symbols) -> Symbols:
    """first - second, as add."""
    return add(first, negative(second))


@through_rows
def multiply(first: Symbols, second: Symbols) -> Symbols:
    """Product of two blocks: at most one of the two entries at each place may be a symbol."""
    if first.form[0] is not None and every(second.variable < 0):
        return scale(first, second.a)
    if second.form[0] is not None and every(first.variable < 0):
        return scale(second, first.a)
    shape = np.broadcast_shapes(first.shape, second.shape)
    first, second = first.broadcast(shape), second.broadcast(shape)
    symbolic = first.variable >= 0
    if some(symbolic & (second.variable >= 0)):
        raise first.run.refuse("a product or ratio of two random values has no closed form", "multiply")
    number = np.where(symbolic, second.a, first.a)
    columns = (np.where(symbolic, x, y) for x, y in zip(first.columns, second.columns, strict=True))
    return scale(Symbols(first.run, *columns), number)


@through_rows
def value_bounds(block: Symbols) -> tuple[Floats, Floats]:
    """Infimum and supremum of every entry, given what is known of its variable."""
    low, high = block.run.intervals(block.variable)
    at_low, at_high = evaluate(block, low), evaluate(block, high)
    return np.minimum(at_low, at_high), np.maximum(at_low, at_high)


def evaluate(block: Symbols, uniforms: Floats) -> Floats:
    """Value of every entry where its variable has the given value."""
    variable, kind, mirror, a, b, c, _ = block.columns
    with np.errstate(**_QUIET):
        base = np.where(mirror, 1.0 - uniforms, uniforms)
        # Adding 0.0 turns the -0.0 of -log(1) into 0.0, whose reciprocal is +inf.
        exponential = np.where(mirror, -np.log1p(-uniforms), -np.log(uniforms)) + 0.0
        core = np.where(kind == POWER_U, base**c, np.where(kind == POWER_E, exponential**c, np.log(exponential)))
        nested = (kind >= NEST_LOG) & (variable >= 0)
        if some(nested):
            inner = evaluate(block.run.table.take(block.parent[nested]), np.broadcast_to(uniforms, block.shape)[nested])
            kinds = kind[nested]
            core[nested] = np.where(
                kinds == NEST_LOG, np.log(inner), np.where(kinds == NEST_EXP, np.exp(inner), inner ** c[nested])
            )
        value = a + b * core
    return np.where(variable < 0, a, value)
