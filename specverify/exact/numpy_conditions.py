"""Arrays of comparisons that are not decided yet, as truth values and as ones and zeros."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.exact import deferred, in_order, lazy, selections
from specverify.exact.conditions import Conditions
from specverify.exact.numpy_deferred import DeferredArray, object_array, plain_index


class ConditionArray(DeferredArray):
    """An array of comparisons, still as thresholds, so that a row of 10^5 of them stays one choice."""

    def __init__(self, conditions: Conditions) -> None:
        self.conditions = conditions
        self.run = conditions.run
        self.shape = conditions.shape

    @property
    def values(self) -> NDArray[Any]:  # type: ignore[override]
        return object_array(in_order.entries(self.conditions)).reshape(self.shape)

    @property
    def dtype(self) -> Any:
        return np.dtype(np.bool_)

    def reorganised(self, move: Callable[[NDArray[Any]], NDArray[Any]]) -> ConditionArray:
        return ConditionArray(Conditions(self.run, *(move(column) for column in self.conditions.columns)))

    def __getitem__(self, index: Any) -> Any:
        part = self.conditions[plain_index(index)]
        return lazy.shown(in_order.condition_at(part, ())) if part.shape == () else ConditionArray(part)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise self.run.refuse("an array of undecided comparisons is written to", "assignment")

    def __invert__(self) -> ConditionArray:
        return ConditionArray(self.conditions.inverted())

    def astype(self, dtype: Any, **kwargs: Any) -> Any:
        return ConditionNumbers(self.conditions) if np.dtype(dtype).kind in "iu" else super().astype(dtype)

    def cumprod(self, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
        return ConditionNumbers(self.conditions).cumprod(axis)

    def all(self, axis: int | None = None, out: None = None, keepdims: bool = False) -> Any:
        return self.along(axis, lambda row: selections.all_true(row.conditions), keepdims=keepdims)

    def any(self, axis: int | None = None, out: None = None, keepdims: bool = False) -> Any:
        return self.along(axis, lambda row: selections.any_true(row.conditions), keepdims=keepdims)

    def sum(self, axis: int | None = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Any:
        return self.along(axis, lambda row: selections.count_true(row.conditions), keepdims=keepdims)

    def argmax(self, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Any:
        return self.along(axis, lambda row: selections.first_true(row.conditions), keepdims=keepdims)

    def argmin(self, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Any:
        return self.along(axis, lambda row: selections.first_true(row.conditions.inverted()), keepdims=keepdims)


class ConditionNumbers(DeferredArray):
    """Comparisons as ones and zeros. The sum of their running product, the length of an accepted prefix, is one look
    for the first that is false.
    """

    def __init__(self, conditions: Conditions, *, is_running: bool = False) -> None:
        self.conditions = conditions
        self.run = conditions.run
        self.shape = conditions.shape
        self.is_running = is_running

    @property
    def values(self) -> NDArray[Any]:  # type: ignore[override]
        numbers = [deferred.combined(int, entry) for entry in in_order.entries(self.conditions)]
        row = object_array(numbers).reshape(self.shape)
        return DeferredArray(self.run, row).running(None, lazy.product).values if self.is_running else row

    def reorganised(self, move: Callable[[NDArray[Any]], NDArray[Any]]) -> DeferredArray:
        if self.is_running:
            return super().reorganised(move)
        return ConditionNumbers(Conditions(self.run, *(move(column) for column in self.conditions.columns)))

    def sum(self, axis: int | None = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Any:
        if not self.is_running:
            return ConditionArray(self.conditions).sum(axis, keepdims=keepdims)
        if keepdims:
            return super().sum(axis, keepdims=True)
        return lazy.shown(selections.first_true(self.conditions.inverted(), default=self.conditions.size))

    def cumprod(self, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
        if self.is_running or self.conditions.variable.ndim != 1:
            return super().cumprod(axis)
        return ConditionNumbers(self.conditions, is_running=True)
