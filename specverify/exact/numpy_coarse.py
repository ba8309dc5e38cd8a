"""Arrays of random numbers of half precision, as numpy programs get them from astype(float16)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from specverify.exact.coarse import Coarse, computed, require_exact, rounded_uniform
from specverify.exact.numpy_deferred import DeferredArray, object_array, plain_index
from specverify.exact.numpy_standins import Standin
from specverify.exact.run import Run
from specverify.exact.scalar import Symbol

_COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")


class CoarseArray(Standin):
    """An array of coarse numbers and numpy scalars. What is computed is rounded as numpy rounds in this type."""

    def __init__(self, run: Run, values: NDArray[Any], dtype: Any) -> None:
        self.run = run
        self.values = values
        self.shape = values.shape
        self.dtype = np.dtype(dtype)

    def reorganised(self, move: Callable[[NDArray[Any]], NDArray[Any]]) -> CoarseArray:
        return CoarseArray(self.run, np.asarray(move(self.values), dtype=object), self.dtype)

    def __getitem__(self, index: Any) -> Any:
        part = self.values[plain_index(index)]
        return CoarseArray(self.run, part, self.dtype) if isinstance(part, np.ndarray) else part

    def tolist(self) -> Any:
        if not self.shape:
            return self[()].item()
        return [part.tolist() if isinstance(part, Standin) else part.item() for part in self]

    def astype(self, dtype: Any, **kwargs: Any) -> Any:
        cells = [
            cell.with_table(cell.table.astype(dtype)) if isinstance(cell, Coarse) else cell.astype(dtype)
            for cell in self.values.ravel()
        ]
        return _wrapped(self.run, cells, self.shape, np.dtype(dtype))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return apply_coarse_ufunc(self.run, ufunc, method, inputs, kwargs)

    def refuse(self, operation: str) -> NoReturn:
        raise self.run.refuse("not supported on random numbers of half precision", operation)

    def __array__(self, *args: Any, **kwargs: Any) -> NDArray[Any]:
        self.refuse("conversion to an ndarray")

    def __setitem__(self, index: Any, value: Any) -> None:
        self.refuse("assignment")

    def __bool__(self) -> bool:
        self.refuse("bool()")

    def __float__(self) -> float:
        self.refuse("float()")

    def __repr__(self) -> str:
        return f"<random numbers of half precision, shape {self.shape}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(name)
        self.refuse(name)


def rounded_to_half(run: Run, entries: Sequence[Any], shape: tuple[int, ...], *, is_single: bool) -> CoarseArray:
    """Symbols and numbers, in order, as a float16 array. is_single: the symbols are float32 draws."""
    cells = [
        rounded_uniform(entry, "float16", is_single=is_single, via_single=False, table=np.float16)
        if isinstance(entry, Symbol)
        else np.float16(entry)
        for entry in entries
    ]
    return CoarseArray(run, object_array(cells).reshape(shape), np.float16)


def apply_coarse_ufunc(run: Run, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """ufunc(*inputs) where an input is coarse: entry by entry, each by numpy on all its values."""
    run.require_current(f"numpy.{ufunc.__name__}")
    if method != "__call__" or kwargs or ufunc.nout != 1:
        raise run.refuse("not supported on random numbers of half precision", f"numpy.{ufunc.__name__}.{method}")
    arrays = np.broadcast_arrays(*(_objects(run, value) for value in inputs))
    cells = [_entry(ufunc, cell) for cell in zip(*(array.ravel() for array in arrays), strict=True)]
    return cells[0] if arrays[0].shape == () else _wrapped(run, cells, arrays[0].shape)


def _entry(ufunc: Any, cell: tuple[Any, ...]) -> Any:
    numbers = [value for value in cell if isinstance(value, Coarse)]
    if not numbers:
        return ufunc(*cell)
    is_comparison = ufunc.__name__ in _COMPARISONS
    if numbers[0].is_number and not is_comparison:
        numbers[0].refuse(f"numpy.{ufunc.__name__}")
    require_exact(numbers[0], is_comparison, [value.dtype for value in cell if isinstance(value, np.generic)])
    return computed(ufunc, cell)


def _objects(run: Run, value: Any) -> NDArray[Any]:
    """The entries as they are, numpy's scalars with their types: these decide how numpy rounds."""
    if isinstance(value, CoarseArray):
        return value.values
    if isinstance(value, np.ndarray):
        return object_array(list(value.ravel())).reshape(value.shape)
    if isinstance(value, (Coarse, int, float, np.generic)):
        return object_array([value]).reshape(())
    raise run.refuse("random numbers of half precision are combined with other random numbers", type(value).__name__)


def _wrapped(run: Run, cells: list[Any], shape: tuple[int, ...], dtype: Any = None) -> Any:
    first = next((cell for cell in cells if isinstance(cell, Coarse)), None)
    if first is None:
        return DeferredArray.of(run, cells, shape)
    return CoarseArray(run, object_array(cells).reshape(shape), dtype or first.table.dtype)
