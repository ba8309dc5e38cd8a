"""Races: which of several independent exponential arrivals comes first, read from the entries of a block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import array
from numpy.typing import NDArray

from specverify.exact import algebra
from specverify.exact.columns import Floats, every, least_of, some
from specverify.exact.conditions import _QUIET
from specverify.exact.symbols import LOG_E, POWER_E, POWER_U, Symbols

# Of a winner that is certain: no variables, and its weight.
_NONE, _ONE = np.zeros(0, dtype=np.int64), np.ones(1)
_ONE.flags.writeable = False


def race(block: Symbols, *, largest: bool, operation: str) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """(positions, variables, weights) of a race along a 1-d block: P(position wins) is its weight.

    One entry alone (weights of length 1, no variables) wins for certain. The variables are not consumed yet.
    Raises NotEnumerable where the entries are no race: not one monotone function of E / weight with E independent.
    """
    run = block.run
    symbolic = block.variable >= 0
    form = block.form[0]
    is_simple = form is not None and form.is_pure and form.kind == POWER_E and (form.c < 0.0) == largest
    # Where the constants are 0, every symbol is above them.
    if form is not None and is_simple and (form.is_full or (largest and not some(block.a))):
        # b E^c with b > 0: the first arrival of E / w has w = b^(-1/c), and is the largest where c < 0.
        positions = symbolic.nonzero()[0]
        if len(positions) == 1:
            return positions, _NONE, _ONE
        weights = block.b[positions]
        if form.c != -1.0:
            weights = weights ** (-1.0 / form.c)
        if len(positions) > 1 and least_of(weights) > 0.0 and np.isfinite(total := weights.sum()):
            return positions, block.variable[positions], weights / total
    if form is not None and form.kind == LOG_E and (form.is_full or (largest and _are_lowest(block.a[~symbolic]))):
        # a + b log E with one b: b log(E e^(a/b)), which is largest at the first arrival where b < 0.
        positions = symbolic.nonzero()[0]
        if len(positions) == 1:
            return positions, _NONE, _ONE
        slopes = block.b[positions]
        if len(positions) > 1 and every(slopes == slopes[0]) and (slopes[0] < 0.0) == largest:
            log_weights = block.a[positions] / -slopes
            weights = np.exp(log_weights - log_weights.max())
            return positions, block.variable[positions], weights / weights.sum()
    constants = np.where(symbolic, -np.inf if largest else np.inf, block.a)
    if some(np.isnan(constants)):  # argmax and argmin both return the first NaN
        return array([int(np.isnan(constants).argmax())]), _NONE, _ONE
    best = int(constants.argmax() if largest else constants.argmin())
    if not some(symbolic):
        return array([best]), _NONE, _ONE
    positions = np.flatnonzero(symbolic)
    entries = block[positions]
    if len(positions) < block.size:
        low, high = _range(entries)
        if constants[best] >= high if largest else constants[best] <= low:
            return array([best]), _NONE, _ONE
        if not (constants[best] <= low if largest else constants[best] >= high):
            if run.has_clamped:
                raise run.refuse_clamped(operation)
            raise run.refuse("a race of random values against a number inside their range", operation)
    if len(positions) == 1:
        return positions, _NONE, _ONE
    log_weights = _log_weights(entries, largest=largest, operation=operation)
    weights = np.exp(log_weights - log_weights.max())
    return positions, entries.variable, weights / weights.sum()


def _are_lowest(constants: Floats) -> bool:
    return every(constants == -np.inf)


def _range(entries: Symbols) -> tuple[float, float]:
    """Infimum and supremum over all entries, before anything is known of their variables."""
    if (entries.kind > LOG_E).any():
        low, high = algebra.value_bounds(entries)
        return float(low.min()), float(high.max())
    # Z ** c and E ** c at their ends: 0 and 1 for Z ** c with c > 0, 1 and inf for c < 0, 0 and inf for E ** c.
    is_uniform = entries.kind == POWER_U
    near = np.where(entries.kind == LOG_E, -np.inf, np.where(is_uniform & (entries.c < 0.0), 1.0, 0.0))
    far = np.where(is_uniform & (entries.c > 0.0), 1.0, np.inf)
    ends = entries.a + entries.b * near, entries.a + entries.b * far
    return float(np.minimum(*ends).min()), float(np.maximum(*ends).max())


def _log_weights(entries: Symbols, *, largest: bool, operation: str) -> Floats:
    """Logarithms of the weights w, where every entry is one common monotone function of E / w."""
    kind, a, b, c = entries.kind, entries.a, entries.b, entries.c
    first = int(kind[0])
    with np.errstate(**_QUIET):
        if first == LOG_E and _alike(kind, b):
            log_weights, falls = -a / b, bool(b[0] < 0.0)  # a + b log E = b log(E e^(a/b))
        elif first == POWER_E and _alike(kind, c, a, np.sign(b)):
            log_weights, falls = -np.log(np.abs(b)) / c, bool(b[0] * c[0] < 0.0)  # |b| E^c = (|b|^(1/c) E)^c
        elif first == POWER_U and _alike(kind, a, b, np.sign(c)):
            log_weights, falls = -np.log(np.abs(c)), bool(b[0] * c[0] > 0.0)  # Z^c = exp(-c E)
        else:
            raise entries.run.refuse("argmax of random values that are no exponential or Gumbel race", operation)
    # An argmax picks the smallest E / w where the function falls in it, an argmin where it rises.
    if falls != largest:
        raise entries.run.refuse(
            "a race that picks the last instead of the first arrival has no closed form", operation
        )
    return log_weights


def _alike(*columns: NDArray[Any]) -> bool:
    return all(bool(np.all(np.abs(column - column[0]) <= 1e-12 * np.abs(column[0]))) for column in columns)
