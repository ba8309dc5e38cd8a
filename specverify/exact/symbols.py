"""Symbolic random values: blocks of monotone functions of uniform variables, stored as arrays of parameters.

Each entry of a block is a constant or f(U) with U one uniform variable, Z = U or 1 - U, and E = -log Z (which is a
standard exponential). The family is small and every member has a closed-form inverse:

    POWER_U    a + b * Z ** c          uniforms and what is affine in them
    POWER_E    a + b * E ** c          exponentials, log-uniforms, weight / exponential
    LOG_E      a + b * log(E)          Gumbel noise and log-weight plus Gumbel noise
    NEST_LOG   a + b * log(parent)     \\
    NEST_EXP   a + b * exp(parent)      } where parent is another row: comparisons only, no races
    NEST_POWER a + b * parent ** c     /

Affine maps, logarithm, exponential and powers stay inside the family. A comparison with a number becomes a threshold
on U. Comparisons at equality are decided as in the continuum: they have probability zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy import array, asarray
from numpy.typing import NDArray

from specverify.exact.columns import Floats, alike, filled

if TYPE_CHECKING:
    from specverify.exact.run import Run

POWER_U, POWER_E, LOG_E, NEST_LOG, NEST_EXP, NEST_POWER = range(6)
CONSTANT = -1

Index = Any
"""Anything that indexes an array: the block is indexed like its columns."""


class Form(NamedTuple):
    """What the symbols of a block have in common: one kind. Speeds small blocks up threefold.

    is_pure: a is 0 and b positive for all symbols. is_full: no entry is a constant.
    """

    kind: int
    mirror: bool
    c: float
    is_pure: bool
    is_full: bool = True


@dataclass(eq=False, slots=True)  # not frozen: ten or more are made for a run, and a frozen one costs four times that
class Symbols:
    """A block of symbols: columns of one shape. A view of the columns is a view of the block.

    Blocks share columns, and those of one value cannot be written into: whoever writes makes a copy first.

    variable: CONSTANT (-1) where the entry is the number in column a. mirror: Z is 1 - U. parent: row of the run's
    table for the NEST kinds. form: the common form, in a box that all views of the columns share, so that writing
    through one of them clears it for all.
    """

    run: Run
    variable: NDArray[np.int64]
    kind: NDArray[np.uint8]
    mirror: NDArray[np.bool_]
    a: Floats
    b: Floats
    c: Floats
    parent: NDArray[np.int64]
    form: list[Form | None] = field(default_factory=lambda: [None], kw_only=True)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.variable.shape

    @property
    def size(self) -> int:
        return self.variable.size

    @property
    def ndim(self) -> int:
        return self.variable.ndim

    @property
    def is_constant(self) -> NDArray[np.bool_]:
        return self.variable < 0

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        return (self.variable, self.kind, self.mirror, self.a, self.b, self.c, self.parent)

    def __getitem__(self, index: Index) -> Symbols:
        """The indexed block: a view where numpy gives views, else a copy."""
        variable = self.variable[index]
        if not isinstance(variable, np.ndarray):
            return Symbols(self.run, *(asarray(column[index]) for column in self.columns), form=self.form)
        return Symbols(
            self.run, variable, self.kind[index], self.mirror[index], self.a[index], self.b[index], self.c[index],
            self.parent[index], form=self.form,
        )  # fmt: skip

    def reshaped(self, shape: tuple[int, ...]) -> Symbols:
        return Symbols(self.run, *(column.reshape(shape) for column in self.columns), form=self.form)

    def broadcast(self, shape: tuple[int, ...]) -> Symbols:
        if shape == self.variable.shape:
            return self
        return Symbols(self.run, *(np.broadcast_to(column, shape) for column in self.columns), form=self.form)

    def copy(self) -> Symbols:
        return Symbols(
            self.run, self.variable.copy(), self.kind.copy(), self.mirror.copy(), self.a.copy(), self.b.copy(),
            self.c.copy(), self.parent.copy(), form=[self.form[0]],
        )  # fmt: skip

    def assign(self, index: Index, other: Symbols) -> None:
        """Writes another block into the indexed entries, in place."""
        self.form[0] = None
        for column, value in zip(self.columns, other.columns, strict=True):
            column[index] = value


def common_shape(block: Symbols, numbers: NDArray[Any]) -> tuple[int, ...]:
    """The shape that the two broadcast to; the usual cases take a tenth of the time of np.broadcast_shapes."""
    shape = block.variable.shape
    if not numbers.ndim or numbers.shape == shape:
        return shape
    return np.broadcast_shapes(shape, numbers.shape)


def uniform_symbols(run: Run, variables: NDArray[np.int64], shape: tuple[int, ...], *, mirror: bool = False) -> Symbols:
    """U (or 1 - U) for each variable."""
    return _block(run, variables, shape, POWER_U, mirror=mirror)


def exponential_symbols(
    run: Run, variables: NDArray[np.int64], shape: tuple[int, ...], *, scale: float = 1.0, mirror: bool = False
) -> Symbols:
    """Exponentials with the given mean: -scale * log U (or of 1 - U)."""
    return _block(run, variables, shape, POWER_E, b=scale, mirror=mirror)


def gumbel_symbols(
    run: Run, variables: NDArray[np.int64], shape: tuple[int, ...], *, loc: float = 0.0, scale: float = 1.0,
    mirror: bool = False,
) -> Symbols:  # fmt: skip
    """Gumbel noise: loc - scale * log(-log U) (or of 1 - U)."""
    return _block(run, variables, shape, LOG_E, a=loc, b=-scale, mirror=mirror)


def constant_symbols(run: Run, values: Any) -> Symbols:
    """A block of plain numbers, for mixing with symbols."""
    numbers = array(values, dtype=np.float64)
    return _block(run, np.full(numbers.size, CONSTANT, dtype=np.int64), numbers.shape, POWER_U, a=numbers, b=0.0)


def _block(
    run: Run, variables: NDArray[np.int64], shape: tuple[int, ...], kind: int, *, a: float | Floats = 0.0,
    b: float = 1.0, mirror: bool = False,
) -> Symbols:  # fmt: skip
    is_alike = isinstance(a, float)
    column: Any = alike if is_alike else filled
    return Symbols(
        run,
        array(variables, dtype=np.int64).reshape(shape),
        column(shape, kind, np.uint8),
        column(shape, mirror, np.bool_),
        column(shape, a),
        column(shape, b),
        column(shape, 1.0),
        column(shape, 0, np.int64),
        form=[Form(kind, mirror, 1.0, a == 0.0 and b > 0.0) if is_alike else None],
    )


def where(condition: NDArray[np.bool_], first: Symbols, second: Symbols) -> Symbols:
    """Elementwise choice between two blocks; all three broadcast."""
    return Symbols(first.run, *(np.where(condition, x, y) for x, y in zip(first.columns, second.columns, strict=True)))


def concatenate(blocks: list[Symbols], axis: int = 0) -> Symbols:
    """Blocks joined along an axis."""
    columns = zip(*(block.columns for block in blocks), strict=True)
    return Symbols(blocks[0].run, *(np.concatenate(parts, axis=axis) for parts in columns))


class SymbolTable:
    """Rows of symbols by number, for front ends that keep row numbers (a mirror) beside their memory."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._rows = constant_symbols(run, np.full(256, np.nan))
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, block: Symbols) -> NDArray[np.int64]:
        """Stores a block and returns the row numbers, in the block's shape."""
        start, stop = self._length, self._length + block.size
        if stop > self._rows.size:
            grown = constant_symbols(self._run, np.full(max(2 * self._rows.size, stop), np.nan))
            grown.assign(slice(0, start), self._rows[:start])
            self._rows = grown
        self._rows.assign(slice(start, stop), block.reshaped((block.size,)))
        self._length = stop
        return np.arange(start, stop, dtype=np.int64).reshape(block.shape)

    def take(self, rows: NDArray[np.int64]) -> Symbols:
        """The symbols with these numbers, in the shape of rows."""
        return self._rows[rows]
