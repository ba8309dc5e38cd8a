"""Which random numbers a torch call reads: streams are told apart by the generator's own state.

Two generators with the same seed, or one that is seeded again before every call, hand out the same numbers. A
symbolic run that gave each call fresh symbols would call such randomness independent. So every random call is also
run natively, which moves the real generator exactly as an ordinary run would, and its symbols are filed under the
state that the generator was in before the call: the same state means the same symbols.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from specverify.exact.errors import NotEnumerable
from specverify.exact.run import Run

Ids = NDArray[np.int64]

# The CPU generator is a Mersenne twister whose state torch stores as: seed (8 bytes), words left in the block (4),
# seeded (4), next word (8), then the 624 words. Source: CPUGeneratorImplStateLegacy in
# aten/src/ATen/CPUGeneratorImpl.cpp.
# Marks an element whose words no earlier call has read.
_UNREAD = np.iinfo(np.int64).min
_CPU_STATE_BYTES = 5056
_CPU_HEADER = struct.Struct("<QiiQ")

# 32-bit words that one uniform takes from the CPU generator. Source: aten/src/ATen/native/cpu/DistributionTemplates.h:
# float64 is built from random64(), narrower types from random().
_WORDS_PER_UNIFORM = {torch.float64: 2, torch.float32: 1, torch.float16: 1, torch.bfloat16: 1}


@dataclass
class _Interval:
    """One random call on a stream. stop is None where the words it took are not known."""

    start: int
    stop: int | None
    kind: tuple[object, ...]
    words_each: int
    ids: Ids


@dataclass(frozen=True)
class Reading:
    """States of a generator before and after one call."""

    before: int
    after: int
    device: str


@dataclass
class _Stream:
    calls: list[_Interval] = field(default_factory=list)
    high_water: int = 0


class TorchStreams:
    """The streams of one run. Made anew for every run; the symbols of a stream are made on first use."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._places: dict[int, tuple[_Stream, int]] = {}
        self._last_state: dict[int, int] = {}
        self._kept: list[torch.Generator] = []
        self.on_first_sight: Callable[[torch.Generator], None] = lambda generator: None

    def begin(self, generator: torch.Generator) -> None:
        """Notes where a generator stands, so that a later call can tell that it moved unseen."""
        self.on_first_sight(generator)
        state = _digest(generator)
        self._place(state)
        self._last_state[id(generator)] = state
        self._kept.append(generator)

    def run_natively(
        self, generator: torch.Generator, native: Callable[[], torch.Tensor]
    ) -> tuple[torch.Tensor, Reading]:
        """Runs a random call for real, which advances its generator, and notes where on which stream that was."""
        before = self._arrive(generator)
        result = native()
        after = _digest(generator)
        self._last_state[id(generator)] = after
        return result, Reading(before, after, generator.device.type)

    def numbers(
        self,
        reading: Reading,
        *,
        kind: tuple[object, ...],
        count: int,
        dtype: torch.dtype,
        make: Callable[[int], Ids],
    ) -> Ids:
        """What the call drew, as numbers made by make(n), or those filed under the same place of the same stream.

        kind: what is drawn, with its parameters; a plain uniform is ("uniform",). Raises ReusedRandomness where the
        same generator words are read in two different forms (their values are then dependent in a way that no symbol
        can express).
        """
        if reading.after == reading.before:
            if count == 0:
                return make(0)
            raise self._run.refuse("a random call did not move its generator", str(kind[0]))
        stream, start = self._place(reading.before)
        words = _WORDS_PER_UNIFORM.get(dtype, 0) if kind == ("uniform",) and reading.device == "cpu" else 0
        if words:
            self._places.setdefault(reading.after, (stream, start + words * count))
            return self._uniform_ids(stream, start, words, count, make)
        ids = self._opaque_ids(stream, start, kind, count, make)
        self._place(reading.after)
        return ids

    def note_unseen_moves(self) -> None:
        """At the end of a run: files a refusal where a generator moved without a call that was seen."""
        for generator in self._kept:
            if self._moved_unseen(generator, _digest(generator)):
                self._refusal()

    def _arrive(self, generator: torch.Generator) -> int:
        state = _digest(generator)
        last = self._last_state.get(id(generator))
        if last is None:
            self.begin(generator)
        elif self._moved_unseen(generator, state):
            raise self._refusal()
        return state

    def _moved_unseen(self, generator: torch.Generator, state: int) -> bool:
        last = self._last_state[id(generator)]
        return state != last and state not in self._places and not _is_freshly_seeded(generator)

    def _refusal(self) -> NotEnumerable:
        return self._run.refuse(
            "a generator moved although no random call on it was seen: some randomness is hidden, for instance in "
            "compiled code",
            "torch.Generator",
        )

    def _place(self, state: int) -> tuple[_Stream, int]:
        return self._places.setdefault(state, (_Stream(), 0))

    def _uniform_ids(self, stream: _Stream, start: int, words: int, count: int, make: Callable[[int], Ids]) -> Ids:
        stop = start + words * count
        if start >= stream.high_water:
            ids = make(count)
        else:
            ids = np.full(count, _UNREAD, dtype=np.int64)
            for call in stream.calls:
                self._share(call, start, stop, words, ids)
            missing = np.flatnonzero(ids == _UNREAD)
            ids[missing] = make(len(missing))
        stream.calls.append(_Interval(start, stop, ("uniform",), words, ids))
        stream.high_water = max(stream.high_water, stop)
        return ids

    def _share(self, call: _Interval, start: int, stop: int, words: int, ids: Ids) -> None:
        """Copies into ids the symbols of an earlier call that read the same words."""
        if call.stop is None:
            if start <= call.start < stop:
                raise self._read_twice(call.kind, ("uniform",))
            return
        if call.stop <= start or call.start >= stop:
            return
        if call.words_each != words or (call.start - start) % words:
            raise self._read_twice(call.kind, ("uniform",))
        shift = (call.start - start) // words
        first, last = max(0, shift), min(len(ids), shift + len(call.ids))
        ids[first:last] = call.ids[first - shift : last - shift]

    def _opaque_ids(
        self, stream: _Stream, start: int, kind: tuple[object, ...], count: int, make: Callable[[int], Ids]
    ) -> Ids:
        for call in stream.calls:
            if call.start == start and call.kind == kind and len(call.ids) == count:
                return call.ids
            if call.start == start or (call.stop is not None and call.start <= start < call.stop):
                raise self._read_twice(call.kind, kind)
            if call.start > start:
                raise self._read_twice(call.kind, kind)
        ids = make(count)
        stream.calls.append(_Interval(start, None, kind, 0, ids))
        stream.high_water = max(stream.high_water, start + 1)
        return ids

    def _read_twice(self, first: tuple[object, ...], second: tuple[object, ...]) -> NotEnumerable:
        return self._run.refuse(
            f"reused randomness: the same random numbers of a generator are read twice, as {first[0]} and as "
            f"{second[0]}; two generators share a seed, or one was seeded again",
            str(second[0]),
            reused=True,
        )


def _digest(generator: torch.Generator) -> int:
    state = generator.get_state()
    return hash(state.numpy().tobytes())


def _is_freshly_seeded(generator: torch.Generator) -> bool:
    """Whether nothing was drawn since the generator was seeded."""
    raw = generator.get_state().numpy().tobytes()
    if len(raw) == _CPU_STATE_BYTES:
        _, left, seeded, next_word = _CPU_HEADER.unpack_from(raw)
        return bool(seeded) and left == 1 and next_word == 0
    # Philox (CUDA): seed and offset, 8 bytes each.
    return len(raw) == 16 and int.from_bytes(raw[8:], "little") == 0
