"""What programs ask of blocks: the winner of a row, the first true entry, how many are true, where a number falls."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy import array, asarray
from numpy.typing import NDArray

from specverify.exact import algebra
from specverify.exact.conditions import Conditions, thresholds
from specverify.exact.deferred import UNDECIDED, Deferred, Function, Get
from specverify.exact.lazy import total
from specverify.exact.leaves import Condition, Leaf, Piecewise, Race
from specverify.exact.races import race
from specverify.exact.run import Run
from specverify.exact.symbols import POWER_U, Floats, Symbols, every, first_integers, some

# Below this many entries, conditions of mixed direction on one variable are evaluated on every cell.
_MAX_MIXED = 512


def winner(block: Symbols, *, largest: bool, operation: str = "argmax") -> int | Deferred:
    """Position of the largest (smallest) entry of a 1-d block: a race, which is one choice."""
    positions, variables, weights = race(block, largest=largest, operation=operation)
    if len(positions) == 1:
        return int(positions[0])
    return Race(block.run, positions, variables, weights, operation)


def condition_at(conditions: Conditions, index: Any) -> bool | Condition:
    """One entry: a plain truth value or a Condition."""
    variable = int(conditions.variable[index])
    below = bool(conditions.below[index])
    if variable < 0:
        return below
    return Condition(conditions.run, variable, float(conditions.threshold[index]), below)


def entries(conditions: Conditions) -> list[bool | Condition]:
    """All entries in order, flattened."""
    run = conditions.run
    return [
        Condition(run, variable, threshold, below) if variable >= 0 else below
        for variable, threshold, below in zip(*_flat_columns(conditions), strict=True)
    ]


def _flat_columns(conditions: Conditions) -> tuple[list[int], list[float], list[bool]]:
    variable, threshold, below = conditions.columns
    if variable.ndim == 1:
        return variable.tolist(), threshold.tolist(), below.tolist()
    return variable.ravel().tolist(), threshold.ravel().tolist(), below.ravel().tolist()


def all_true(conditions: Conditions) -> Any:
    """Whether all entries are true: decides them in order up to the first that is not."""
    return UpToFirst(conditions, False) if some(conditions.variable >= 0) else every(conditions.below)


def any_true(conditions: Conditions) -> Any:
    """Whether any entry is true: decides them in order up to the first that is."""
    return UpToFirst(conditions, True) if some(conditions.variable >= 0) else some(conditions.below)


class UpToFirst(Function):
    """Whether an entry is true (looked_for is True), or whether none is false: decided in order, up to the first that
    is looked for. The parts of the function are made only where it becomes a part of another.
    """

    __slots__ = ("_parts", "conditions", "looked_for")

    def __init__(self, conditions: Conditions, looked_for: bool) -> None:
        self.run = conditions.run
        self._value = UNDECIDED
        self._parts: list[bool | Condition] | None = None
        self.conditions = conditions
        self.looked_for = looked_for

    @property
    def parts(self) -> list[bool | Condition]:  # type: ignore[override]
        if self._parts is None:
            self._parts = entries(self.conditions)
        return self._parts

    def only_leaf(self) -> Leaf | None:
        # The parts are leaves of their own, each.
        return super().only_leaf() if self._parts is not None or self.conditions.size < 2 else None

    def function(self, get: Get) -> bool:
        found = any(bool(get(index)) is self.looked_for for index in range(len(self.parts)))
        return found is self.looked_for

    def _decide(self) -> bool:
        if self._parts is not None:
            return bool(super()._decide())
        decide, looked_for = self.run.decide, self.looked_for
        for variable, threshold, below in zip(*_flat_columns(self.conditions), strict=True):
            if (below if variable < 0 else decide(variable, threshold) == below) is looked_for:
                return looked_for
        return not looked_for


def first_true(conditions: Conditions, default: int = 0) -> int | Deferred:
    """Position of the first true entry of a 1-d block, or default where none is (0 is what argmax gives)."""
    variables = conditions.variable
    if variables.size and int(variables.item(0)) >= 0 and every(variables == variables[0]):
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


class FirstTrue(Function):
    """The position of the first event of several that happens, or fallback: decided in order, up to that one.

    The parts of the function are made only where it becomes a part of another; a number of accepted tokens does not.
    """

    __slots__ = ("_parts", "conditions", "fallback", "positions")

    def __init__(self, conditions: Conditions, positions: list[int], fallback: int) -> None:
        self.run = conditions.run
        self._value = UNDECIDED
        self._parts: list[bool | Condition] | None = None
        self.conditions = conditions
        self.positions = positions
        self.fallback = fallback

    @property
    def parts(self) -> list[bool | Condition]:  # type: ignore[override]
        if self._parts is None:
            self._parts = entries(self.conditions)
        return self._parts

    def only_leaf(self) -> Leaf | None:
        return super().only_leaf() if self._parts is not None or len(self.positions) < 2 else None

    def function(self, get: Get) -> int:
        return next((position for index, position in enumerate(self.positions) if get(index)), self.fallback)

    def _decide(self) -> int:
        if self._parts is not None:
            return int(super()._decide())
        decide = self.run.decide
        events = zip(*_flat_columns(self.conditions), self.positions, strict=True)
        for variable, threshold, below, position in events:
            if decide(variable, threshold) == below:
                return int(position)
        return self.fallback


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
