"""What programs ask of blocks: the winner of a row, the first true entry, how many are true, where a number falls."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy import array, asarray
from numpy.typing import NDArray

from specverify.exact import algebra
from specverify.exact.columns import Floats, every, first_integers, some
from specverify.exact.conditions import Conditions, thresholds
from specverify.exact.deferred import Deferred
from specverify.exact.in_order import FirstTrue, UpToFirst, entries
from specverify.exact.lazy import total
from specverify.exact.leaves import Piecewise, Race
from specverify.exact.races import race
from specverify.exact.run import Run
from specverify.exact.symbols import POWER_U, Symbols

# Below this many entries, conditions of mixed direction on one variable are evaluated on every cell.
_MAX_MIXED = 512


def winner(block: Symbols, *, largest: bool, operation: str = "argmax") -> int | Deferred:
    """Position of the largest (smallest) entry of a 1-d block: a race, which is one choice."""
    positions, variables, weights = race(block, largest=largest, operation=operation)
    if len(positions) == 1:
        return int(positions[0])
    return Race(block.run, positions, variables, weights, operation)


def all_true(conditions: Conditions) -> Any:
    """Whether all entries are true: decides them in order up to the first that is not."""
    return UpToFirst(conditions, False) if some(conditions.variable >= 0) else every(conditions.below)


def any_true(conditions: Conditions) -> Any:
    """Whether any entry is true: decides them in order up to the first that is."""
    return UpToFirst(conditions, True) if some(conditions.variable >= 0) else some(conditions.below)


def first_true(conditions: Conditions, default: int = 0) -> int | Deferred:
    """Position of the first true entry of a 1-d block, or default where none is (0 is what argmax gives)."""
    variables = conditions.variable
    # Compared with one symbol, an array has one variable throughout, and no memory for it.
    is_one = bool(variables.size) and (variables.strides == (0,) or every(variables == variables[0]))
    if is_one and variables.item(0) >= 0:
        return _first_of_one_variable(conditions, None, default)
    positions, fallback = [], default
    for position, (variable, is_true) in enumerate(zip(variables.tolist(), conditions.below.tolist(), strict=True)):
        if variable >= 0:
            positions.append(position)
        elif is_true:
            fallback = position
            break
    if not positions:
        return fallback
    if len(positions) == variables.size:
        return FirstTrue(conditions, positions, fallback)
    candidates = conditions[positions]
    if every(candidates.variable == candidates.variable[0]):
        return _first_of_one_variable(candidates, array(positions), fallback)
    return FirstTrue(candidates, positions, fallback)


def count_true(conditions: Conditions) -> int | Deferred:
    """How many entries are true."""
    open_entries = conditions.variable >= 0
    certain = int((~open_entries & conditions.below).sum())
    if not some(open_entries):
        return certain
    candidates = conditions[open_entries]
    if every(candidates.variable == candidates.variable[0]):
        edges = np.sort(np.unique(candidates.threshold))
        below = np.sort(candidates.threshold[candidates.below])
        above = np.sort(candidates.threshold[~candidates.below])
        starts = np.concatenate(([-np.inf], edges))
        # In the cell that starts at s, U < t holds for t > s and U >= t for t <= s.
        counts = (
            len(below) - np.searchsorted(below, starts, side="right") + np.searchsorted(above, starts, side="right")
        )
        return _piecewise(candidates, edges, counts + certain, "sum of comparisons")
    return total(conditions.run, [certain, *entries(candidates)])  # type: ignore[no-any-return]


def search(symbol: Symbols, sorted_values: NDArray[Any], operation: str = "searchsorted") -> int | Deferred:
    """Where a symbol (a block of one entry) falls in an ascending row: the number of row entries below it.

    Sides left and right agree, as equality has probability zero.
    """
    row = asarray(sorted_values, dtype=np.float64)
    if int(symbol.variable.reshape(-1)[0]) < 0:
        return int(np.searchsorted(row, float(symbol.a.reshape(-1)[0])))
    form = symbol.form[0]
    if form is not None and form.kind == POWER_U and form.c == 1.0 and form.is_pure and not form.mirror and len(row):
        flat = symbol.reshaped((1,))
        return search_uniform(symbol.run, int(flat.variable[0]), float(flat.b[0]), row, operation)
    edges, increasing = thresholds(symbol.reshaped((1,)).broadcast(row.shape), row)
    if not len(row):
        return 0
    conditions = Conditions(symbol.run, np.broadcast_to(symbol.variable.reshape(-1)[0], row.shape), edges, increasing)
    if bool(increasing[0]):
        # Rounding must not let an edge step back: cumulative sums may repeat a value.
        return _piecewise(conditions, np.maximum.accumulate(edges), np.arange(len(row) + 1), operation)
    falling = np.minimum.accumulate(edges)[::-1]
    return _piecewise(conditions, falling, np.arange(len(row), -1, -1), operation)


def search_uniform(run: Run, variable: int, scale: float, row: Floats, operation: str = "searchsorted") -> Deferred:
    """As search, for scale * U."""
    # Rounding must not let an edge step back: cumulative sums may repeat a value.
    edges = np.maximum.accumulate(np.minimum(np.maximum(row / scale, 0.0), 1.0))
    return Piecewise(run, variable, edges, np.arange(len(row) + 1), operation)


@functools.lru_cache(maxsize=256)
def _places(count: int, fallback: int) -> NDArray[np.int64]:
    """0, 1, ... count - 1 and the fallback. Shared: nobody may write into it."""
    return np.append(np.arange(count), fallback)


def _first_of_one_variable(candidates: Conditions, where: NDArray[np.int64] | None, fallback: int) -> Deferred:
    """where: positions of the candidates; None where they are all there are."""
    if every(candidates.below):
        # U < t: entry i is first exactly where U lies between the running maxima before and at i.
        edges = np.maximum.accumulate(candidates.threshold)
        values = _places(candidates.size, fallback) if where is None else np.append(where, fallback)
        return _piecewise(candidates, edges, values, "first true comparison")
    positions = first_integers(candidates.size) if where is None else where
    if not some(candidates.below):
        # U >= t: the same with running minima, from above.
        edges = np.minimum.accumulate(candidates.threshold)[::-1]
        return _piecewise(candidates, edges, np.append(fallback, positions[::-1]), "first true comparison")
    if candidates.size > _MAX_MIXED:
        raise candidates.run.refuse("too many comparisons of mixed direction on one random value", "argmax")
    edges = np.unique(candidates.threshold)
    starts = np.concatenate(([-np.inf], edges))[:, None]
    truth = np.where(
        candidates.below, candidates.threshold > starts, candidates.threshold <= starts
    )  # [cells, entries]
    values = np.where(truth.any(axis=1), positions[truth.argmax(axis=1)], fallback)
    return _piecewise(candidates, edges, values, "first true comparison")


def _piecewise(conditions: Conditions, edges: Floats, values: NDArray[Any], operation: str) -> Deferred:
    # Ratios above 1 make thresholds that no uniform reaches.
    edges = np.minimum(np.maximum(edges, 0.0), 1.0)
    return Piecewise(conditions.run, conditions.variable.item(0), edges, values, operation)


def whole_part(block: Symbols) -> Any:
    """The whole part of one symbol of bounded range."""
    low, high = (float(bound) for bound in algebra.value_bounds(block))
    if not (math.isfinite(low) and math.isfinite(high) and high - low <= 1e6):
        raise block.run.refuse("the program looks at the value of a random number", "int()")
    return search(block, np.arange(math.floor(low) + 1, math.ceil(high)), "int()") + math.floor(low)
