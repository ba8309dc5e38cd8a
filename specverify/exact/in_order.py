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


class InOrder(Function):
    """A function of conditions that decides them one by one, until it knows its value.

    The parts of the function are made only where it becomes a part of another; a number of accepted tokens does not.
    """

    __slots__ = ("_parts", "conditions")

    def __init__(self, conditions: Conditions) -> None:
        self.run = conditions.run
        self._value = UNDECIDED
        self._parts: list[bool | Condition] | None = None
        self.conditions = conditions

    @property
    def parts(self) -> list[bool | Condition]:  # type: ignore[override]
        if self._parts is None:
            self._parts = entries(self.conditions)
        return self._parts

    def only_leaf(self) -> Leaf | None:
        # The parts are leaves of their own, each: several of them need not be made to know that they are no single one.
        return super().only_leaf() if self._parts is not None or self.conditions.size < 2 else None

    def _decide(self) -> Any:
        # Parts that somebody has may be decided already.
        return super()._decide() if self._parts is not None else self._decided_in_order()

    def _decided_in_order(self) -> Any:
        raise NotImplementedError  # for subclasses, as those of Deferred


class UpToFirst(InOrder):
    """Whether an entry is true (looked_for is True), or whether none is false: decided up to the first that is."""

    __slots__ = ("looked_for",)

    def __init__(self, conditions: Conditions, looked_for: bool) -> None:
        super().__init__(conditions)
        self.looked_for = looked_for

    def function(self, get: Get) -> bool:
        found = any(bool(get(index)) is self.looked_for for index in range(len(self.parts)))
        return found is self.looked_for

    def _decided_in_order(self) -> bool:
        decide, looked_for = self.run.decide, self.looked_for
        for variable, threshold, below in zip(*_flat_columns(self.conditions), strict=True):
            if (below if variable < 0 else decide(variable, threshold) == below) is looked_for:
                return looked_for
        return not looked_for


class FirstTrue(InOrder):
    """The position of the first event of several that happens, or fallback. positions: those of the conditions."""

    __slots__ = ("fallback", "positions")

    def __init__(self, conditions: Conditions, positions: list[int], fallback: int) -> None:
        super().__init__(conditions)
        self.positions = positions
        self.fallback = fallback

    def function(self, get: Get) -> int:
        return next((position for index, position in enumerate(self.positions) if get(index)), self.fallback)

    def _decided_in_order(self) -> int:
        decide = self.run.decide
        events = zip(*_flat_columns(self.conditions), self.positions, strict=True)
        for variable, threshold, below, position in events:
            if decide(variable, threshold) == below:
                return position
        return self.fallback
