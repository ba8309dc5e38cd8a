"""Arrays of symbolic random numbers, as numpy programs get them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from numpy import array
from numpy.typing import NDArray

from specverify.exact import selections
from specverify.exact.deferred import Deferred
from specverify.exact.numpy_coarse import CoarseArray, rounded_to_half
from specverify.exact.numpy_deferred import DeferredArray, decided, object_array, plain_index
from specverify.exact.numpy_standins import Standin, direct
from specverify.exact.run import Run
from specverify.exact.scalar import Symbol, from_block, new_symbol
from specverify.exact.symbols import LOG_E, Symbols, constant_symbols

_FLOAT64 = np.dtype(np.float64)
_LISTS = (list, tuple)
_STANDINS = (Standin, Symbol, Deferred)
_PLAIN = frozenset({int, float, bool, np.int64, np.float64, np.ndarray})
SINGLE_PRECISION_NOTE = "random numbers of single precision: real ones are multiples of 2^-24, the law is a continuum's"


class SymbolArray(Standin):
    """An array of random numbers.

    is_shared: its columns may be another array's too, or such as cannot be written into: they are copied before
    anything is written, or a view taken. is_viewed: other arrays are views of it, or it is one itself; what is computed
    from it takes a copy, because writing must show in all views and nowhere else.
    """

    is_viewed = False

    def __init__(self, block: Symbols, dtype: Any = np.float64, *, is_shared: bool = False) -> None:
        self.block = block
        self.is_shared = is_shared
        self.run = block.run
        self.shape = block.variable.shape
        self.dtype = _FLOAT64 if dtype is np.float64 else np.dtype(dtype)

    def reorganised(self, move: Callable[[NDArray[Any]], NDArray[Any]]) -> SymbolArray:
        columns = (move(column) for column in self._viewable().columns)
        return self._view(Symbols(self.run, *columns, form=self.block.form))

    def _own(self) -> None:
        if self.is_shared:
            self.block, self.is_shared = self.block.copy(), False

    def _viewable(self) -> Symbols:
        self._own()
        self.is_viewed = True
        return self.block

    def _view(self, block: Symbols) -> SymbolArray:
        view = SymbolArray(block, self.dtype)
        view.is_viewed = True
        return view

    def computed(self, block: Symbols, other: Any) -> SymbolArray:
        """What was computed from this array, and perhaps another, and may share columns with them."""
        arrays = (self, other) if isinstance(other, SymbolArray) else (self,)
        for operand in arrays:
            if operand.is_viewed:
                return SymbolArray(block.copy())
        for operand in arrays:
            operand.is_shared = True
        return SymbolArray(block, is_shared=True)

    def __getitem__(self, index: Any) -> Any:
        block = self.block
        if type(index) is slice:
            return self._view(self._viewable()[index])
        if type(index) is int and len(self.shape) == 1:
            variable, a, form = block.variable.item(index), block.a.item(index), block.form[0]
            if variable < 0:
                return a
            if form is not None and form.kind <= LOG_E:
                b = block.b.item(index)
                return new_symbol(self.run, variable, form.kind, mirror=form.mirror, a=a, b=b, c=form.c)
            return from_block(block[index])
        part = self._viewable()[plain_index(index)]
        return from_block(part) if part.shape == () else self._view(part)

    def __setitem__(self, index: Any, value: Any) -> None:
        index = plain_index(index)
        self._own()
        target = self.block.variable[index]
        self.block.assign(index, as_block(self.run, value).broadcast(np.shape(target)))

    __mul__, __truediv__ = direct("__mul__", "multiply"), direct("__truediv__", "divide")
    __lt__, __le__ = direct("__lt__", "less"), direct("__le__", "less_equal")
    __gt__, __ge__ = direct("__gt__", "greater"), direct("__ge__", "greater_equal")

    def astype(self, dtype: Any, **kwargs: Any) -> SymbolArray | CoarseArray:
        if np.dtype(dtype).kind != "f":
            self.refuse(f"astype({np.dtype(dtype).name})")
        if np.dtype(dtype).itemsize < 4 and not self.run.halves_are_fine:
            entries = [from_block(self.block[index]) for index in np.ndindex(self.shape)]
            return rounded_to_half(self.run, entries, self.shape, is_single=self.dtype == np.float32)
        if np.dtype(dtype).itemsize == 4:
            self.run.notes.add(SINGLE_PRECISION_NOTE)
        return SymbolArray(self.block.copy(), dtype)

    def argmax(self, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Any:
        return self.along(axis, lambda row: selections.winner(row.block, largest=True), keepdims=keepdims)

    def argmin(self, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Any:
        return self.along(
            axis, lambda row: selections.winner(row.block, largest=False, operation="argmin"), keepdims=keepdims
        )

    def clip(self, min: Any = None, max: Any = None, **kwargs: Any) -> SymbolArray:
        from specverify.exact.conditions import clamp

        return SymbolArray(clamp(self.block, min, max))

    def refuse(self, operation: str) -> NoReturn:
        raise self.run.refuse("the program looks at the values of random numbers", operation)

    def __array__(self, *args: Any, **kwargs: Any) -> NDArray[Any]:
        # The compiled row.searchsorted(u) asks for an array. A search for one object compares it with the row, which
        # decides just what it needs; whatever else may come to see the object cannot read it. Several objects would
        # be compared with each other.
        if self.size == 1 and "searchsorted" in sys._getframe(1).f_code.co_names:
            return object_array(list(self.ravel())).reshape(self.shape)
        self.refuse("conversion to an ndarray")

    def __float__(self) -> float:
        self.refuse("float()")

    def __bool__(self) -> bool:
        self.refuse("bool()")

    def __int__(self) -> int:
        self.refuse("int()")

    def __str__(self) -> str:
        self.refuse("str()")

    def __repr__(self) -> str:
        return f"<random numbers, shape {self.shape}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(name)
        raise self.run.refuse("the array method is not supported on random numbers", name)


def as_block(run: Run, value: Any) -> Symbols:
    """Any operand as a block of symbols: numbers become constants, deferred integers are decided."""
    if isinstance(value, SymbolArray):
        return value.block
    if isinstance(value, Symbol):
        return value.block()
    if isinstance(value, Deferred | DeferredArray):
        return constant_symbols(run, decided(value))
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object):
        parts = [as_block(run, part) for part in value]
        if not parts:
            return constant_symbols(run, np.zeros(0))
        return Symbols(run, *(np.stack(columns) for columns in zip(*(part.columns for part in parts), strict=True)))
    return constant_symbols(run, value)


def constructed(run: Run, real: Callable[..., Any], value: Any, dtype: Any = None, **kwargs: Any) -> Any:
    """What np.array, np.asarray and the like (real is numpy's own) make of values that hold stand-ins."""
    if isinstance(value, SymbolArray | DeferredArray | CoarseArray):
        result = value if real is not array else value.copy()
        return result if dtype is None else result.astype(dtype)
    if isinstance(value, Symbol) or _any_symbol(value):
        symbols = SymbolArray(as_block(run, value))
        return symbols if dtype is None else symbols.astype(dtype)
    objects = array(_opened(value), dtype=object)
    numbers = DeferredArray.of(run, list(objects.ravel()), objects.shape)
    return numbers if dtype is None else numbers.astype(dtype)


def _opened(value: Any) -> Any:
    if isinstance(value, DeferredArray):
        return value.values.tolist()
    return [_opened(part) for part in value] if isinstance(value, list | tuple) else value


def holds_standin(value: Any) -> bool:
    """Whether a random or undecided number is in the value, or in its lists and tuples."""
    if isinstance(value, _LISTS):
        return any(type(part) not in _PLAIN and holds_standin(part) for part in value)
    return isinstance(value, _STANDINS)


def _any_symbol(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_any_symbol(part) for part in value)
    return isinstance(value, Symbol | SymbolArray)
