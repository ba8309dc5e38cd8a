"""Depth-first search over the choices that a program's random draws force.

Every run replays the choices already made and extends them by the first possible branch; between runs the last
choice that still has an untried branch moves on. The program's law is the sum over runs of the path probability.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import asarray
from numpy.typing import NDArray

from specverify.exact.errors import NotEnumerable, source_line

Weights = tuple[float, ...] | NDArray[np.float64]

# Above this many branches the weights are kept as one array instead of a tuple.
_MANY = 64
# A path this long or this unlikely is a loop that ends by luck only; whoever follows its branches never comes back.
_MOST_CHOICES = 100_000
_LEAST_PROBABILITY = 1e-100
# Weights are normalised by whoever makes them; anything further from 1 is a defect, not rounding.
_SUM_TOLERANCE = 1e-9


@dataclass(frozen=True)
class EnumerationBudget:
    """How much work an enumeration may cost, and how exactly its runs must repeat.

    max_runs, max_seconds: beyond either the enumeration ends in NotEnumerable.
    replay_tolerance: how far the weights of one choice may move between runs. Anything further means that the
      program keeps state between calls or draws randomness that is not seen. Give 1e-6 for float32 programs on
      libraries that do not repeat bit for bit.
    clip_mass: a clamp that changes a symbol with less probability than this is dropped and its mass recorded.
    max_cells: distinct outputs that deferred draws may expand one run into before they are forked instead.
    """

    max_runs: int = 1_000_000
    max_seconds: float = 120.0
    replay_tolerance: float = 1e-9
    clip_mass: float = 1e-15
    max_cells: int = 2_000_000


class _ChoicePoint:
    __slots__ = ("index", "operation", "share", "weights")

    def __init__(self, weights: Weights, index: int, operation: str) -> None:
        self.weights = weights
        self.operation = operation
        self.take(index)

    def take(self, index: int) -> None:
        """Makes this branch the one that runs take."""
        self.index = index
        self.share = float(self.weights[index])


def _first_possible(weights: Weights, start: int) -> int | None:
    if isinstance(weights, np.ndarray):
        rest = weights[start:] > 0.0
        offset = int(rest.argmax()) if rest.size else 0
        return start + offset if rest.size and rest[offset] else None
    for index in range(start, len(weights)):
        if weights[index] > 0.0:
            return index
    return None


class ChoiceStack:
    """The choices of the current run, and which branches of each are still to be tried."""

    def __init__(self, budget: EnumerationBudget | None = None) -> None:
        self.budget = budget or EnumerationBudget()
        self.num_runs = 0
        self.explored = 0.0
        self._points: list[_ChoicePoint] = []
        self._position = 0
        self._started = time.monotonic()
        self.probability = 1.0

    @property
    def depth(self) -> int:
        return len(self._points)

    def begin_run(self) -> None:
        """Starts a run from the program's beginning. Raises NotEnumerable where the budget is spent."""
        budget = self.budget
        if self.num_runs >= budget.max_runs or time.monotonic() - self._started > budget.max_seconds:
            limit = f"{budget.max_runs} runs" if self.num_runs >= budget.max_runs else f"{budget.max_seconds:g} s"
            raise NotEnumerable(
                f"the budget of {limit} was spent with {self.explored:.3g} of the probability explored; "
                "use a smaller vocabulary, fewer draft tokens or a larger budget"
            )
        self.num_runs += 1
        self._position = 0
        self.probability = 1.0

    def replay(self) -> None:
        """Starts the current path over, without moving on."""
        self._require_complete()
        self._position = 0
        self.probability = 1.0

    @property
    def is_last_path(self) -> bool:
        """Whether no choice of the current path has a branch left to try."""
        if self.explored + self.probability < 1.0 - 1e-6:
            return False
        return all(_first_possible(point.weights, point.index + 1) is None for point in self._points)

    def choose(self, weights: Sequence[float] | NDArray[np.float64], operation: str) -> int:
        """Index of the branch that this run takes; weights are the exact conditional probabilities, summing to 1.

        Raises NotEnumerable where a replay meets another choice than the run before did.
        """
        laws: Weights
        if len(weights) > _MANY:
            laws = asarray(weights, dtype=np.float64)
        elif type(weights) is tuple:
            laws = weights
        else:
            laws = tuple(weights.tolist() if isinstance(weights, np.ndarray) else weights)
        position, points = self._position, self._points
        if position < len(points):
            point = points[position]
            # The common case, equal tuples, costs one comparison.
            if type(laws) is not tuple or point.weights != laws or point.operation != operation:
                self._require_repeat(point, laws, operation)
        else:
            self._require_progress(position, operation)
            point = self._new_point(laws, operation)
            points.append(point)
        self._position = position + 1
        self.probability *= point.share
        return point.index

    def end_run(self) -> bool:
        """Counts the finished run and moves on to the next path; False when every path has been explored."""
        self._require_complete()
        self.explored += self.probability
        while self._points:
            point = self._points[-1]
            following = _first_possible(point.weights, point.index + 1)
            if following is not None:
                point.take(following)
                return True
            self._points.pop()
        return False

    def _require_complete(self) -> None:
        if self._position != len(self._points):
            raise NotEnumerable(
                f"not repeatable: a replay made {self._position} choices where the run before made {len(self._points)};"
                " the program keeps state between calls or draws randomness that is not seen"
            )

    def _require_progress(self, num_choices: int, operation: str) -> None:
        """Refuses a call that may go on for ever: the budget is looked at between calls only."""
        if num_choices < _MOST_CHOICES and self.probability > _LEAST_PROBABILITY:
            return
        raise NotEnumerable(
            f"a call made {num_choices:,} random decisions, {self.probability:.0e} likely together, and was not done: "
            "a loop that repeats until it succeeds has no end of paths",
            operation,
            source_line(),
        )

    def _new_point(self, weights: Weights, operation: str) -> _ChoicePoint:
        if isinstance(weights, np.ndarray):
            kept: Weights = weights.copy()
            total, least = float(weights.sum()), float(weights.min())
        else:
            kept = weights
            total, least = math.fsum(weights), min(weights, default=0.0)
        if not (least >= 0.0 and abs(total - 1.0) <= _SUM_TOLERANCE):
            raise NotEnumerable(
                f"the weights of a choice sum to {total!r} with a smallest of {least!r}; they must be a law",
                operation,
                source_line(),
            )
        index = _first_possible(kept, 0)
        assert index is not None
        return _ChoicePoint(kept, index, operation)

    def _require_repeat(self, point: _ChoicePoint, weights: Weights, operation: str) -> None:
        known = point.weights
        if len(known) != len(weights) or point.operation != operation:
            raise NotEnumerable(
                f"not repeatable: a replay met {operation} with {len(weights)} branches where the run before met "
                f"{point.operation} with {len(known)}; the program keeps state between calls or draws randomness "
                "that is not seen",
                operation,
                source_line(),
            )
        if isinstance(known, np.ndarray):
            moved = float(np.abs(known - weights).max())
        else:
            moved = max(abs(old - new) for old, new in zip(known, weights, strict=True))
        if not moved <= self.budget.replay_tolerance:
            raise NotEnumerable(
                f"not repeatable: the weights of a choice moved by {moved:.3g} between two runs (allowed "
                f"{self.budget.replay_tolerance:g}); the program keeps state between calls or draws randomness that "
                "is not seen",
                operation,
                source_line(),
            )


Progress = Callable[[float, int], None]
"""Called with (explored probability, runs so far) while an enumeration works."""
