"""Logarithm, exponential and powers of blocks of symbols, and the forms that only nest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import asarray
from numpy.typing import NDArray

from specverify.exact.algebra import _QUIET, scale, through_rows, value_bounds
from specverify.exact.columns import Floats, alike, every, least_of, some
from specverify.exact.symbols import CONSTANT, LOG_E, NEST_EXP, NEST_LOG, NEST_POWER, POWER_E, POWER_U, Form, Symbols


@through_rows
def log(block: Symbols) -> Symbols:
    """Natural logarithm. Raises NotEnumerable where the symbol may be negative."""
    form = block.form[0]
    if form is not None and form.is_pure and form.is_full and form.kind <= POWER_E:
        ones, log_b = alike(block.shape, 1.0), np.log(block.b)
        if form.kind == POWER_U:
            new_b, new_form = -block.c, Form(POWER_E, form.mirror, 1.0, False)
        else:
            new_b, new_form = block.c, Form(LOG_E, form.mirror, 1.0, False)
        kind = alike(block.shape, new_form.kind, np.uint8)
        return Symbols(block.run, block.variable, kind, block.mirror, log_b, new_b, ones, block.parent, form=[new_form])
    block = _without_tiny_offsets(_mirrored(block))
    variable, kind, mirror, a, b, c, parent = block.columns
    symbolic = variable >= 0
    simple = symbolic & (a == 0.0) & (b > 0.0) & (kind <= POWER_E)
    with np.errstate(**_QUIET):
        log_a, log_b = np.log(a), np.log(b)
    is_uniform = simple & (kind == POWER_U)
    # log(b Z^c) = log b - c E, and log(b E^c) = log b + c log E.
    result = Symbols(
        block.run, variable.copy(),
        np.where(is_uniform, POWER_E, LOG_E).astype(np.uint8),
        mirror.copy(),
        np.where(symbolic, log_b, log_a),
        np.where(is_uniform, -c, c),
        np.ones(block.shape),
        parent.copy(),
    )  # fmt: skip
    _always_negative_is_nan(block, result)
    return _nested(block, result, symbolic & ~simple & (result.variable >= 0), NEST_LOG, "log")


@through_rows
def exp(block: Symbols) -> Symbols:
    """Exponential function."""
    variable, kind, mirror, a, b, c, parent = block.columns
    symbolic = variable >= 0
    is_log_uniform = symbolic & (kind == POWER_E) & (c == 1.0)
    is_log_exponential = symbolic & (kind == LOG_E)
    with np.errstate(**_QUIET):
        exp_a = np.exp(a)
    simple = is_log_uniform | is_log_exponential
    if some(simple & ~np.isfinite(exp_a)):
        raise block.run.refuse("the exponential of a random value overflows", "exp")
    # exp(a + b E) = e^a Z^-b, and exp(a + b log E) = e^a E^b.
    result = Symbols(
        block.run,
        np.where(simple & (exp_a == 0.0), CONSTANT, variable),
        np.where(is_log_uniform, POWER_U, POWER_E).astype(np.uint8),
        mirror.copy(),
        np.where(symbolic, 0.0, exp_a),
        exp_a,
        np.where(is_log_uniform, -b, b),
        parent.copy(),
    )
    return _nested(block, result, symbolic & ~simple, NEST_EXP, "exp")


@through_rows
def power(block: Symbols, exponent: Any) -> Symbols:
    """block ** exponent, for symbols whose sign is known."""
    exponents = asarray(exponent, dtype=np.float64)
    form = block.form[0]
    is_simple = form is not None and form.is_pure and form.is_full and form.kind <= POWER_E
    if form is not None and is_simple and not exponents.ndim and exponents != 0.0:
        factor = block.b**exponents
        if every(np.isfinite(factor)) and every(factor):
            variable, kind, mirror, a, _, c, parent = block.columns
            new_form = form._replace(c=form.c * float(exponents))
            return Symbols(block.run, variable, kind, mirror, a, factor, c * exponents, parent, form=[new_form])
    shape = np.broadcast_shapes(block.shape, exponents.shape)
    block = _without_tiny_offsets(_mirrored(block.broadcast(shape)))
    exponents = np.broadcast_to(exponents, shape)
    variable, kind, mirror, a, b, c, parent = block.columns
    symbolic = (variable >= 0) & (exponents != 0.0)
    # b Z^c with b < 0 is minus a positive symbol: odd and even integer powers only.
    whole = exponents == np.round(exponents)
    simple = symbolic & (a == 0.0) & (kind <= POWER_E) & ((b > 0.0) | whole)
    with np.errstate(**_QUIET):
        number = np.where(exponents == 0.0, 1.0, np.power(a, exponents))
        factor = np.power(b, exponents)
    if some(simple & ~np.isfinite(factor)):
        raise block.run.refuse("a power of a random value overflows", "power")
    result = Symbols(
        block.run,
        np.where(symbolic & ~(simple & (factor == 0.0)), variable, CONSTANT),
        kind.copy(),
        mirror.copy(),
        np.where(symbolic, 0.0, number),
        np.where(symbolic, factor, 0.0),
        c * np.where(symbolic, exponents, 1.0),
        parent.copy(),
    )
    return _nested(block, result, symbolic & ~simple, NEST_POWER, "power", exponents)


def ratio(number: Floats, block: Symbols) -> Symbols:
    """number / block."""
    form = block.form[0]
    if form is not None and form.is_pure and form.is_full and form.kind <= POWER_E and number.shape == block.shape:
        with np.errstate(**_QUIET):
            new_b = number / block.b
        least = least_of(new_b) if new_b.size else math.nan
        if least >= 0.0:
            variable, kind, mirror, a, _, c, parent = block.columns
            if least:
                form = form._replace(c=-form.c)
            else:
                variable = np.where(new_b == 0.0, CONSTANT, variable)
                form = form._replace(c=-form.c, is_full=False)
            return Symbols(block.run, variable, kind, mirror, a, new_b, -c, parent, form=[form])
    return scale(power(block, -1.0), number)


def absolute(block: Symbols) -> Symbols:
    """Absolute value, where the sign is known."""
    low, high = value_bounds(block)
    symbolic = block.variable >= 0
    if some(symbolic & (low < 0.0) & (high > 0.0)):
        raise block.run.refuse("the absolute value of a random number of unknown sign", "abs")
    is_negative = np.where(symbolic, high <= 0.0, block.a < 0.0)
    return scale(block, np.where(is_negative, -1.0, 1.0))


def _mirrored(block: Symbols) -> Symbols:
    """a - a Z rewritten as a (1 - Z), so that log(1 - u) stays in the family."""
    affine = (block.variable >= 0) & (block.kind == POWER_U) & (block.c == 1.0)
    flips = affine & (block.a == -block.b) & (block.a != 0.0)
    if not some(flips):
        return block
    return Symbols(
        block.run, block.variable, block.kind, block.mirror ^ flips, np.where(flips, 0.0, block.a),
        np.where(flips, block.a, block.b), block.c, block.parent,
    )  # fmt: skip


def _without_tiny_offsets(block: Symbols) -> Symbols:
    """Drops offsets such as the 1e-20 of log(u + 1e-20), and records the mass.

    Moving Z or E by d changes its law by a total variation of at most |d|.
    """
    with np.errstate(**_QUIET):
        offset = np.abs(block.a / block.b)
    tiny = (
        (block.variable >= 0) & (block.kind <= POWER_E) & (block.c == 1.0) & (block.a != 0.0)
        & (offset < block.run.budget.clip_mass)
    )  # fmt: skip
    if not some(tiny):
        return block
    block.run.clipped_mass += float(offset[tiny].sum())
    offsets = np.where(tiny, 0.0, block.a)
    return Symbols(block.run, block.variable, block.kind, block.mirror, offsets, block.b, block.c, block.parent)


def _always_negative_is_nan(block: Symbols, result: Symbols) -> None:
    negative_entries = (block.variable >= 0) & (block.kind <= POWER_E) & (block.a == 0.0) & (block.b < 0.0)
    if some(negative_entries):
        result.variable[negative_entries] = CONSTANT
        result.a[negative_entries] = np.nan


def _nested(
    block: Symbols, result: Symbols, nested: NDArray[np.bool_], kind: int, operation: str,
    exponents: Floats | None = None,
) -> Symbols:  # fmt: skip
    """Fills the entries that have no simple form with a reference to the row they are a function of."""
    if not some(nested):
        return result
    entries = block[nested]
    if kind != NEST_EXP:
        low, _ = value_bounds(entries)
        if not every(low >= 0.0):
            raise block.run.refuse("the argument may be negative", operation)
    rows = block.run.table.append(entries)
    for column, value in zip(
        result.columns[1:], (kind, False, 0.0, 1.0, 1.0 if exponents is None else exponents[nested], rows), strict=True
    ):
        column[nested] = value
    return result
