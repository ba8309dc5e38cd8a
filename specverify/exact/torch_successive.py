"""Draws without replacement: multinomial, topk and sort of a race, randperm."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.exact.deferred import Deferred
from specverify.exact.run import Run


class SuccessiveDraws:
    """Draws without replacement, in order; each is made when it, or a later one, is looked at."""

    def __init__(
        self, run: Run, weights: NDArray[np.float64], operation: str, variables: NDArray[np.int64] | None = None
    ) -> None:
        self._run = run
        self._weights = weights.copy()
        self._operation = operation
        self._variables = variables
        self._drawn: list[int] = []

    def rank(self, number: int) -> int:
        """The position drawn as number so many, from 0."""
        while len(self._drawn) <= number:
            if not self._drawn and self._variables is not None:
                self._run.consume(self._variables, self._operation)
            position = self._run.choose(self._weights / self._weights.sum(), self._operation)
            self._drawn.append(position)
            self._weights[position] = 0.0
        return self._drawn[number]


class Rank(Deferred):
    """One of several successive draws."""

    __slots__ = ("draws", "number", "positions")

    def __init__(
        self, run: Run, draws: SuccessiveDraws, number: int, positions: NDArray[np.int64] | None = None
    ) -> None:
        super().__init__(run)
        self.draws = draws
        self.number = number
        self.positions = positions

    def _decide(self) -> int:
        position = self.draws.rank(self.number)
        return position if self.positions is None else int(self.positions[position])

    def leaves(self) -> Any:
        # It depends on the draws before it, so it is decided rather than integrated.
        self.resolve()
        return iter(())

    def value_given(self, values: dict[int, Any]) -> Any:
        return self.resolve()
