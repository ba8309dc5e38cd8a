"""What the ids of a mirror stand for: a symbol, a condition on a variable, or a node that is decided when asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.exact.conditions import Conditions
from specverify.exact.run import Run
from specverify.exact.symbols import CONSTANT, Symbols

Ids = NDArray[np.int64]

# Ids above 0 are rows of the run's symbol table (continuous values), ids below 0 are discrete: conditions down to
# here, nodes beyond.
_FIRST_NODE = -(1 << 40)


class Elements:
    """Tables of everything symbolic that tensors of one run hold, by id."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._conditions = _no_conditions(run, 256)
        self._num_conditions = 0
        self._nodes: list[Any] = []
        self._truths: set[int] = set()

    def add_symbols(self, block: Symbols) -> Ids:
        """Ids in the block's shape, 0 where the entry is a plain number."""
        symbolic = block.variable >= 0
        if symbolic.all():
            return self.run.table.append(block) + 1
        ids = np.zeros(block.shape, dtype=np.int64)
        if symbolic.any():
            ids[symbolic] = self.run.table.append(block[symbolic]) + 1
        return ids

    def symbols(self, ids: Ids) -> Symbols:
        """The symbols behind ids above 0, in the shape of ids."""
        return self.run.table.take(ids - 1)

    def add_conditions(self, block: Conditions) -> Ids:
        """Ids in the block's shape, 0 where the truth is known."""
        open_entries = block.variable >= 0
        ids = np.zeros(block.shape, dtype=np.int64)
        count = int(np.count_nonzero(open_entries))
        if not count:
            return ids
        start, stop = self._num_conditions, self._num_conditions + count
        if stop > self._conditions.size:
            grown = _no_conditions(self.run, max(2 * self._conditions.size, stop))
            for column, old in zip(grown.columns, self._conditions.columns, strict=True):
                column[:start] = old[:start]
            self._conditions = grown
        for column, new in zip(self._conditions.columns, block.columns, strict=True):
            column[start:stop] = new[open_entries]
        self._num_conditions = stop
        ids[open_entries] = -1 - np.arange(start, stop)
        return ids

    def conditions(self, ids: Ids) -> Conditions:
        """The conditions behind ids below 0 that are no nodes, in the shape of ids."""
        return self._conditions[-1 - ids]

    def add_node(self, node: Any, *, is_truth: bool = False) -> int:
        """Id of an undecided number. is_truth: it is known to be 0 or 1."""
        self._nodes.append(node)
        element = _FIRST_NODE - len(self._nodes) + 1
        if is_truth:
            self._truths.add(element)
        return element

    def is_truth(self, element: int) -> bool:
        """Whether an id below 0 stands for a number that can only be 0 or 1."""
        return element > _FIRST_NODE or element in self._truths

    def node(self, element: int) -> Any:
        return self._nodes[_FIRST_NODE - element]


def is_node(ids: Any) -> Any:
    """Whether ids (a number or an array) are of nodes."""
    return ids <= _FIRST_NODE


def _no_conditions(run: Run, count: int) -> Conditions:
    return Conditions(run, np.full(count, CONSTANT, dtype=np.int64), np.zeros(count), np.zeros(count, dtype=np.bool_))
