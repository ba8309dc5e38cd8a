"""Arrays of integers and truth values that are not decided yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy import array, asarray
from numpy.typing import NDArray

from specverify.exact import deferred, lazy
from specverify.exact.deferred import Deferred
from specverify.exact.numpy_standins import Standin
from specverify.exact.run import Run

# Numbers of fewer bytes wrap around or are rounded, here and in what is done with them later: such an array is decided.
_KEPT_SIZE = 4


class DeferredArray(Standin):
    """An array of integers or truth values, some of them not decided yet."""

    def __init__(self, run: Run, values: NDArray[Any]) -> None:
        self.run = run
        self.values = values
        self.shape = values.shape

    @classmethod
    def of(cls, run: Run, values: Any, shape: tuple[int, ...]) -> Any:
        """An array of the given numbers and Deferreds: a plain ndarray where nothing is open."""
        flat = [deferred.opened(value) for value in values] if isinstance(values, list) else [deferred.opened(values)]
        if not any(isinstance(value, Deferred) for value in flat):
            return array(flat).reshape(shape)
        return cls(run, object_array(flat).reshape(shape))

    @property
    def dtype(self) -> Any:
        return np.dtype(np.int64)

    def reorganised(self, move: Callable[[NDArray[Any]], NDArray[Any]]) -> DeferredArray:
        return DeferredArray(self.run, asarray(move(self.values), dtype=object))

    def __getitem__(self, index: Any) -> Any:
        part = self.values[plain_index(index)]
        return DeferredArray(self.run, part) if isinstance(part, np.ndarray) else lazy.shown(part)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.values[plain_index(index)] = value.values if isinstance(value, DeferredArray) else value

    def astype(self, dtype: Any, **kwargs: Any) -> Any:
        kind, size = np.dtype(dtype).kind, np.dtype(dtype).itemsize
        if kind in "iuf" and size < _KEPT_SIZE:
            return self.__array__().astype(dtype, **kwargs)
        return self.mapped(_truth if kind == "b" else float if kind == "f" else _whole)

    def mapped(self, function: Callable[..., Any], *others: Any) -> Any:
        """function of every entry (and of the others, broadcast), decided only when looked at."""
        arrays = np.broadcast_arrays(self.values, *(_objects(other) for other in others))
        results = [_lazily(function, cell) for cell in zip(*(array.ravel() for array in arrays), strict=True)]
        return DeferredArray.of(self.run, results, arrays[0].shape)

    def mapped_select(self, first: Any, second: Any) -> Any:
        """first where true, else second: decides only what is taken."""
        arrays = np.broadcast_arrays(self.values, _objects(first), _objects(second))
        cells = zip(*(_plain_list(array) for array in arrays), strict=True)
        results = [lazy.selected(self.run, condition, x, y) for condition, x, y in cells]
        return DeferredArray.of(self.run, results, arrays[0].shape)

    def all(self, axis: int | None = None, out: None = None, keepdims: bool = False) -> Any:
        return self.along(axis, lambda row: deferred.conjunction(self.run, list(row)), keepdims=keepdims)

    def any(self, axis: int | None = None, out: None = None, keepdims: bool = False) -> Any:
        return self.along(axis, lambda row: deferred.disjunction(self.run, list(row)), keepdims=keepdims)

    def sum(self, axis: int | None = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Any:
        return self.along(axis, lambda row: lazy.total(self.run, list(row)), keepdims=keepdims)

    def prod(self, axis: int | None = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Any:
        return self.along(axis, lambda row: lazy.product(self.run, list(row)), keepdims=keepdims)

    def argmax(self, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Any:
        return self.along(axis, lambda row: lazy.first_extreme(self.run, list(row), True), keepdims=keepdims)

    def argmin(self, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Any:
        return self.along(axis, lambda row: lazy.first_extreme(self.run, list(row), False), keepdims=keepdims)

    def cumprod(self, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
        return self.running(axis, lazy.product)

    def cumsum(self, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
        return self.running(axis, lazy.total)

    def running(self, axis: int | None, function: Callable[[Run, list[Any]], Any]) -> Any:
        """function of every prefix along the axis."""
        last = self.ravel() if axis is None else self.reorganised(lambda column: np.moveaxis(column, axis, -1))
        results = np.empty(last.shape, dtype=object)
        for place in np.ndindex(last.shape):
            results[place] = function(self.run, list(last.values[place[:-1]][: place[-1] + 1]))
        return DeferredArray(self.run, results if axis is None else np.moveaxis(results, -1, axis))

    def __iter__(self) -> Iterator[Any]:
        if len(self.shape) != 1:
            return super().__iter__()
        return iter([lazy.shown(value) for value in self.values.tolist()])

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        """Decides every entry."""
        values = [value.resolve() if isinstance(value, Deferred) else value for value in self.values.ravel().tolist()]
        return array(values, dtype=dtype).reshape(self.shape)

    def __bool__(self) -> bool:
        return bool(self.__array__())

    def __int__(self) -> int:
        return int(self.__array__().item())

    def __index__(self) -> int:
        return int(self.__array__().item())

    def __float__(self) -> float:
        return float(self.__array__().item())

    def __repr__(self) -> str:
        return f"<undecided numbers, shape {self.shape}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(name)
        return getattr(self.__array__(), name)


def decided(value: Any) -> Any:
    """The value with what is open in it decided: a number or an ndarray where it was deferred."""
    if isinstance(value, DeferredArray):
        return value.__array__()
    return value.resolve() if isinstance(value, Deferred) else value


def object_array(values: Sequence[Any]) -> NDArray[Any]:
    """A 1-d array of these very objects: numpy must not look into them."""
    objects = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        objects[index] = value
    return objects


def _objects(value: Any) -> NDArray[Any]:
    if isinstance(value, DeferredArray):
        return value.values
    return object_array([value]).reshape(()) if isinstance(value, Deferred) else asarray(value)


def _plain_list(array: NDArray[Any]) -> list[Any]:
    return [value.item() if isinstance(value, np.generic) else value for value in array.ravel().tolist()]


def _lazily(function: Callable[..., Any], cell: tuple[Any, ...]) -> Any:
    plain = [value.item() if isinstance(value, np.generic) else value for value in cell]
    if any(isinstance(value, Deferred) for value in plain):
        return deferred.combined(function, *plain)
    return function(*plain)


def plain_index(index: Any) -> Any:
    """An index with deferred parts decided, as numpy's own indexing would."""
    if isinstance(index, tuple):
        return tuple(plain_index(part) for part in index)
    return decided(index)


def _truth(value: Any) -> bool:
    return bool(value)


def _whole(value: Any) -> int:
    return int(value)
