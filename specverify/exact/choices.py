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

from specverify.exact.choice_points import END, ChoicePoint, Weights, first_possible
from specverify.exact.errors import NotEnumerable, source_line

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


class ChoiceStack:
    """The choices of the current run, and which branches of each are still to be tried.

    here: the last choice that the run has made. Whoever knows that the run makes the choice `here.following` once more
    may set it to that; see ChoicePoint.
    """

    def __init__(self, budget: EnumerationBudget | None = None) -> None:
        self.budget = budget or EnumerationBudget()
        self.num_runs = 0
        self.explored = 0.0
        self._start = self.here = ChoicePoint((1.0,), 0, "start", 1.0)
        self._points: list[ChoicePoint] = []
        self._started = time.monotonic()

    @property
    def probability(self) -> float:
        """Of the path so far."""
        return self.here.probability

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
        self.here = self._start

    def replay(self) -> None:
        """Starts the current path over, without moving on."""
        self._require_complete()
        self.here = self._start

    @property
    def is_last_path(self) -> bool:
        """Whether no choice of the current path has a branch left to try."""
        if self.explored + self.probability < 1.0 - 1e-6:
            return False
        return all(point.untried() is None for point in self._points)

    def choose(self, weights: Sequence[float] | NDArray[np.float64], operation: str) -> int:
        """Index of the branch that this run takes; weights are the exact conditional probabilities, summing to 1.

        Raises NotEnumerable where a replay meets another choice than the run before did.
        """
        laws: Weights
        if type(weights) is tuple:
            laws = weights
        elif len(weights) > _MANY:
            laws = asarray(weights, dtype=np.float64)
        else:
            laws = tuple(weights.tolist() if isinstance(weights, np.ndarray) else weights)
        point = self.here.following
        if point is not END:
            # The common case, equal tuples, costs one comparison.
            if type(laws) is not tuple or point.weights != laws or point.operation != operation:
                self._require_repeat(point, laws, operation)
            if point.is_compared:
                point.forget()
        else:
            self._require_progress(operation)
            point = self.here.following = self._new_point(laws, operation)
            self._points.append(point)
        self.here = point
        return point.index

    def end_run(self) -> bool:
        """Counts the finished run and moves on to the next path; False when every path has been explored."""
        self._require_complete()
        self.explored += self.probability
        while self._points:
            point = self._points[-1]
            untried = point.untried()
            if untried is not None:
                point.take(untried)
                point.following = END
                return True
            self._points.pop()
        return False

    def _require_complete(self) -> None:
        if self.here.following is not END:
            made = self._points.index(self.here) + 1 if self._points and self.here is not self._start else 0
            raise NotEnumerable(
                f"not repeatable: a replay made {made} choices where the run before made {len(self._points)}; the "
                "program keeps state between calls or draws randomness that is not seen"
            )

    def _require_progress(self, operation: str) -> None:
        """Refuses a call that may go on for ever: the budget is looked at between calls only."""
        num_choices = len(self._points)
        if num_choices < _MOST_CHOICES and self.probability > _LEAST_PROBABILITY:
            return
        raise NotEnumerable(
            f"a call made {num_choices:,} random decisions, {self.probability:.0e} likely together, and was not done: "
            "a loop that repeats until it succeeds has no end of paths",
            operation,
            source_line(),
        )

    def _new_point(self, weights: Weights, operation: str) -> ChoicePoint:
        if len(weights) == 2 and weights[0] > 0.0 < weights[1] and abs(weights[0] + weights[1] - 1.0) <= _SUM_TOLERANCE:
            return ChoicePoint(weights, 0, operation, self.probability)  # as below, for what is made most
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
        index = first_possible(kept, 0)
        assert index is not None
        return ChoicePoint(kept, index, operation, self.probability)

    def _require_repeat(self, point: ChoicePoint, weights: Weights, operation: str) -> None:
        known = point.weights
        if len(known) != len(weights) or point.operation != operation:
            raise NotEnumerable(
                f"not repeatable: a replay met {operation} with {len(weights)} branches where the run before met "
                f"{point.operation} with {len(known)}; the program keeps state between calls or draws randomness "
                "that is not seen",
                operation,
                source_line(),
            )
        if isinstance(known, np.ndarray) and isinstance(weights, np.ndarray) and known.tobytes() == weights.tobytes():
            return  # the common case, in a fifth of the time
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
