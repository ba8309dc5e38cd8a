"""What the ids of a mirror stand for: a symbol, a condition on a variable, or a number that waits to be decided.

Elements of large tensors are rows of tables of columns, which cost no object each; elements of small tensors are
objects, which cost no dozen of array operations each. Both kinds mix freely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import array
from numpy.typing import NDArray

from specverify.exact.coarse import Coarse
from specverify.exact.columns import some
from specverify.exact.conditions import Conditions
from specverify.exact.deferred import Deferred
from specverify.exact.events import Condition
from specverify.exact.in_order import condition_at
from specverify.exact.run import Run
from specverify.exact.scalar import Symbol, from_block, new_symbol
from specverify.exact.symbols import CONSTANT, Form, Symbols

Ids = NDArray[np.int64]

# Ids above 0 are continuous values, ids below 0 are discrete; those nearer to 0 than this are rows of tables, those
# beyond are objects.
_FIRST_OBJECT = 1 << 40
# Up to so many elements are handled one by one: an array operation costs as much as two of these.
SMALL = 96


class Elements:
    """Everything symbolic that tensors of one run hold, by id."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._conditions = no_conditions(run, (0,))
        self._num_conditions = 0
        self._symbols: list[Symbol | Coarse] = []
        self._deferred: list[Deferred] = []
        self._truths: set[int] = set()
        self._objects: dict[int, Any] = {}
        self._rows: dict[int, int] = {}
        self.has_coarse = False

    # Objects --------------------------------------------------------------------------------------------------

    def add(self, value: Symbol | Deferred, *, is_truth: bool = False) -> int:
        """Id of one random number. is_truth: it is known to be 0 or 1."""
        if isinstance(value, Symbol):
            self._symbols.append(value)
            return _FIRST_OBJECT + len(self._symbols)
        self._deferred.append(value)
        element = -_FIRST_OBJECT - len(self._deferred)
        if is_truth or isinstance(value, Condition):
            self._truths.add(element)
        return element

    def add_coarse(self, value: Coarse) -> int:
        """Id of a random number of half precision: it is continuous in that no operation may decide it."""
        self.has_coarse = True
        self._symbols.append(value)
        return _FIRST_OBJECT + len(self._symbols)

    def get(self, element: int) -> Any:
        """The random number behind an id, as one object; always the same object for the same id."""
        if element > _FIRST_OBJECT:
            return self._symbols[element - _FIRST_OBJECT - 1]
        if element < -_FIRST_OBJECT:
            return self._deferred[-_FIRST_OBJECT - element - 1]
        found = self._objects.get(element)
        if found is None:
            if element > 0:
                found = from_block(self.run.table.take(array(element - 1)))
            else:
                found = condition_at(self._conditions, -1 - element)
            self._objects[element] = found
        return found

    def is_truth(self, element: int) -> bool:
        """Whether an id below 0 stands for a number that can only be 0 or 1."""
        return element >= -_FIRST_OBJECT or element in self._truths

    # Blocks ---------------------------------------------------------------------------------------------------

    def add_symbols(self, block: Symbols) -> Ids:
        """Ids in the block's shape, 0 where the entry is a plain number."""
        if block.size <= SMALL:
            entries = zip(*(column.ravel().tolist() for column in block.columns), strict=True)
            return array(
                [
                    0 if variable < 0
                    else self.add(new_symbol(self.run, variable, kind, mirror=mirror, a=a, b=b, c=c, parent=parent))
                    for variable, kind, mirror, a, b, c, parent in entries
                ],
                dtype=np.int64,
            ).reshape(block.shape)  # fmt: skip
        symbolic = block.variable >= 0
        if symbolic.all():
            return self.run.table.append(block) + 1
        ids = np.zeros(block.shape, dtype=np.int64)
        if symbolic.any():
            ids[symbolic] = self.run.table.append(block[symbolic]) + 1
        return ids

    def symbols(self, ids: Ids) -> Symbols:
        """The symbols behind ids above 0, in the shape of ids."""
        are_objects = ids > _FIRST_OBJECT
        if some(are_objects):
            objects = ids[are_objects].tolist()
            if len(objects) == ids.size:
                return block_of_items(self.run, [self.get(element) for element in objects], ids.shape)
            new = [element for element in dict.fromkeys(objects) if element not in self._rows]
            block = block_of_items(self.run, [self.get(element) for element in new], (len(new),))
            self._rows.update(zip(new, self.run.table.append(block).tolist(), strict=True))
            ids = ids.copy()
            ids[are_objects] = [self._rows[element] + 1 for element in objects]
        return self.run.table.take(ids - 1)

    def add_conditions(self, block: Conditions) -> Ids:
        """Ids in the block's shape, 0 where the truth is known."""
        undecided = block.variable >= 0
        ids = np.zeros(block.shape, dtype=np.int64)
        count = int(np.count_nonzero(undecided))
        if not count:
            return ids
        start, stop = self._num_conditions, self._num_conditions + count
        if stop > self._conditions.size:
            grown = no_conditions(self.run, (max(2 * self._conditions.size, stop, 256),))
            for column, old in zip(grown.columns, self._conditions.columns, strict=True):
                column[:start] = old[:start]
            self._conditions = grown
        for column, new in zip(self._conditions.columns, block.columns, strict=True):
            column[start:stop] = new[undecided]
        self._num_conditions = stop
        ids[undecided] = -1 - np.arange(start, stop)
        return ids

    def conditions(self, ids: Ids, truths: NDArray[Any]) -> Conditions | None:
        """The conditions behind ids, with plain truths where the id is 0; None where anything else is among them."""
        block = no_conditions(self.run, ids.shape)
        block.below[...] = truths
        rows = (ids < 0) & (ids >= -_FIRST_OBJECT)
        if rows.any():
            numbers = -1 - ids[rows]
            for column, known in zip(block.columns, self._conditions.columns, strict=True):
                column[rows] = known[numbers]
        for position in map(tuple, np.argwhere((ids > 0) | (ids < -_FIRST_OBJECT)).tolist()):
            condition = self.get(int(ids[position]))
            if not isinstance(condition, Condition) or condition.is_decided:
                return None
            block.variable[position] = condition.variable
            block.threshold[position] = condition.threshold
            block.below[position] = condition.below
        return block


