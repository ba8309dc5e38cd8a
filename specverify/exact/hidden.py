"""Finds randomness that no front end saw: generators made before the program was called, and drawn from inside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specverify.exact.errors import NotEnumerable
from specverify.exact.heap import live_objects
from specverify.exact.program import FrontEnd


class HiddenGenerators:
    """States of all live generators of the libraries, before the program runs; compared now and then."""

    def __init__(self, front_ends: Sequence[FrontEnd]) -> None:
        owners: dict[type, Any] = {}
        for front_end in front_ends:
            for generator_type in getattr(front_end, "generator_types", ()):
                owners[generator_type] = front_end
        self._generators = [(thing, owners[type(thing)]) for thing in live_objects(tuple(owners))]
        self._states: list[Any] = []
        self.remember()

    def remember(self) -> None:
        """Takes the states as they are now: replays seed the global generators anew."""
        self._states = [front_end.generator_state(thing) for thing, front_end in self._generators]

    def require_untouched(self) -> None:
        """Raises NotEnumerable where the program drew from one of them since their states were remembered."""
        for (thing, front_end), state in zip(self._generators, self._states, strict=True):
            if front_end.generator_state(thing) != state:
                raise NotEnumerable(
                    "the program draws from a generator that was made before it was called; pass the generator in",
                    f"{type(thing).__module__}.{type(thing).__name__}",
                )
