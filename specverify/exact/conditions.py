"""Comparisons of symbols with numbers, kept as thresholds on uniform variables until somebody looks.

A vector comparison must not fork for every entry: k accept tests would cost 2^k paths where k + 1 suffice. So a
comparison makes conditions, and only what is inspected is decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import array, asarray
from numpy.typing import NDArray

from specverify.exact import algebra
from specverify.exact.run import Run
from specverify.exact.symbols import (
    CONSTANT,
    LOG_E,
    NEST_EXP,
    NEST_LOG,
    NEST_POWER,
    POWER_E,
    POWER_U,
    Floats,
    Form,
    Symbols,
    every,
    some,
)

_QUIET: dict[str, Any] = {"divide": "ignore", "invalid": "ignore", "over": "ignore", "under": "ignore"}
_COMPARE = {"less": np.less, "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal,
            "equal": np.equal, "not_equal": np.not_equal}  # fmt: skip


@dataclass(eq=False)  # not frozen, as Symbols
class Conditions:
    """A block of events on single variables, columns of one shape.

    Where variable is CONSTANT the entry is the plain truth value `below`; else it is the event U < threshold
    (below) or U >= threshold (not below).
    """

    run: Run
    variable: NDArray[np.int64]
    threshold: Floats
    below: NDArray[np.bool_]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.variable.shape

    @property
    def size(self) -> int:
        return self.variable.size

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        return (self.variable, self.threshold, self.below)

    def __getitem__(self, index: Any) -> Conditions:
        return Conditions(self.run, *(asarray(column[index]) for column in self.columns))

    def reshaped(self, shape: tuple[int, ...]) -> Conditions:
        return Conditions(self.run, *(column.reshape(shape) for column in self.columns))

    def broadcast(self, shape: tuple[int, ...]) -> Conditions:
        if shape == self.variable.shape:
            return self
        return Conditions(self.run, *(np.broadcast_to(column, shape) for column in self.columns))

    def inverted(self) -> Conditions:
        """The opposite events."""
        return Conditions(self.run, self.variable, self.threshold, ~self.below)


def compare(block: Symbols, operation: str, number: Any) -> Conditions:
    """block < number and so on; operation is numpy's name: less, less_equal, greater, greater_equal, equal, not_equal.

    A comparison with NaN is false (not_equal: true), as in floating point. Equality of a symbol with a number has
    probability zero.
    """
    numbers = asarray(number, dtype=np.float64)
    if not numbers.ndim and block.shape == ():
        return compare(block.reshaped((1,)), operation, numbers).reshaped(())
    shape = block.shape if not numbers.ndim else np.broadcast_shapes(block.shape, numbers.shape)
    if block.form[0] is not None and operation not in ("equal", "not_equal"):
        fast = _simple_thresholds(block.form[0], block, numbers)
        if fast is not None:
            uniforms, increasing = fast
            below = increasing if operation.startswith("less") else ~increasing
            variable = block.variable
            if variable.shape != shape:
                variable, below = np.broadcast_to(variable, shape), np.broadcast_to(below, shape)
            return Conditions(block.run, variable, uniforms, below)
    wide, numbers = block.broadcast(shape), np.broadcast_to(numbers, shape)
    constant = wide.variable < 0
    with np.errstate(**_QUIET):
        plain = _COMPARE[operation](wide.a, numbers)
    if operation in ("equal", "not_equal"):
        truth = np.where(constant, plain, operation == "not_equal")
        return Conditions(block.run, np.full(shape, CONSTANT), np.zeros(shape), truth)
    uniforms, increasing = thresholds(wide, numbers)
    wants_less = operation.startswith("less")
    unordered = np.isnan(numbers) & ~constant
    return Conditions(
        block.run,
        np.where(unordered, CONSTANT, wide.variable),
        uniforms,
        np.where(constant, plain, ~unordered & (increasing == wants_less)),
    )


@algebra.through_rows
def thresholds(block: Symbols, numbers: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """(u, increasing): the entry is below its number exactly where U < u (increasing) or U > u (not increasing).

    u lies in [0, 1]. Entries that are constants or meet NaN get 0.
    """
    _, kind, mirror, a, b, c, _ = block.columns
    with np.errstate(**_QUIET):
        core = (numbers - a) / b
        is_power = (kind == POWER_U) | (kind == POWER_E) | (kind == NEST_POWER)
        # A power is never negative, so a negative bound acts as 0. (core + 0.0 turns -0.0 into 0.0.)
        core = np.where(is_power, np.power(np.maximum(core, 0.0) + 0.0, 1.0 / c), core)
        grows = np.where(is_power, (b > 0.0) == (c > 0.0), b > 0.0)
        exponential = np.where(kind == LOG_E, np.exp(core), core)
        base = np.where(kind == POWER_U, core, np.exp(-exponential))
        uniforms = np.where(mirror, np.where(kind == POWER_U, 1.0 - core, -np.expm1(-exponential)), base)
    # E falls as Z rises, and Z falls as U rises where it is mirrored.
    increasing = grows ^ ((kind == POWER_E) | (kind == LOG_E)) ^ mirror
    nested = (kind >= NEST_LOG) & (block.variable >= 0)
    if some(nested):
        inner_kind, inner_core = kind[nested], core[nested]
        with np.errstate(**_QUIET):
            inner = np.where(
                inner_kind == NEST_LOG,
                np.exp(inner_core),
                np.where(inner_kind == NEST_EXP, np.log(inner_core), inner_core),
            )
        # exp is never below 0: the logarithm of a negative bound acts as minus infinity.
        inner = np.where((inner_kind == NEST_EXP) & (inner_core <= 0.0), -np.inf, inner)
        inner_uniforms, inner_increasing = thresholds(block.run.table.take(block.parent[nested]), inner)
        uniforms[nested] = inner_uniforms
        increasing[nested] = grows[nested] == inner_increasing
    uniforms = np.clip(np.nan_to_num(uniforms, nan=0.0), 0.0, 1.0)
    return uniforms, increasing


def _simple_thresholds(form: Form, block: Symbols, numbers: Floats) -> tuple[Floats, NDArray[np.bool_]] | None:
    """As thresholds, for blocks of one common form and numbers without NaN; None where it does not apply."""
    if form.kind > LOG_E or not form.is_full or some(np.isnan(numbers)):
        return None
    with np.errstate(**_QUIET):
        core = numbers / block.b if form.is_pure else (numbers - block.a) / block.b
        grows = block.b > 0.0
        if form.kind != LOG_E:
            core = np.maximum(core, 0.0) + 0.0
            if form.c != 1.0:
                core = np.power(core, 1.0 / form.c)
            grows = grows == (form.c > 0.0)
        if form.kind == POWER_U:
            uniforms = 1.0 - core if form.mirror else core
        else:
            exponential = np.exp(core) if form.kind == LOG_E else core
            uniforms = -np.expm1(-exponential) if form.mirror else np.exp(-exponential)
    return np.minimum(np.maximum(uniforms, 0.0), 1.0), grows ^ ((form.kind != POWER_U) ^ form.mirror)


@algebra.through_rows
def clamp(block: Symbols, low: Any, high: Any) -> Symbols:
    """block clipped to [low, high]; either may be None. Low-mass clips are dropped and recorded, others forked."""
    for bound, operation in ((low, "less"), (high, "greater")):
        if bound is None:
            continue
        shape = np.broadcast_shapes(block.shape, np.shape(bound))
        block = block.broadcast(shape).copy()
        bounds = np.broadcast_to(asarray(bound, dtype=np.float64), shape)
        constant = block.variable < 0
        plain = np.maximum(block.a, bounds) if operation == "less" else np.minimum(block.a, bounds)
        block.a[constant] = plain[constant]
        clipped = compare(block, operation, bounds)
        starts, stops = block.run.intervals(clipped.variable)
        share = np.clip((clipped.threshold - starts) / (stops - starts), 0.0, 1.0)
        mass = np.where(clipped.variable >= 0, np.where(clipped.below, share, 1.0 - share), 0.0)
        ignorable = mass < block.run.budget.clip_mass
        block.run.clipped_mass += float(mass[ignorable].sum())
        if not every(ignorable):
            block.form[0] = None
        for position in zip(*np.nonzero(~ignorable), strict=True):
            is_below = block.run.decide_clamp(int(clipped.variable[position]), float(clipped.threshold[position]))
            if is_below == bool(clipped.below[position]):
                block.variable[position] = CONSTANT
                block.a[position] = bounds[position]
    return block


def race(block: Symbols, *, largest: bool, operation: str) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """(positions, variables, weights) of a race along a 1-d block: P(position wins) is its weight.

    One entry alone (weights of length 1, no variables) wins for certain. The variables are not consumed yet.
    Raises NotEnumerable where the entries are no race: not one monotone function of E / weight with E independent.
    """
    run = block.run
    symbolic = block.variable >= 0
    constants = np.where(symbolic, -np.inf if largest else np.inf, block.a)
    certain = np.zeros(0, dtype=np.int64)
    if some(np.isnan(constants)):  # argmax and argmin both return the first NaN
        return array([int(np.isnan(constants).argmax())]), certain, np.ones(1)
    best = int(constants.argmax() if largest else constants.argmin())
    if not some(symbolic):
        return array([best]), certain, np.ones(1)
    positions = np.flatnonzero(symbolic)
    entries = block[positions]
    if len(positions) < block.size:
        low, high = _range(entries)
        if constants[best] >= high if largest else constants[best] <= low:
            return array([best]), certain, np.ones(1)
        if not (constants[best] <= low if largest else constants[best] >= high):
            if run.has_clamped:
                raise run.refuse_clamped(operation)
            raise run.refuse("a race of random values against a number inside their range", operation)
    if len(positions) == 1:
        return positions, certain, np.ones(1)
    form = block.form[0]
    if form is not None and form.is_pure and form.kind == POWER_E and (form.c < 0.0) == largest:
        # b E^c with b > 0: the first arrival of E / w has w = b^(-1/c), and is the largest where c < 0.
        weights = entries.b if form.c == -1.0 else entries.b ** (-1.0 / form.c)
        total = weights.sum()
        if np.isfinite(total) and weights.all():
            return positions, entries.variable, weights / total
    log_weights = _log_weights(entries, largest=largest, operation=operation)
    weights = np.exp(log_weights - log_weights.max())
    return positions, entries.variable, weights / weights.sum()


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
