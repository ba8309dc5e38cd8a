"""What numpy's generators draw, as symbols: each draw reads the stream as numpy itself does.

Sources for how numpy turns stream words into values: numpy/random/_generator.pyx (choice: cumulative sum and
searchsorted from the right), src/distributions/distributions.c (random_gumbel: 1 - double), legacy-distributions.c
(legacy_standard_exponential: -log(1 - double)).
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy import array, asarray
from numpy.typing import NDArray

from specverify.exact import algebra
from specverify.exact.columns import first_integers
from specverify.exact.deferred import Deferred
from specverify.exact.lazy import shown
from specverify.exact.leaves import Piecewise
from specverify.exact.numpy_arrays import SymbolArray
from specverify.exact.numpy_deferred import DeferredArray
from specverify.exact.run import Run
from specverify.exact.scalar import from_block, new_symbol
from specverify.exact.streams import Stream
from specverify.exact.symbols import exponential_symbols, gumbel_symbols, uniform_symbols

# Tolerance of numpy's own check that probabilities sum to 1: the square root of the type's epsilon.
_SUM_TOLERANCE = float(np.sqrt(np.finfo(np.float64).eps))
_MAX_INTEGERS = 1_000_000


class Draws:
    """A place in a stream, and the draws that read on from it. Shared by generators that share one bit generator."""

    def __init__(self, run: Run, stream: Stream, position: int = 0) -> None:
        self.run = run
        self.stream = stream
        self.position = position

    def read(self, kind: str, count: int) -> NDArray[np.int64]:
        variables = self.run.read_stream(self.stream, self.position, count, kind)
        self.position += count
        return variables

    def read_one(self, kind: str) -> int:
        variable = self.run.read_one(self.stream, self.position, kind)
        self.position += 1
        return variable

    def uniform(self, size: Any, *, kind: str = "double", dtype: Any = np.float64) -> Any:
        if size is None:
            return new_symbol(self.run, self.read_one(kind))
        shape = sizes(size)
        return SymbolArray(uniform_symbols(self.run, self.read(kind, math.prod(shape)), shape), dtype, is_shared=True)

    def uniform_between(self, low: Any, high: Any, size: Any) -> Any:
        low, high = asarray(low, dtype=np.float64), asarray(high, dtype=np.float64)
        if size is None and not low.shape and not high.shape:
            return self.uniform(None) * float(high - low) + float(low)
        shape = sizes(size) if size is not None else np.broadcast_shapes(low.shape, high.shape)
        block = self.uniform(shape).block
        return SymbolArray(algebra.shift(algebra.scale(block, high - low), low), is_shared=True)

    def exponential(self, scale: Any, size: Any, *, kind: str, mirror: bool, dtype: Any = np.float64) -> Any:
        shape = sizes(size) if size is not None else np.shape(scale)
        variables = self.read(kind, math.prod(shape))
        if size is not None and isinstance(scale, float) and scale > 0.0:
            block = exponential_symbols(self.run, variables, shape, scale=scale, mirror=mirror)
            return SymbolArray(block, dtype, is_shared=True)
        block = exponential_symbols(self.run, variables, shape, mirror=mirror)
        scaled = algebra.scale(block, scale)
        return from_block(scaled) if scaled.shape == () else SymbolArray(scaled, dtype, is_shared=True)

    def gumbel(self, loc: Any, scale: Any, size: Any) -> Any:
        shape = sizes(size) if size is not None else np.broadcast_shapes(np.shape(loc), np.shape(scale))
        block = gumbel_symbols(self.run, self.read("double", math.prod(shape)), shape, mirror=True)
        scaled = algebra.shift(algebra.scale(block, scale), loc)
        return from_block(scaled) if scaled.shape == () else SymbolArray(scaled, is_shared=True)

    def integers(self, low: Any, high: Any, size: Any, *, kind: str) -> Any:
        """Whole numbers from low to high - 1."""
        low, high = int(low), int(high)
        if high <= low:
            raise ValueError("low >= high")
        if high - low > _MAX_INTEGERS:
            raise self.run.refuse(f"a draw among {high - low} integers", "integers")
        return self._tabled(
            f"{kind}:{low}:{high}", np.arange(1, high - low) / (high - low), np.arange(low, high), size, "integers"
        )

    def choice(self, values: Any, size: Any, replace: bool, probabilities: Any, *, shuffle: bool, kind: str) -> Any:
        values = _population(values)
        if not replace and size is not None and math.prod(sizes(size)) > 1:
            return self._without_replacement(values, sizes(size), probabilities, shuffle)
        if probabilities is None:
            return self._tabled(
                f"{kind}:0:{len(values)}", np.arange(1, len(values)) / len(values), values, size, "choice"
            )
        return self._tabled("double", _choice_edges(probabilities, len(values)), values, size, "choice")

    def bernoulli(self, probability: Any, size: Any) -> Any:
        share = float(probability)
        if not 0.0 <= share <= 1.0:
            raise ValueError("p < 0, p > 1 or p is NaN")
        return self._tabled(f"binomial:1:{share!r}", array([1.0 - share]), array([0, 1]), size, "binomial")

    def multinomial(self, num_draws: Any, law: Any, size: Any) -> Any:
        """One draw as a one-hot row; several draws are refused."""
        weights = array(law, dtype=np.float64)
        if int(num_draws) != 1 or weights.ndim != 1:
            raise self.run.refuse("multinomial of more than one draw", "multinomial")
        if not (weights >= 0.0).all() or weights[:-1].sum() > 1.0 + 1e-12:
            raise ValueError("pvals < 0, pvals > 1 or sum(pvals[:-1]) > 1.0")
        edges = np.minimum(np.cumsum(weights[:-1]), 1.0)
        shape = () if size is None else sizes(size)
        kind = f"multinomial:{hashlib.sha256(weights.tobytes()).hexdigest()[:16]}"
        variables = self.read(kind, math.prod(shape))
        columns = np.arange(len(weights))
        leaves = [Piecewise(self.run, int(variable), edges, columns, "multinomial") for variable in variables]
        return OneHotArray(self.run, leaves, (*shape, len(weights)))

    def _tabled(self, kind: str, edges: NDArray[np.float64], values: NDArray[Any], size: Any, operation: str) -> Any:
        if size is None:
            return shown(Piecewise(self.run, self.read_one(kind), edges, values, operation))
        shape = sizes(size)
        variables = self.read(kind, math.prod(shape))
        leaves = [Piecewise(self.run, int(variable), edges, values, operation) for variable in variables]
        return DeferredArray.of(self.run, leaves, shape)

    def _without_replacement(
        self, values: NDArray[Any], shape: tuple[int, ...], probabilities: Any, shuffle: bool
    ) -> Any:
        """Successive draws, each from what is left, renormalised: the law of numpy's algorithm."""
        count = math.prod(shape)
        if probabilities is None and not shuffle:
            raise self.run.refuse("choice without replacement and without shuffling", "choice")
        law = np.ones(len(values)) if probabilities is None else checked_law(probabilities, len(values)).copy()
        if count > len(values):
            raise ValueError("Cannot take a larger sample than population when replace is False")
        if count > np.count_nonzero(law):
            raise ValueError("Fewer non-zero entries in p than size")
        digest = hashlib.sha256(law.tobytes()).hexdigest()[:16]
        picked: list[Any] = []
        for variable in self.read(f"choice without replacement:{count}:{digest}", count):
            cumulative = np.cumsum(law)
            leaf = Piecewise(self.run, int(variable), cumulative[:-1] / cumulative[-1], np.arange(len(law)), "choice")
            # The last one needs no decision: nothing depends on it any more.
            index = leaf if len(picked) == count - 1 else leaf.resolve()
            if isinstance(index, Deferred):
                leaf.values = values
                picked.append(index)
            else:
                picked.append(values[index].item() if isinstance(values[index], np.generic) else values[index])
                law[index] = 0.0
        return DeferredArray.of(self.run, picked, shape)


