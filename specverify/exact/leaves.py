"""The draws that can be deferred: a comparison, a step function of one uniform, a race, a categorical draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.exact.deferred import Leaf
from specverify.exact.run import Run
from specverify.exact.symbols import Floats


class Condition(Leaf):
    """The event U < threshold (below) or U >= threshold (not below)."""

    __slots__ = ("below", "threshold", "variable")

    def __init__(self, run: Run, variable: int, threshold: float, below: bool, operation: str = "comparison") -> None:
        super().__init__(run, operation)
        self.variable = variable
        self.threshold = threshold
        self.below = below

    @property
    def variables(self) -> NDArray[np.int64]:
        return np.array([self.variable])

    def _decide(self) -> bool:
        return self.run.decide(self.variable, self.threshold, self.operation) == self.below

    def __invert__(self) -> Condition:
        return Condition(self.run, self.variable, self.threshold, not self.below, self.operation)

    def law(self) -> tuple[Sequence[Any], Floats]:
        below = self.run.probability_below(self.variable, self.threshold, self.operation)
        share = below if self.below else 1.0 - below
        return (True, False), np.array([share, 1.0 - share])


class Piecewise(Leaf):
    """A step function of one uniform variable: values[i] where edges[i-1] <= U < edges[i].

    edges: increasing, one fewer than values (the outer edges 0 and 1 are implied).
    """

    __slots__ = ("edges", "values", "variable")

    def __init__(self, run: Run, variable: int, edges: Floats, values: NDArray[Any], operation: str) -> None:
        super().__init__(run, operation)
        self.variable = variable
        self.edges = edges
        self.values = values

    @property
    def variables(self) -> NDArray[np.int64]:
        return np.array([self.variable])

    def _bounds(self) -> Floats:
        self.run.probability_below(self.variable, 0.0, self.operation)  # refuses a raced variable
        low, high = self.run.interval(self.variable)
        return np.clip(np.concatenate(([low], self.edges, [high])), low, high)

    def _weights(self, bounds: Floats) -> Floats:
        weights: Floats = np.diff(bounds) / (bounds[-1] - bounds[0])
        return weights

    def _decide(self) -> Any:
        bounds = self._bounds()
        weights = self._weights(bounds)
        positive = np.flatnonzero(weights)
        # Where the value is settled already there is nothing to choose, nor to learn about the variable.
        index = int(positive[0]) if len(positive) == 1 else self.run.choose(weights, self.operation)
        self.run.narrow(self.variable, float(bounds[index]), float(bounds[index + 1]))
        return _plain(self.values[index])

    def law(self) -> tuple[NDArray[Any], Floats]:
        return self.values, self._weights(self._bounds())


class Race(Leaf):
    """Which of several independent exponential arrivals comes first: P(positions[i]) = weights[i]."""

    __slots__ = ("_variables", "positions", "weights")

    def __init__(
        self, run: Run, positions: NDArray[np.int64], variables: NDArray[np.int64], weights: Floats, operation: str
    ) -> None:
        super().__init__(run, operation)
        self.positions = positions
        self.weights = weights
        self._variables = variables

    @property
    def variables(self) -> NDArray[np.int64]:
        return self._variables

    def _decide(self) -> int:
        self.run.consume(self._variables, self.operation)
        return int(self.positions[self.run.choose(self.weights, self.operation)])

    def law(self) -> tuple[NDArray[np.int64], Floats]:
        self.run.consume(self._variables, self.operation)
        return self.positions, self.weights


class Categorical(Leaf):
    """A draw that shares no randomness with any other: P(values[i]) = weights[i]."""

    __slots__ = ("values", "weights")

    def __init__(self, run: Run, values: NDArray[Any], weights: Floats, operation: str) -> None:
        super().__init__(run, operation)
        self.values = values
        self.weights = weights

    @property
    def variables(self) -> NDArray[np.int64]:
        return np.zeros(0, dtype=np.int64)

    def _decide(self) -> Any:
        return _plain(self.values[self.run.choose(self.weights, self.operation)])

    def law(self) -> tuple[NDArray[Any], Floats]:
        return self.values, self.weights


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
