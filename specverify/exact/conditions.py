"""Comparisons of symbols with numbers, kept as thresholds on uniform variables until somebody looks.

A vector comparison must not fork for every entry: k accept tests would cost 2^k paths where k + 1 suffice. So a
comparison makes conditions, and only what is inspected is decided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import array, asarray
from numpy.typing import NDArray

from specverify.exact import algebra
from specverify.exact.columns import Floats, alike, every, has_no_nan, some
from specverify.exact.run import Run
from specverify.exact.symbols import (
    CONSTANT,
    LOG_E,
    NEST_EXP,
    NEST_LOG,
    NEST_POWER,
    POWER_E,
    POWER_U,
    Form,
    Symbols,
    common_shape,
)

if TYPE_CHECKING:
    from specverify.exact.scalar import Symbol

_QUIET: dict[str, Any] = {"divide": "ignore", "invalid": "ignore", "over": "ignore", "under": "ignore"}
_COMPARE = {"less": np.less, "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal,
            "equal": np.equal, "not_equal": np.not_equal}  # fmt: skip
IS_LESS = {"less": True, "less_equal": True, "greater": False, "greater_equal": False}
_EXCHANGED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}


@dataclass(eq=False, slots=True)  # not frozen, as Symbols
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


def mirrored(operation: str) -> str:
    """The comparison with its sides exchanged."""
    return _EXCHANGED.get(operation, operation)


def compare(block: Symbols, operation: str, number: Any) -> Conditions:
    """block < number and so on; operation is numpy's name: less, less_equal, greater, greater_equal, equal, not_equal.

    A comparison with NaN is false (not_equal: true), as in floating point. Equality of a symbol with a number has
    probability zero.
    """
    numbers = asarray(number, dtype=np.float64)
    if not numbers.ndim and block.shape == ():
        return compare(block.reshaped((1,)), operation, numbers).reshaped(())
    shape = common_shape(block, numbers)
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


def compare_one(symbol: Symbol, operation: str, numbers: Floats) -> Conditions:
    """As compare, for one symbol with an array of numbers."""
    if symbol.is_affine and operation in IS_LESS:
        with np.errstate(**_QUIET):
            uniforms = np.minimum(np.maximum((numbers - symbol.a) / symbol.b, 0.0), 1.0)
        if has_no_nan(uniforms):
            is_below = IS_LESS[operation] == (symbol.b > 0.0)
            variable, below = (
                alike(numbers.shape, symbol.variable, np.int64),
                alike(numbers.shape, is_below, np.bool_),
            )
            return Conditions(symbol.run, variable, uniforms, below)
    return compare(symbol.block(), operation, numbers)


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


def threshold(symbol: Symbol, number: float) -> tuple[float, bool]:
    """As thresholds, for one symbol."""
    core = (number - symbol.a) / symbol.b
    if symbol.kind == POWER_E and abs(symbol.c) == 1.0:
        exponential = max(core, 0.0)
        if symbol.c < 0.0:
            exponential = 1.0 / exponential if exponential > 0.0 else math.inf
        grows = (symbol.b > 0.0) == (symbol.c > 0.0)
    elif symbol.kind == LOG_E and core < 700.0:
        exponential, grows = math.exp(core), symbol.b > 0.0
    else:
        uniforms, directions = thresholds(symbol.block(), array(number))
        return float(uniforms), bool(directions)
    # Z = exp(-E) falls as E rises, and U = 1 - Z where the symbol is mirrored.
    u = -math.expm1(-exponential) if symbol.mirror else math.exp(-exponential)
    return u, grows == symbol.mirror


def _simple_thresholds(form: Form, block: Symbols, numbers: Floats) -> tuple[Floats, NDArray[np.bool_]] | None:
    """As thresholds, for blocks of one common form and numbers without NaN; None where it does not apply."""
    if form.kind > LOG_E or not form.is_full or not has_no_nan(numbers):
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