class OneHotArray(DeferredArray):
    """Rows with a single 1, at a place that is not decided yet. argmax gives the place without deciding it."""

    def __init__(self, run: Run, leaves: list[Piecewise], shape: tuple[int, ...]) -> None:
        self.run = run
        self.shape = shape
        self._leaves = leaves

    @property
    def values(self) -> NDArray[Any]:  # type: ignore[override]
        objects = np.empty((len(self._leaves), self.shape[-1]), dtype=object)
        for row, leaf in enumerate(self._leaves):
            objects[row] = [(leaf == column) * 1 for column in range(self.shape[-1])]
        return objects.reshape(self.shape)

    def argmax(self, axis: int | None = None, out: None = None, *, keepdims: bool = False) -> Any:
        if keepdims or (axis not in (-1, self.ndim - 1) and not (axis is None and self.ndim == 1)):
            return DeferredArray(self.run, self.values).argmax(axis, keepdims=keepdims)
        return self._leaves[0] if self.ndim == 1 else DeferredArray.of(self.run, list(self._leaves), self.shape[:-1])


_EDGES: dict[tuple[bytes, str, int], NDArray[np.float64]] = {}


def _choice_edges(probabilities: Any, length: int) -> NDArray[np.float64]:
    """Where numpy's choice cuts [0, 1). Remembered by the bytes of the law: an enumeration asks for few laws often."""
    given = asarray(probabilities)
    key = (given.tobytes(), given.dtype.str, length)
    edges = _EDGES.get(key)
    if edges is None:
        cumulative = checked_law(given, length).cumsum()
        edges = (cumulative / cumulative[-1])[:-1]
        if len(_EDGES) > 4096:
            _EDGES.clear()
        _EDGES[key] = edges
    return edges


def checked_law(probabilities: Any, length: int) -> NDArray[np.float64]:
    """The probabilities as numpy's choice accepts them; raises ValueError with numpy's words where it would."""
    given = asarray(probabilities)
    law = given.astype(np.float64)
    if law.ndim != 1:
        raise ValueError("p must be 1-dimensional")
    if len(law) != length:
        raise ValueError("a and p must have same size")
    tolerance = _SUM_TOLERANCE
    if given.dtype.kind == "f" and given.dtype.itemsize < 8:
        tolerance = float(np.sqrt(np.finfo(given.dtype).eps))
    total = float(law.sum())
    if total != total:
        raise ValueError("Probabilities contain NaN")
    if law.min() < 0.0:
        raise ValueError("Probabilities are not non-negative")
    if abs(total - 1.0) > tolerance:
        raise ValueError("Probabilities do not sum to 1. See Notes section of docstring for more information.")
    return law


def sizes(size: Any) -> tuple[int, ...]:
    """A size argument as a shape."""
    if isinstance(size, tuple | list):
        return tuple(int(length) for length in size)
    return (int(size),)


def _population(values: Any) -> NDArray[Any]:
    if type(values) is int:
        return first_integers(values)
    array = asarray(values)
    if array.ndim == 0:
        return first_integers(int(array))
    if array.ndim > 1:
        raise ValueError("choice among the rows of a matrix is not supported while a law is enumerated")
    return array
