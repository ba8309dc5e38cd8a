"""Finds live objects by type, such as generators that a module made when it was imported.

Every enumeration asks, and a process with torch in it has hundreds of thousands of objects to look through: 50 ms and
more. While the heap is at rest, what was there at the first look is set aside by `gc.freeze`, and later looks go
through younger objects only.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Heap:
    """depth: how many `at_rest` blocks we are in. types: those that `known` lists; empty while nothing is frozen.

    num_frozen: objects set aside by us. More of them later, and somebody else has frozen objects too.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.types: frozenset[type] = frozenset()
        self.known: list[Any] = []
        self.num_frozen = 0

    def freeze(self, types: frozenset[type], known: list[Any]) -> None:
        self.types, self.known = types, known
        gc.freeze()
        self.num_frozen = gc.get_freeze_count()

    def thaw(self) -> None:
        if self.types and gc.get_freeze_count() <= self.num_frozen:
            gc.unfreeze()
        self.types, self.known = frozenset(), []


_heap = _Heap()


@contextmanager
def at_rest() -> Iterator[None]:
    """Looks through the heap once for the whole block.

    Cycles of objects that were there at that look are not collected before the block ends, whenever they are dropped.
    """
    _heap.depth += 1
    try:
        yield
    finally:
        _heap.depth -= 1
        if not _heap.depth:
            _heap.thaw()


def live_objects(types: tuple[type, ...]) -> list[Any]:
    """Objects of exactly these types that are alive now, or were at the first look of the block."""
    wanted = frozenset(types)
    if _heap.types and not wanted <= _heap.types:
        _heap.thaw()
    things = gc.get_objects()
    found = []
    # Generators are rare: to look for the next one takes a third of the time of asking every object.
    rest: Any = iter(things)
    while not wanted.isdisjoint(map(type, rest)):
        found.append(things[len(things) - rest.__length_hint__() - 1])
    if _heap.types:
        return [*(thing for thing in _heap.known if type(thing) in wanted), *found]
    # A process that has frozen objects of its own, as servers do before they fork, keeps its own order.
    if _heap.depth and not gc.get_freeze_count():
        del things, rest
        _heap.freeze(wanted, found)
    return list(found)
