"""numpy's other functions on stand-ins: selection, joining, cumulative sums. What is not listed is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import asarray

from specverify.exact import conditions, deferred, lazy, selections, symbols
from specverify.exact.deferred import Deferred
from specverify.exact.numpy_arrays import SymbolArray, as_block, holds_standin
from specverify.exact.numpy_deferred import DeferredArray, decided, object_array
from specverify.exact.numpy_standins import Standin
from specverify.exact.run import Run
from specverify.exact.scalar import Symbol, from_block

_Function = Callable[..., Any]
# Functions that are methods of every stand-in.
_METHODS = ("argmax", "argmin", "reshape", "ravel", "squeeze", "transpose", "swapaxes", "take", "copy", "clip",
            "all", "any", "sum", "prod", "cumsum", "cumprod")  # fmt: skip
_ALIASES = {"amax": "max", "amin": "min"}
# Functions that only move entries: run on every column.
_MOVES = ("expand_dims", "flip", "roll", "moveaxis", "broadcast_to", "repeat", "tile", "take_along_axis", "atleast_1d",
          "atleast_2d", "fliplr", "flipud")  # fmt: skip
_JOINS = ("concatenate", "stack", "vstack", "hstack", "append")


def apply_function(run: Run, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """function(*args, **kwargs) where an argument is a stand-in; the entry point of __array_function__."""
    name: str = function.__name__
    if run.is_finished:
        run.require_current(f"numpy.{name}")
    if name in _SPECIAL:
        return _SPECIAL[name](run, *args, **kwargs)
    first = args[0] if args else None
    if name in _METHODS and isinstance(first, Standin):
        return getattr(first, name)(*args[1:], **kwargs)
    if name in _MOVES and isinstance(first, Standin) and not holds_standin(args[1:]):
        return first.reorganised(lambda column: asarray(function(column, *args[1:], **kwargs)))
    if name in _JOINS:
        return _joined(run, function, name, *args, **kwargs)
    if _has_symbol((args, kwargs)):
        raise run.refuse("not supported on random numbers", f"numpy.{name}")
    return function(*_decided(args), **{key: _decided(value) for key, value in kwargs.items()})


def _where(run: Run, condition: Any, *branches: Any) -> Any:
    if not branches:
        return np.nonzero(_decided(condition))
    first, second = branches
    if isinstance(first, Symbol | SymbolArray) or isinstance(second, Symbol | SymbolArray):
        x, y = as_block(run, first), as_block(run, second)
        shape = np.broadcast_shapes(np.shape(_decided(condition)), x.shape, y.shape)
        block = symbols.where(np.broadcast_to(_decided(condition), shape), x.broadcast(shape), y.broadcast(shape))
        return from_block(block) if shape == () else SymbolArray(block)
    if isinstance(condition, Deferred):
        condition = DeferredArray(run, _boxed(condition))
    if isinstance(condition, DeferredArray):
        return DeferredArray(run, condition.values).mapped_select(first, second)
    objects = np.where(condition, _boxed(first), _boxed(second))
    return DeferredArray.of(run, list(objects.ravel()), objects.shape)


def _searchsorted(run: Run, row: Any, value: Any, side: str = "left", sorter: Any = None) -> Any:
    if sorter is not None or isinstance(row, Symbol | SymbolArray):
        raise run.refuse("not supported on random numbers", "numpy.searchsorted")
    if isinstance(value, Deferred | DeferredArray):
        return np.searchsorted(_decided(row), decided(value), side=side)  # type: ignore[call-overload]
    row = _decided(row)
    if isinstance(value, Symbol):
        if value.is_affine and value.a == 0.0 < value.b and len(row):
            return lazy.shown(selections.search_uniform(run, value.variable, value.b, asarray(row)))
        return lazy.shown(selections.search(value.block(), row))
    block = as_block(run, value)
    flat = block.reshaped((block.size,))
    results = [selections.search(flat[index : index + 1], row) for index in range(flat.size)]
    return DeferredArray.of(run, results, block.shape)


def _clip(run: Run, array: Any, low: Any = None, high: Any = None, *args: Any, **kwargs: Any) -> Any:
    low, high = kwargs.get("min", kwargs.get("a_min", low)), kwargs.get("max", kwargs.get("a_max", high))
    if isinstance(array, Symbol | SymbolArray):
        block = conditions.clamp(as_block(run, array), low, high)
        return from_block(block) if block.shape == () else SymbolArray(block)
    if isinstance(array, Deferred):
        return deferred.combined(lambda value: int(np.clip(value, low, high)), array)
    if isinstance(array, DeferredArray):
        return array.mapped(lambda value: int(np.clip(value, low, high)))
    return np.clip(_decided(array), _decided(low), _decided(high))


def _shape(run: Run, array: Any) -> tuple[int, ...]:
    return tuple(array.shape)


def _ndim(run: Run, array: Any) -> int:
    return len(array.shape)


def _size(run: Run, array: Any, axis: int | None = None) -> int:
    return int(np.prod(array.shape)) if axis is None else int(array.shape[axis])


def _empty_like(maker: _Function) -> _Function:
    def function(run: Run, array: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("dtype", getattr(array, "dtype", np.float64))
        return maker(kwargs.pop("shape", None) or array.shape, *args, **kwargs)

    return function


def _nonzero(run: Run, array: Any) -> Any:
    return np.nonzero(_decided(array))


def _iscomplexobj(run: Run, array: Any) -> bool:
    return False


_SPECIAL: dict[str, _Function] = {
    "where": _where,
    "searchsorted": _searchsorted,
    "clip": _clip,
    "shape": _shape,
    "ndim": _ndim,
    "size": _size,
    "zeros_like": _empty_like(np.zeros),
    "ones_like": _empty_like(np.ones),
    "empty_like": _empty_like(np.empty),
    "full_like": _empty_like(np.full),
    "nonzero": _nonzero,
    "iscomplexobj": _iscomplexobj,
}


def _joined(run: Run, function: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    parts = list(args[0]) if name != "append" else [args[0], args[1]]
    rest = args[1:] if name != "append" else args[2:]
    if name == "append":
        function = np.concatenate
        parts = [np.atleast_1d(part) if not isinstance(part, Standin) else part.ravel() for part in parts]
    kwargs.pop("out", None)
    if any(isinstance(part, Symbol | SymbolArray) for part in parts):
        blocks = [as_block(run, part) for part in parts]
        columns = zip(*(block.columns for block in blocks), strict=True)
        return SymbolArray(symbols.Symbols(run, *(function(column, *rest, **kwargs) for column in columns)))
    objects = function([_boxed(part) for part in parts], *rest, **kwargs)
    return DeferredArray.of(run, list(objects.ravel()), objects.shape)


def _boxed(value: Any) -> Any:
    if isinstance(value, DeferredArray):
        return value.values
    return object_array([value]).reshape(()) if isinstance(value, Deferred) else asarray(value).astype(object)


def _has_symbol(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(_has_symbol(part) for part in value)
    if isinstance(value, dict):
        return _has_symbol(list(value.values()))
    return isinstance(value, SymbolArray | Symbol)


def _decided(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_decided(part) for part in value)
    if isinstance(value, list):
        return [_decided(part) for part in value]
    return decided(value)
