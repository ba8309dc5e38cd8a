"""Finds randomness that no front end saw: generators made before the program was called, and drawn from inside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specverify.exact.errors import NotEnumerable
from specverify.exact.patching import live_objects
from specverify.exact.program import FrontEnd


class HiddenGenerators:
    """States of all live generators of the libraries, before a run; require_untouched compares them afterwards."""

    def __init__(self, front_ends: Sequence[FrontEnd]) -> None:
        owners: dict[type, Any] = {}
        for front_end in front_ends:
            for generator_type in getattr(front_end, "generator_types", ()):
                owners[generator_type] = front_end
        found = live_objects(tuple(owners))
        self._states = [(thing, owners[type(thing)], owners[type(thing)].generator_state(thing)) for thing in found]

    def require_untouched(self) -> None:
        """Raises NotEnumerable where the program drew from one of them. For the first run: replays seed some anew."""
        for thing, front_end, state in self._states:
            if front_end.generator_state(thing) != state:
                raise NotEnumerable(
                    "the program draws from a generator that was made before it was called; pass the generator in",
                    f"{type(thing).__module__}.{type(thing).__name__}",
                )
        self._states = []
