"""Random streams with identity: two generators with the same seed read the same symbols.

A stream is keyed by its seed. It is read at an offset, and remembers what stands there; a second generator with the
same seed, or the same one reseeded, meets the same variables again. Without this, correlated draws would look
independent, which is the one way in which an enumerated law could be silently wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

Refuse = Callable[[str, str], Exception]


class Stream:
    """The draws of one seed, in order. A draw is one variable, tagged with the kind of call that read it."""

    __slots__ = ("_new_variables", "_refuse", "_segments", "length")

    def __init__(self, new_variables: Callable[[int], int], refuse: Refuse) -> None:
        self._segments: list[tuple[int, int, str, int]] = []  # start, stop, kind, first variable
        self._new_variables = new_variables
        self._refuse = refuse
        self.length = 0

    def read_one(self, position: int, kind: str) -> int:
        """The variable at that position; a new one at the end of the stream."""
        if position == self.length:
            first = self._new_variables(1)
            self._segments.append((position, position + 1, kind, first))
            self.length = position + 1
            return first
        return int(self.read(position, 1, kind)[0])

    def read(self, position: int, count: int, kind: str) -> NDArray[np.int64]:
        """Variables at position, position + 1, ...: known ones where the stream was read before, else new ones.

        Raises NotEnumerable where a known draw was of another kind: how the two depend on each other is unknown.
        """
        if position == self.length:
            first = self._new_variables(count)
            self._segments.append((position, position + count, kind, first))
            self.length = position + count
            return np.arange(first, first + count)
        if position > self.length:
            raise self._refuse("a generator's state was set to a place that its stream has not reached", kind)
        known = min(self.length, position + count) - position
        parts: list[NDArray[np.int64]] = []
        if known > 0:
            parts.extend(self._known(position, position + known, kind))
        fresh = count - max(known, 0)
        if fresh > 0:
            first = self._new_variables(fresh)
            self._segments.append((self.length, self.length + fresh, kind, first))
            self.length += fresh
            parts.append(np.arange(first, first + fresh, dtype=np.int64))
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def _known(self, start: int, stop: int, kind: str) -> list[NDArray[np.int64]]:
        parts = []
        for segment_start, segment_stop, segment_kind, first in self._segments:
            low, high = max(start, segment_start), min(stop, segment_stop)
            if low >= high:
                continue
            if segment_kind != kind:
                raise self._refuse(
                    f"one seed is read in two ways, as {segment_kind} and as {kind}, at the same place of its stream",
                    kind,
                )
            parts.append(np.arange(first + low - segment_start, first + high - segment_start, dtype=np.int64))
        return parts


class Streams:
    """All streams of one run, by seed."""

    def __init__(self, new_variables: Callable[[int], int], refuse: Refuse) -> None:
        self._streams: dict[Hashable, Stream] = {}
        self._new_variables = new_variables
        self._refuse = refuse
        self._num_unseeded = 0

    def seeded(self, *key: Hashable) -> Stream:
        """The stream of that seed; the same key gives the same stream. Put the algorithm's name into the key."""
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = Stream(self._new_variables, self._refuse)
        return stream

    def unseeded(self) -> Stream:
        """A stream that nobody else reads, as for a generator made from the operating system's entropy."""
        self._num_unseeded += 1
        return self.seeded("unseeded", self._num_unseeded)