def no_conditions(run: Run, shape: tuple[int, ...]) -> Conditions:
    """A block of plain truth values, all false, to be filled in."""
    return Conditions(run, np.full(shape, CONSTANT, dtype=np.int64), np.zeros(shape), np.zeros(shape, dtype=np.bool_))


def one_variable(items: Sequence[Any]) -> bool:
    """Whether the undecided ones among these are all conditions on one and the same variable, and more than one."""
    variables = {item.variable if isinstance(item, Condition) else None for item in items if isinstance(item, Deferred)}
    return len(variables) == 1 and None not in variables


def block_of_items(run: Run, items: Sequence[Any], shape: tuple[int, ...]) -> Symbols:
    """Symbols and numbers, in order, as a block of that shape."""
    symbols = [item for item in items if type(item) is Symbol]
    form = None
    if symbols:
        kind, mirror, c, _ = symbols[0].core
        if all(symbol.core is symbols[0].core or symbol.core[:3] == (kind, mirror, c) for symbol in symbols):
            is_pure = all(symbol.a == 0.0 and symbol.b > 0.0 for symbol in symbols)
            form = Form(kind, mirror, c, is_pure, len(symbols) == len(items))
    constant = new_symbol(run, CONSTANT, b=0.0)
    entries = [item if type(item) is Symbol else constant for item in items]
    cores = [entry.core for entry in entries]
    return Symbols(
        run,
        array([entry.variable for entry in entries], dtype=np.int64).reshape(shape),
        array([core[0] for core in cores], dtype=np.uint8).reshape(shape),
        array([core[1] for core in cores], dtype=np.bool_).reshape(shape),
        array([item.a if type(item) is Symbol else item for item in items], dtype=np.float64).reshape(shape),
        array([entry.b for entry in entries], dtype=np.float64).reshape(shape),
        array([core[2] for core in cores], dtype=np.float64).reshape(shape),
        array([core[3] for core in cores], dtype=np.int64).reshape(shape),
        form=[form],
    )
