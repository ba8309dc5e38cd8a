"""The draws that can be deferred: a step function of one uniform, a race, a categorical draw."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy import array
from numpy.typing import NDArray

from specverify.exact.columns import Floats
from specverify.exact.deferred import Deferred, plain
from specverify.exact.run import Run

# Up to this many edges a step function is evaluated with Python floats, which is faster than arrays.
_MANY = 48


class Leaf(Deferred):
    """A deferred draw with a law of its own.

    Part of it may be known: where a program asks only whether a token is the end token, the path forks in two, and
    the leaf goes on with the outcomes that are left.
    """

    __slots__ = ("_allowed", "operation")
    # A draw with two outcomes gains nothing from being asked only about a function of it.
    is_binary = False

    def __init__(self, run: Run, operation: str) -> None:
        super().__init__(run)
        self.operation = operation
        self._allowed: NDArray[np.bool_] | None = None

    # The next three are for subclasses, as those of Deferred.

    @property
    def variables(self) -> NDArray[np.int64]:
        """The uniform variables it depends on."""
        raise NotImplementedError

    def outcomes(self) -> tuple[Any, Any]:
        """(values, weights) given what is known of its variables."""
        raise NotImplementedError

    @property
    def possible_values(self) -> NDArray[Any]:
        """All values of `outcomes`, without asking what is known of the variables."""
        raise NotImplementedError

    def settle(self, index: int) -> None:
        """Records what outcome number index says about its variables."""

    def law(self) -> tuple[Any, Any]:
        """(values, weights), given all that is known; at the end of a run, or just before deciding."""
        values, weights = self.outcomes()
        if self._allowed is None:
            return values, weights
        kept = np.where(self._allowed, weights, 0.0)
        return values, kept / kept.sum()

    def restrict(self, allowed: NDArray[np.bool_]) -> None:
        """Rules outcomes out. Whoever asks about one of its variables from now on decides the leaf first."""
        self._allowed = allowed if self._allowed is None else self._allowed & allowed
        for variable in self.variables.tolist():
            self.run.hold(variable, self)

    def _decide(self) -> Any:
        values, weights = self.law()
        # Where the value is settled already there is nothing to choose.
        settled = _only_possible(weights)
        index = self.run.choose(weights, self.operation) if settled is None else settled
        if self._allowed is not None:
            for variable in self.variables.tolist():
                self.run.release(variable)
        self.settle(index)
        return values.item(index) if isinstance(values, np.ndarray) else plain(values[index])

    def leaves(self) -> Iterator[Leaf]:
        if not self.is_decided:
            yield self

    def value_given(self, values: dict[int, Any]) -> Any:
        return self._value if self.is_decided else values[id(self)]


def _only_possible(weights: Any) -> int | None:
    """The one outcome that is possible; None where there are several."""
    if isinstance(weights, tuple):
        return None if len(weights) - weights.count(0.0) != 1 else next(i for i, weight in enumerate(weights) if weight)
    support = np.flatnonzero(weights)
    return int(support[0]) if len(support) == 1 else None


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
        return array([self.variable])

    @property
    def possible_values(self) -> NDArray[Any]:
        return self.values

    @property
    def is_whole(self) -> bool:
        """Whether every value is an int already."""
        return self.values.dtype.kind in "iu"

    def _cells(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Edges of the cells within what is known of the variable, and the conditional weights of the cells."""
        self.run.require_unraced(self.variable, self.operation)
        low, high = self.run.interval(self.variable, self)
        if low == 0.0 and high == 1.0:
            return _whole_cells(self.edges.tobytes())
        bounds = [low, *self.edges.tolist(), high]
        bounds = [min(max(bound, low), high) for bound in bounds]
        width = high - low
        return tuple(bounds), tuple((end - start) / width for start, end in itertools.pairwise(bounds))

    def outcomes(self) -> tuple[NDArray[Any], Any]:
        return self.values, self._bounds_and_weights()[1]

    def settle(self, index: int) -> None:
        bounds = self._bounds_and_weights()[0]
        self.run.narrow(self.variable, float(bounds[index]), float(bounds[index + 1]))

    def _bounds_and_weights(self) -> tuple[Any, Any]:
        return self._many_cells() if len(self.edges) > _MANY else self._cells()

    def _many_cells(self) -> tuple[Floats, Floats]:
        """As _cells, with arrays."""
        self.run.require_unraced(self.variable, self.operation)
        low, high = self.run.interval(self.variable, self)
        bounds = np.clip(np.concatenate(([low], self.edges, [high])), low, high)
        return bounds, np.diff(bounds) / (high - low)


class Race(Leaf):
    """Which of several independent exponential arrivals comes first: P(positions[i]) = weights[i]."""

    __slots__ = ("_is_run", "_variables", "positions", "weights")

    def __init__(
        self, run: Run, positions: NDArray[np.int64], variables: NDArray[np.int64], weights: Floats, operation: str
    ) -> None:
        super().__init__(run, operation)
        self.positions = positions
        self.weights = weights
        self._variables = variables
        self._is_run = False

    @property
    def variables(self) -> NDArray[np.int64]:
        return self._variables

    is_whole = True

    @property
    def possible_values(self) -> NDArray[Any]:
        return self.positions

    def outcomes(self) -> tuple[NDArray[np.int64], Floats]:
        if not self._is_run:
            self.run.consume(self._variables, self.operation)
            self._is_run = True
        return self.positions, self.weights

    def restrict(self, allowed: NDArray[np.bool_]) -> None:
        # Its variables are used up: nobody else can ask about them.
        self._allowed = allowed if self._allowed is None else self._allowed & allowed

    def _decide(self) -> Any:
        self._allowed, allowed = None, self._allowed
        values, weights = self.outcomes()
        if allowed is not None:
            weights = np.where(allowed, weights, 0.0)
            weights /= weights.sum()
        return int(values[self.run.choose(weights, self.operation)])


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

    @property
    def possible_values(self) -> NDArray[Any]:
        return self.values

    def outcomes(self) -> tuple[NDArray[Any], Floats]:
        return self.values, self.weights


@functools.lru_cache(maxsize=4096)
def _whole_cells(edges: bytes) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Edges and weights of the cells of [0, 1). Remembered: an enumeration meets the same law at every replay."""
    bounds = (0.0, *np.frombuffer(edges).tolist(), 1.0)
    return bounds, tuple(end - start for start, end in itertools.pairwise(bounds))
