"""One choice on a path: its branches with their weights, the one that runs take, and what comparison it was."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Weights = tuple[float, ...] | NDArray[np.float64]
Interval = tuple[float, float]

# What no variable lies in: these very objects are asked for.
_NONE: Interval = (math.nan, math.nan)


class ChoicePoint:
    """One choice of the current path.

    following: the choice after it, END where there is none yet. probability: of the path up to and with the branch
    that runs take. Where the choice is a comparison of one variable with a threshold, that is kept too, with the
    interval that the variable was known to lie in (None for all of [0, 1)) and the one that it lies in afterwards: a
    run that meets the same comparison of a variable in the same interval meets the same weights, and need not work
    them out again.
    """

    __slots__ = ("_before", "_intervals", "afterwards", "following", "index", "operation", "probability", "threshold",
                 "variable", "weights", "within")  # fmt: skip

    def __init__(self, weights: Weights, index: int, operation: str, before: float) -> None:
        self.weights = weights
        self.operation = operation
        self.following = END
        self._before = before
        self.variable = -1
        self.threshold = math.nan
        self.within: Interval | None = _NONE
        self._intervals: tuple[Interval, ...] = ()
        self.take(index)

    def take(self, index: int) -> None:
        """Makes this branch the one that runs take."""
        self.index = index
        self.probability = self._before * float(self.weights[index])
        self.afterwards = self._intervals[index] if self._intervals else _NONE

    def compares(
        self, variable: int, threshold: float, within: Interval | None, intervals: tuple[Interval, ...]
    ) -> None:
        """Keeps what comparison this is. intervals: where the variable lies in each branch."""
        self.variable = variable
        self.threshold = threshold
        self.within = within
        self._intervals = intervals
        self.afterwards = intervals[self.index]

    def forget(self) -> None:
        """Takes the choice for no comparison."""
        self.variable = -1
        self.threshold = math.nan
        self.within = _NONE
        self._intervals = ()
        self.afterwards = _NONE

    @property
    def is_compared(self) -> bool:
        return self.variable >= 0

    def untried(self) -> int | None:
        """The next branch after the one that runs take; None where all were taken."""
        return first_possible(self.weights, self.index + 1)


def first_possible(weights: Weights, start: int) -> int | None:
    """The first branch from start on that has a positive weight."""
    if isinstance(weights, np.ndarray):
        rest = weights[start:] > 0.0
        offset = int(rest.argmax()) if rest.size else 0
        return start + offset if rest.size and rest[offset] else None
    for index in range(start, len(weights)):
        if weights[index] > 0.0:
            return index
    return None


END: ChoicePoint = object.__new__(ChoicePoint)
"""Stands after the last choice. It equals no comparison, as its threshold is no number."""
END.__init__((1.0,), 0, "", 1.0)  # type: ignore[misc]
