"""The uniform variables of one run, and what is known of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# States of a variable. Whoever narrows a clamped one, other than by a clamp, makes it an inspected one.
FREE, INSPECTED, RACED, CLAMPED = 0, 1, 2, 3
WHOLE = (0.0, 1.0)


class Variables:
    """Uniform variables, numbered from 0. One starts free, with the interval [0, 1).

    known: variable -> the interval that it lies in, where it is a part of [0, 1). is_simple: whether the run goes on
    and no leaf was ever held, so that the intervals are all that is known.
    """

    def __init__(self) -> None:
        self.num_variables = 0
        self.known: dict[int, tuple[float, float]] = {}
        self.is_simple = True
        self._state = bytearray(256)
        self._held: dict[int, Any] = {}

    def new_variables(self, count: int) -> int:
        """Number of the first of so many new free variables; the rest follow it."""
        first = self.num_variables
        self.num_variables += count
        if self.num_variables > len(self._state):
            self._state = self._state + bytes(max(len(self._state), count))
        return first

    def hold(self, variable: int, leaf: Any) -> None:
        """The leaf knows more about the variable than an interval says: others must decide it first."""
        self._held[variable] = leaf
        self.is_simple = False

    def release(self, variable: int) -> None:
        """The leaf is being decided: what it knows will be an interval again."""
        self._held.pop(variable, None)

    def _states(self) -> NDArray[np.uint8]:
        """The states of all variables as an array of the same memory."""
        return np.frombuffer(self._state, dtype=np.uint8)

    def _settle_holder(self, variable: int, asker: Any = None) -> None:
        holder = self._held.get(variable)
        if holder is not None and holder is not asker:
            holder.resolve()

    def interval(self, variable: int, asker: Any = None) -> tuple[float, float]:
        """Where the variable is known to lie. asker: the leaf that asks, if it is one."""
        if self._held:
            self._settle_holder(variable, asker)
        return self.known.get(variable, WHOLE)

    def intervals(self, variables: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper ends for an array of variables; entries below 0 (constants) get [0, 1)."""
        for held in list(self._held):
            if (variables == held).any():
                self._settle_holder(held)
        low, high = np.zeros(variables.shape), np.ones(variables.shape)
        inside = np.maximum(variables, 0)
        for position in zip(*np.nonzero((self._states()[inside] % 2 == 1) & (variables >= 0)), strict=True):
            low[position], high[position] = self.known[int(variables[position])]
        return low, high

    def narrow(self, variable: int, low: float, high: float) -> None:
        """Records that the variable lies in [low, high)."""
        self.known[variable] = (low, high)
        self._state[variable] = INSPECTED
