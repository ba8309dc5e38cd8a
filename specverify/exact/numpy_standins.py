"""What stands in for numpy arrays of random values: symbols, conditions, and integers that are not decided yet.

None of the three is an ndarray: compiled code cannot read them. Symbols refuse to become one; conditions and deferred
integers become one by being decided, which forks.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from specverify.exact import lazy
from specverify.exact.run import Run


@functools.cache
def _late(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that imports this one. Remembered: an import statement costs more than all else here."""
    return getattr(importlib.import_module(f"specverify.exact.{module}"), name)  # type: ignore[no-any-return]


def direct(operator: str, name: str) -> Callable[[Any, Any], Any]:
    """An operator for random numbers that spares the way through numpy's dispatch. name: of numpy's function for it."""
    dispatched = getattr(NDArrayOperatorsMixin, operator)

    def method(self: Any, other: Any) -> Any:
        if type(other) is np.ndarray and other.dtype == np.float64:
            return _late("numpy_ufuncs", "on_symbols")(self.run, name, (self, other))
        return dispatched(self, other)

    return method


class Standin(NDArrayOperatorsMixin):
    """What the three have in common: dispatch of numpy's functions, and shape."""

    run: Run
    shape: tuple[int, ...]

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _late("numpy_ufuncs", "apply_ufunc")(self.run, ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _late("numpy_functions", "apply_function")(self.run, function, args, kwargs)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def T(self) -> Any:
        return self.transpose()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    # The next two are for subclasses; no ABC, whose isinstance is slow.

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError

    def reorganised(self, move: Callable[[NDArray[Any]], NDArray[Any]]) -> Any:
        """The entries moved by a function of arrays that only moves (reshape, transpose, flip, ...)."""
        raise NotImplementedError

    def reshape(self, *shape: Any, order: str = "C") -> Any:
        sizes = shape[0] if len(shape) == 1 else shape
        return self.reorganised(lambda column: column.reshape(sizes))

    def transpose(self, *axes: Any) -> Any:
        return self.reorganised(lambda column: column.transpose(*axes))

    def ravel(self, order: str = "C") -> Any:
        return self.reorganised(lambda column: column.ravel())

    def flatten(self, order: str = "C") -> Any:
        return self.reorganised(lambda column: column.flatten())

    def copy(self, order: str = "C") -> Any:
        return self.reorganised(lambda column: column.copy())

    def squeeze(self, axis: Any = None) -> Any:
        return self.reorganised(lambda column: column.squeeze(axis))

    def swapaxes(self, first: int, second: int) -> Any:
        return self.reorganised(lambda column: column.swapaxes(first, second))

    def take(self, indices: Any, axis: int | None = None) -> Any:
        return self.reorganised(lambda column: column.take(indices, axis=axis))

    def tolist(self) -> Any:
        if not self.shape:
            return self[()]
        return [part.tolist() if isinstance(part, Standin) else part for part in self]

    def item(self, *index: Any) -> Any:
        if self.size != 1 and not index:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self.ravel()[index[0] if index else 0]

    def along(self, axis: int | None, function: Callable[[Any], Any], *, keepdims: bool = False) -> Any:
        """function of every row along the axis (of everything where it is None), as DeferredArray or scalar."""
        if len(self.shape) == 1 and not keepdims and (axis is None or axis in (0, -1)):
            return lazy.shown(function(self))
        from specverify.exact.numpy_deferred import DeferredArray

        if len(self.shape) == 1 and axis in (None, 0, -1):
            rows: Any = self
        elif axis is None:
            rows = self.ravel()
        else:
            rows = self.reorganised(lambda column: np.moveaxis(column, axis, -1))
        if rows.ndim == 1:
            value = function(rows)
            return DeferredArray.of(self.run, value, (1,) * self.ndim) if keepdims else lazy.shown(value)
        outer = rows.shape[:-1]
        flat = rows.reshape((-1, rows.shape[-1]))
        results = [function(flat[index]) for index in range(flat.shape[0])]
        shape = outer if not keepdims else tuple(
            1 if place == axis % self.ndim else length for place, length in enumerate(self.shape)  # type: ignore[operator]
        )  # fmt: skip
        return DeferredArray.of(self.run, results, shape)
