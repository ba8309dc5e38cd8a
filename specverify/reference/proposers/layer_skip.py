"""Layer skip: the target drafts for itself with some of its layers, on its own cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specverify.core.errors import UsageError
from specverify.reference.batch import Batch, padded
from specverify.reference.cached_model import CachedModel
from specverify.reference.model import Model
from specverify.reference.proposers.base import Drafts, TargetStates
from specverify.reference.proposers.growth import Growth, as_chain
from specverify.reference.tree import Branches, ancestors


class LayerSkipProposer:
    """Runs the layers in the order given, reading the rows that whole passes left in the cache.

    What it writes lies behind the committed rows and is taken back before the target verifies. No weights, no memory.

    Sources: Zhang et al. 2024, Draft & Verify, arXiv 2309.08168; with the first layers only: Elhoushi et al. 2024,
    LayerSkip, arXiv 2404.16710.
    """

    name = "layer-skip"
    taps: Sequence[int] = ()

    def __init__(self, target: Model, layers: Sequence[int], growth: Growth) -> None:
        num_layers = target.config.num_layers
        if not layers or not set(layers) <= set(range(num_layers)):
            raise UsageError(f"layers to draft with are {list(layers)}; give some of 0 to {num_layers - 1}")
        self.target = target
        self.layers = tuple(layers)
        self.growth = growth

    @property
    def num_nodes(self) -> int:
        return self.growth.num_nodes

    def start(self, batch: Batch, capacity: int) -> None:
        pass

    def observe(self, batch: Batch, states: TargetStates) -> None:
        self.cached: CachedModel = states.cached

    def propose(self, batch: Batch, num_draft_tokens: Sequence[int]) -> Drafts:
        committed = list(self.cached.cache.lengths)
        drafts = as_chain(self.growth.grow(batch, self, num_draft_tokens), self.growth)
        for row, num_rows in enumerate(self.rows_to_keep(batch, committed)):
            self.cached.cache.keep(row, num_rows)
        return replace(drafts, positions=self.positions)

    def rows_to_keep(self, batch: Batch, committed: Sequence[int]) -> Sequence[int]:
        """Rows of the target's cache that stay once a draft is made; committed: those it had before."""
        return committed

    def root_logits(self, batch: Batch) -> Tensor:
        newest = padded([running.token_ids[-1:] for running in batch.running], batch.device)
        positions = [running.newest_position for running in batch.running]
        hidden = self.cached.compute(
            newest, first_positions=positions, num_new=[1] * batch.num_rows, layers=self.layers
        )
        self.positions = [list(row) for row in self.cached.last_positions]
        self.first_slots = list(self.cached.cache.lengths)
        self.extended_parents = torch.zeros((batch.num_rows, 0), dtype=torch.int64, device=batch.device)
        return self.target.logits(hidden[:, 0])

    def extend_nodes(
        self, batch: Batch, token_ids: Tensor, parents: Tensor, depth: int, is_wanted: Sequence[bool]
    ) -> Tensor:
        self.extended_parents = torch.cat([self.extended_parents, parents], dim=1)
        num_new = token_ids.shape[1]
        visible = ancestors(self.extended_parents)[:, -num_new:]
        level = torch.zeros(visible.shape[:2], dtype=torch.int64, device=visible.device)
        hidden = self.cached.compute(
            token_ids,
            first_positions=[len(running.token_ids) + depth - 1 for running in batch.running],
            num_new=[num_new if wanted else 0 for wanted in is_wanted],
            layers=self.layers,
            branches=Branches(level, visible, self.first_slots),
        )
        for row, computed in zip(self.positions, self.cached.last_positions, strict=True):
            row.extend(computed)
        return self.target.logits(hidden)

    def commit(self, batch: Batch, accepted: Sequence[Sequence[int]]) -> None:
        pass

    def select(self, rows: Sequence[int]) -> None:
        """The engine selects the rows of its own cache."""

    def kv_lengths(self) -> None:
        return None

    def kv_rows(self, row: int) -> Tensor | None:
        return None
