"""The event that a uniform lies below a threshold: a comparison that is not decided yet."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import array
from numpy.typing import NDArray

from specverify.exact.deferred import UNDECIDED
from specverify.exact.leaves import Leaf
from specverify.exact.run import Run


class Condition(Leaf):
    """The event U < threshold (below) or U >= threshold (not below). See also comparisons.py."""

    __slots__ = ("below", "threshold", "variable")
    is_binary = True

    def __init__(self, run: Run, variable: int, threshold: float, below: bool, operation: str = "comparison") -> None:
        # Without super(), which takes half of the time: programs that compare in a loop make a million of these. The
        # rest of a leaf's state is for those of which a part may be known.
        self.run = run
        self._value = UNDECIDED
        self.operation = operation
        self.variable = variable
        self.threshold = threshold
        self.below = below

    @property
    def variables(self) -> NDArray[np.int64]:
        return array([self.variable])

    def _decide(self) -> bool:
        return self.run.decide(self.variable, self.threshold, self.operation) == self.below

    def __bool__(self) -> bool:
        # The hot path of programs that compare in a loop.
        if self._value is UNDECIDED:
            run, variable = self.run, self.variable
            stack = run.stack
            here = stack.here
            point = here.following
            if (
                point.threshold == self.threshold
                and point.within is here.afterwards
                and point.variable == variable
                and point.operation is self.operation
                and run.is_simple
            ):
                # As in Run.decide, where the choice before was a comparison of this variable too.
                run.known[variable] = point.afterwards
                stack.here = point
                self._value = value = (not point.index) == self.below
                return value
            self._value = run.decide(variable, self.threshold, self.operation) == self.below
        return self._value  # type: ignore[no-any-return]

    def __invert__(self) -> Condition:
        return Condition(self.run, self.variable, self.threshold, not self.below, self.operation)

    def law(self) -> tuple[Any, Any]:
        below = self.run.probability_below(self.variable, self.threshold, self.operation)
        share = below if self.below else 1.0 - below
        return (True, False), (share, 1.0 - share)

    def restrict(self, allowed: NDArray[np.bool_]) -> None:
        self.resolve()
