"""numpy's elementwise functions on stand-ins. What is not listed is refused by name; nothing is computed by guess."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import asarray

from specverify.exact import algebra, conditions, transforms
from specverify.exact.columns import Floats, every
from specverify.exact.deferred import Deferred, combined, plain
from specverify.exact.events import Condition
from specverify.exact.numpy_arrays import SymbolArray, as_block
from specverify.exact.numpy_conditions import ConditionArray
from specverify.exact.numpy_deferred import DeferredArray, decided
from specverify.exact.run import Run
from specverify.exact.scalar import Symbol, from_block
from specverify.exact.symbols import Symbols, common_shape

_Block = Callable[[Symbols], Symbols]

_UNARY: dict[str, _Block] = {
    "negative": algebra.negative,
    "positive": lambda block: block,
    "log": transforms.log,
    "log2": lambda block: algebra.scale(transforms.log(block), 1.0 / np.log(2.0)),
    "log10": lambda block: algebra.scale(transforms.log(block), 1.0 / np.log(10.0)),
    "log1p": lambda block: transforms.log(algebra.shift(block, 1.0)),
    "exp": transforms.exp,
    "exp2": lambda block: transforms.exp(algebra.scale(block, np.log(2.0))),
    "expm1": lambda block: algebra.shift(transforms.exp(block), -1.0),
    "sqrt": lambda block: transforms.power(block, 0.5),
    "square": lambda block: transforms.power(block, 2.0),
    "reciprocal": lambda block: transforms.power(block, -1.0),
}
_BINARY: dict[str, Callable[[Symbols, Symbols], Symbols]] = {
    "add": algebra.add,
    "subtract": algebra.subtract,
    "multiply": algebra.multiply,
    "divide": lambda first, second: algebra.multiply(first, transforms.power(second, -1.0)),
}
_RANDOM = (Symbol, SymbolArray)
_FLOAT64 = np.dtype(np.float64)
_COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
_DEFERRED: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "negative": operator.neg,
    "absolute": abs,
    "minimum": min,
    "maximum": max,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "logical_not": operator.not_,
}
_DEFERRED_REDUCTIONS = {"add": "sum", "multiply": "prod", "logical_and": "all", "logical_or": "any"}


def apply_ufunc(run: Run, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """ufunc(*inputs) where an input is a stand-in; the entry point of __array_ufunc__."""
    name: str = ufunc.__name__
    if run.is_finished:
        run.require_current(f"numpy.{name}")
    out = kwargs.pop("out", (None,))[0]
    if kwargs:
        kwargs = {key: value for key, value in kwargs.items() if key not in ("casting", "subok", "dtype", "order")}
    result = _result(run, ufunc, name, method, inputs, kwargs)
    return result if out is None else _written(run, name, out, result)


def _result(run: Run, ufunc: Any, name: str, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(inputs[0], _RANDOM) or any(isinstance(value, _RANDOM) for value in inputs[1:]):
        if method != "__call__" or kwargs:
            raise run.refuse("not supported on random numbers", f"numpy.{name}" + (f".{method}" if method else ""))
        return on_symbols(run, name, inputs)
    return _on_deferred(run, ufunc, name, method, inputs, kwargs)


def on_symbols(run: Run, name: str, inputs: tuple[Any, ...]) -> Any:
    """The function of that name where an input is random; the entry point of operators."""
    if run.is_finished:
        run.require_current(f"numpy.{name}")
    if len(inputs) == 2:
        if name in _COMPARISONS:
            return compare(run, name, *inputs)
        if name in _BINARY:
            if all(isinstance(value, _RANDOM) for value in inputs):
                return _wrapped(_BINARY[name](*(as_block(run, value) for value in inputs)), *inputs)
            return _wrapped(_with_number(run, name, *inputs), *inputs)
    elif name in _UNARY:
        return _wrapped(_UNARY[name](as_block(run, inputs[0])), inputs[0])
    if name in ("isnan", "isinf", "isfinite"):
        block = as_block(run, inputs[0])
        return np.where(block.variable < 0, getattr(np, name)(block.a), name == "isfinite")
    if name in ("maximum", "minimum", "fmax", "fmin"):
        return _clamped(run, name, *inputs)
    if name == "floor" and isinstance(inputs[0], Symbol):
        return inputs[0].__floor__()
    if name in ("absolute", "fabs"):
        return _wrapped(transforms.absolute(as_block(run, inputs[0])), inputs[0])
    if name in ("power", "float_power"):
        return _power(run, *inputs)
    raise run.refuse("not supported on random numbers", f"numpy.{name}")


def _with_number(run: Run, name: str, first: Any, second: Any) -> Symbols:
    """One of the two operands is plain."""
    if isinstance(first, _RANDOM):
        block, number = as_block(run, first), _floats(second)
        if name == "add":
            return algebra.shift(block, number)
        if name == "subtract":
            return algebra.shift(block, -number)
        # Dividing by a number rounds once; multiplying by its reciprocal would round twice.
        return algebra.scale(block, number) if name == "multiply" else _divided(block, number)
    number, block = _floats(first), as_block(run, second)
    if name == "add":
        return algebra.shift(block, number)
    if name == "subtract":
        return algebra.shift(algebra.negative(block), number)
    return algebra.scale(block, number) if name == "multiply" else transforms.ratio(number, block)


def compare(run: Run, name: str, first: Any, second: Any) -> Any:
    """first < second and so on, as conditions."""
    if not isinstance(first, _RANDOM):
        return compare(run, conditions.mirrored(name), second, first)
    if isinstance(second, _RANDOM):
        block = algebra.subtract(as_block(run, first), as_block(run, second))
        result = conditions.compare(block, name, np.zeros(()))
    else:
        number = _floats(second)
        if isinstance(first, Symbol) and number.ndim:
            result = conditions.compare_one(first, name, number)
        else:
            result = conditions.compare(as_block(run, first), name, number)
    if not result.size or (int(result.variable.item(0)) < 0 and every(result.variable < 0)):
        return result.below[()]
    if result.shape == ():
        return Condition(run, int(result.variable), float(result.threshold), bool(result.below))
    # A copy, because the program may write into the numbers that were compared.
    variable = result.variable.copy() if isinstance(first, SymbolArray) else result.variable
    return ConditionArray(conditions.Conditions(run, variable, result.threshold, result.below))


def _floats(value: Any) -> Floats:
    """A plain operand as an array; what is open in it is decided."""
    if type(value) is np.ndarray and value.dtype is _FLOAT64:
        return value
    return asarray(decided(value), dtype=np.float64)


def _clamped(run: Run, name: str, first: Any, second: Any) -> Any:
    if not isinstance(first, _RANDOM):
        first, second = second, first
    if isinstance(second, _RANDOM):
        raise run.refuse("the larger of two random values has no closed form", f"numpy.{name}")
    bound = _floats(second)
    low, high = (bound, None) if name in ("maximum", "fmax") else (None, bound)
    return _wrapped(conditions.clamp(as_block(run, first), low, high), first)


def _divided(block: Symbols, number: Any) -> Symbols:
    shape = common_shape(block, number)
    wide, numbers = block.broadcast(shape), np.broadcast_to(number, shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = (wide.variable >= 0) & np.isfinite(numbers) & (numbers != 0.0)
        rest = algebra.scale(wide, np.where(plain, 1.0, 1.0 / numbers))
        constant = wide.variable < 0
        a = np.where(plain, wide.a / numbers, np.where(constant, wide.a / numbers, rest.a))
        b = np.where(plain, wide.b / numbers, rest.b)
    return Symbols(block.run, rest.variable, rest.kind, rest.mirror, a, b, rest.c, rest.parent)


def _power(run: Run, base: Any, exponent: Any) -> Any:
    if isinstance(exponent, _RANDOM):
        if isinstance(base, _RANDOM):
            raise run.refuse("a power of two random values has no closed form", "numpy.power")
        log_base = np.log(_floats(base))
        return _wrapped(transforms.exp(algebra.scale(as_block(run, exponent), log_base)), exponent)
    return _wrapped(transforms.power(as_block(run, base), _floats(exponent)), base)


def _on_deferred(run: Run, ufunc: Any, name: str, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    first = inputs[0]
    if method == "reduce" and name in _DEFERRED_REDUCTIONS and isinstance(first, DeferredArray):
        reduction = getattr(first, _DEFERRED_REDUCTIONS[name])
        return reduction(axis=kwargs.get("axis", 0), keepdims=bool(kwargs.get("keepdims", False)))
    if method == "accumulate" and name in ("add", "multiply") and isinstance(first, DeferredArray):
        return (first.cumsum if name == "add" else first.cumprod)(axis=kwargs.get("axis", 0))
    if method == "__call__" and not kwargs:
        if name in ("invert", "logical_not") and isinstance(first, ConditionArray):
            return ConditionArray(first.conditions.inverted())
        if name in ("logical_and", "bitwise_and", "logical_or", "bitwise_or"):
            return _connected(run, name, *inputs)
        if name in _DEFERRED:
            if not any(isinstance(value, np.ndarray | DeferredArray) for value in inputs):
                return combined(_DEFERRED[name], *(plain(value) for value in inputs))
            if isinstance(first, DeferredArray):
                return first.mapped(_DEFERRED[name], *inputs[1:])
            if len(inputs) == 2 and isinstance(inputs[1], DeferredArray):
                function = _DEFERRED[name]
                return inputs[1].mapped(lambda own, other: function(other, own), first)
    return getattr(ufunc, method)(*(decided(value) for value in inputs), **kwargs)


def _connected(run: Run, name: str, first: Any, second: Any) -> Any:
    """and / or of conditions with plain truth values stays a block of thresholds; of two blocks, entry by entry."""
    is_and = name.endswith("and")
    for lazy, known in ((first, second), (second, first)):
        if not isinstance(lazy, ConditionArray) or isinstance(known, Deferred | DeferredArray):
            continue
        truth = asarray(known)
        if truth.dtype != np.bool_:
            break
        shape = np.broadcast_shapes(lazy.shape, truth.shape)
        block, truth = lazy.conditions.broadcast(shape), np.broadcast_to(truth, shape)
        settled = ~truth if is_and else truth
        return ConditionArray(
            conditions.Conditions(
                run, np.where(settled, -1, block.variable), block.threshold, np.where(settled, truth, block.below)
            )
        )
    array, other = (first, second) if isinstance(first, DeferredArray) else (second, first)
    return DeferredArray(run, array.values).mapped(operator.and_ if is_and else operator.or_, other)


def _wrapped(block: Symbols, first: Any, second: Any = None) -> Any:
    """The block as the program gets it. first, second: what it was computed from."""
    form = block.form[0]
    if not (form is not None and form.is_full and block.size) and every(block.variable < 0):
        return block.a.copy()[()]
    if block.shape == ():
        return from_block(block)
    # Results may share columns with their operands.
    if isinstance(first, SymbolArray):
        return first.computed(block, second)
    return second.computed(block, None) if isinstance(second, SymbolArray) else SymbolArray(block.copy())


def _written(run: Run, name: str, out: Any, result: Any) -> Any:
    if isinstance(out, SymbolArray):
        out[...] = result
        return out
    if isinstance(result, _RANDOM):
        raise run.refuse("random numbers are written into an ordinary array", f"numpy.{name} with out=")
    out[...] = decided(result)
    return out
