"""Which rows of the target's cache stay after a step: those of accepted draft tokens, where a chain's would be."""

from __future__ import annotations

from collections.abc import Sequence

from specverify.reference.batch import Batch, RunningRequest
from specverify.reference.cached_model import CachedModel
from specverify.reference.proposers import Drafts


class RollingBack:
    """The part of the engine that takes back what was rejected."""

    cached: CachedModel

    def compact(self, drafts: Drafts, accepted: Sequence[Sequence[int]]) -> None:
        """Moves the target's rows of the accepted path right behind the newest token's, where a chain's would be."""
        cache = self.cached.cache
        first_slots = [length - num for length, num in zip(cache.lengths, drafts.num_tokens, strict=True)]
        cache.compact(first_slots, self.path_slots(first_slots, accepted))

    def path_slots(self, first_slots: Sequence[int], accepted: Sequence[Sequence[int]]) -> list[list[int]]:
        """Target cache rows of the accepted nodes; first_slots: those of node 0."""
        return [[first + node for node in path] for first, path in zip(first_slots, accepted, strict=True)]

    def roll_back(self, batch: Batch) -> None:
        """Drops the target's KV rows of rejected or cut tokens."""
        for row, running in enumerate(batch.running):
            self.cached.cache.keep(row, self.rows_to_keep(row, running))

    def rows_to_keep(self, row: int, running: RunningRequest) -> int:
        """Target cache rows that stay: one per committed token but the newest, whose row the next pass writes."""
        return running.newest_position
