"""Random numbers of half precision: so few values that ties and rounding decide, which no continuum describes.

A coarse number is a step function of one uniform variable, kept as the table of its values in the cells of the
uniform. What a program does with it is done to the whole table by the program's own library: rounding, promotion and
comparisons at equality are that library's own. What comes out true in some of the cells is an event on the uniform.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from specverify.exact.columns import Floats
from specverify.exact.deferred import plain
from specverify.exact.errors import source_line
from specverify.exact.events import Condition
from specverify.exact.lazy import shown
from specverify.exact.leaves import Piecewise
from specverify.exact.opaque import Opaque
from specverify.exact.run import Run

_NOTE = "random numbers of half precision: "

COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
# The bits of 1.0, which is also how many values lie below it.
_ONE = {"bfloat16": 0x3F80, "float16": 0x3C00}
_OPERATION = "random number of half precision"


def _method(function: Callable[..., Any], *, swapped: bool = False) -> Callable[..., Any]:
    def method(self: Coarse, *others: Any) -> Any:
        if not all(isinstance(other, (Coarse, int, float, np.generic)) for other in others):
            return NotImplemented
        if self.is_number and function in (operator.truediv, operator.pow):
            # numpy gives infinity where Python raises.
            self.refuse(function.__name__)
        require_exact(self, function in COMPARISONS, [x.dtype for x in others if isinstance(x, np.generic)])
        return computed(function, (*others, self) if swapped else (self, *others))

    return method


def _refusal(operation: str) -> Callable[..., Any]:
    def method(self: Coarse, *args: Any) -> NoReturn:
        self.refuse(operation)

    return method


class Coarse(Opaque):
    """table[i] where edges[i - 1] <= U < edges[i]. table: an array, or a tensor of one dimension.

    is_number: it is a Python float, as item() gives; its table is float64.
    """

    __slots__ = ("edges", "is_number", "table", "variable")
    shape = ()

    def __init__(self, run: Run, variable: int, edges: Floats, table: Any, *, is_number: bool = False) -> None:
        self.run = run
        self.variable = variable
        self.edges = edges
        self.table = table
        self.is_number = is_number

    def with_table(self, table: Any) -> Any:
        """The number with these values in the same cells: a random number too, or undecided where they are not floats.

        table: an array for truth values and whole numbers.
        """
        if not isinstance(table, np.ndarray) or table.dtype.kind == "f":
            return Coarse(self.run, self.variable, self.edges, table, is_number=self.is_number)
        changes = np.flatnonzero(table[1:] != table[:-1])
        if not len(changes):
            return plain(table[0])
        edges = self.edges[changes]
        if table.dtype == np.bool_ and len(changes) == 1:
            return shown(Condition(self.run, self.variable, float(edges[0]), bool(table[0]), _OPERATION))
        return shown(Piecewise(self.run, self.variable, edges, table[np.append(0, changes + 1)], _OPERATION))

    def astype(self, dtype: Any) -> Any:
        """As of numpy's scalars."""
        return self.with_table(self.table.astype(dtype))

    def item(self) -> Any:
        """The same number as a Python float."""
        table = self.table if isinstance(self.table, np.ndarray) else self.table.double().numpy()
        return Coarse(self.run, self.variable, self.edges, table.astype(np.float64), is_number=True)

    def refuse(self, operation: str) -> NoReturn:
        raise self.run.refuse(
            "a random number of half precision is read, or compared with other random numbers", operation
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from specverify.exact.numpy_coarse import apply_coarse_ufunc

        return apply_coarse_ufunc(self.run, ufunc, method, inputs, kwargs)

    __add__, __radd__ = _method(operator.add), _method(operator.add, swapped=True)
    __sub__, __rsub__ = _method(operator.sub), _method(operator.sub, swapped=True)
    __mul__, __rmul__ = _method(operator.mul), _method(operator.mul, swapped=True)
    __truediv__, __rtruediv__ = _method(operator.truediv), _method(operator.truediv, swapped=True)
    __pow__, __rpow__ = _method(operator.pow), _method(operator.pow, swapped=True)
    __neg__, __abs__ = _method(operator.neg), _method(operator.abs)
    __lt__, __le__ = _method(operator.lt), _method(operator.le)
    __gt__, __ge__ = _method(operator.gt), _method(operator.ge)
    __eq__, __ne__ = _method(operator.eq), _method(operator.ne)
    __float__, __int__, __bool__ = _refusal("float()"), _refusal("int()"), _refusal("bool()")
    __index__, __round__, __str__ = _refusal("use as an index"), _refusal("round()"), _refusal("str()")
    __format__ = _refusal("format()")
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<random number of half precision, function of uniform {self.variable}>"


def note_half(run: Run, name: str) -> None:
    """Notes that random numbers come in this type, and the user's own line where they do."""
    run.notes.add(f"{_NOTE}{name} {source_line()}".rstrip())


def halves_in(notes: Iterable[str]) -> tuple[tuple[str, ...], str]:
    """What the notes of a law say of half precision: names of the types, and the first line where one comes in."""
    found = [note.removeprefix(_NOTE).partition(" ") for note in sorted(notes) if note.startswith(_NOTE)]
    return tuple(dict.fromkeys(name for name, _, _ in found)), next((line for _, _, line in found if line), "")


def computed(function: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """function of numbers of which some are coarse: of its values in every cell.

    Raises NotEnumerable where two of the numbers are functions of different uniforms.
    """
    first = meeting([operand for operand in operands if isinstance(operand, Coarse)])
    with np.errstate(all="ignore"):
        return first.with_table(
            function(*(operand.table if isinstance(operand, Coarse) else operand for operand in operands))
        )


def meeting(parts: Sequence[Coarse]) -> Coarse:
    """The first of several coarse numbers, which must be functions of one uniform, in the same cells."""
    first = parts[0]
    for part in parts[1:]:
        if part.variable != first.variable or part.edges is not first.edges or part.is_number != first.is_number:
            raise first.run.refuse("two random numbers of half precision are combined", "arithmetic")
    return first


def require_exact(number: Coarse, is_comparison: bool, types: Iterable[Any]) -> None:
    """Refuses a Python float that would be rounded to the type of what it meets. types: numpy's, of the others.

    A comparison does no harm where the type holds every value; arithmetic would round what comes out.
    """
    for dtype in types if number.is_number else ():
        is_held = is_comparison and bool((number.table.astype(dtype) == number.table).all())
        if dtype.kind == "f" and dtype != np.float64 and not is_held:
            number.refuse(f"use with a {dtype}")


# Where the cells are ------------------------------------------------------------------------------------------------


@functools.cache
def rounding_cells(name: str, bits: int, *, via_single: bool = False) -> tuple[Floats, Floats]:
    """(edges, values): what a uniform of so many bits is when it is rounded to nearest, ties to even.

    name: "bfloat16" or "float16". bits: of the uniform, which is a multiple of 2^-bits below 1: 24 or 53. via_single:
    it is rounded to float32 first, as torch does. The grid of half-precision numbers is finer near 0, and the
    uniforms nearest to 1 become 1.
    """
    patterns = np.arange(_ONE[name] + 1)
    values = (
        patterns.astype(np.uint16).view(np.float16).astype(np.float64) if name == "float16"
        else (patterns.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    )  # fmt: skip
    # What lies in the middle goes to the neighbour with the even pattern.
    goes_down = patterns[:-1] % 2 == 0
    middles = 0.5 * (values[1:] + values[:-1])
    if via_single:
        # float32 makes the middle of what is nearest to it.
        middles = 0.5 * (middles + np.nextafter(middles.astype(np.float32), np.float32(np.where(goes_down, 2.0, 0.0))))
    # The first multiple that is rounded up.
    starts = middles * 2.0**bits
    edges = (np.ceil(starts) + ((starts == np.floor(starts)) & goes_down)) / 2.0**bits
    return _with_width(edges, values)


@functools.cache
def wrapped_cells(name: str) -> tuple[Floats, Floats]:
    """As rounding_cells, for a rounded float32 uniform of which 1 is made 0, with the cells in ascending order."""
    edges, values = rounding_cells(name, 24)
    return edges[:-1] + (1.0 - edges[-1]), values[:-1]


@functools.cache
def even_cells(bits: int) -> tuple[Floats, Floats]:
    """(edges, values): multiples of 2^-bits, all equally likely."""
    values = np.arange(2**bits) / 2.0**bits
    return values[1:], values


def _with_width(edges: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Without the cells that no uniform falls into."""
    wide = np.diff(edges, prepend=0.0, append=1.0) > 0.0
    return edges[wide[1:]], values[wide]


def rounded_uniform(
    symbol: Any, name: str, *, is_single: bool, via_single: bool, table: Callable[[NDArray[Any]], Any]
) -> Coarse:
    """A Symbol as it is after it was rounded to half precision.

    is_single: it is a float32 number, not a float64 one. via_single: see rounding_cells. table: makes the library's
    own array of values. Raises NotEnumerable where the symbol is no plain uniform.
    """
    run = symbol.run
    if not symbol.is_affine or (symbol.a, symbol.b) != (0.0, 1.0):
        raise run.refuse(f"a function of a uniform is rounded to {name}; only uniforms themselves may be", name)
    edges, values = rounding_cells(name, 24) if is_single else rounding_cells(name, 53, via_single=via_single)
    note_half(run, name)
    return Coarse(run, symbol.variable, edges, table(values))
