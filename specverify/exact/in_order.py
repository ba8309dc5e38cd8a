"""What is decided entry by entry, in order, up to the first comparison that settles it."""

from __future__ import annotations

from typing import Any

from specverify.exact.conditions import Conditions
from specverify.exact.deferred import UNDECIDED, Function, Get
from specverify.exact.events import Condition
from specverify.exact.leaves import Leaf


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
