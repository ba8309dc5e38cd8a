"""A draft model that drafts a tree: each level of nodes in one pass, on top of its own cache, under a tree mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specverify.reference.batch import Batch
from specverify.reference.model import Model
from specverify.reference.proposers.base import Drafts
from specverify.reference.proposers.draft_model import DraftModelProposer
from specverify.reference.proposers.growth import Growth
from specverify.reference.tree import Branches, ancestors


class TreeProposer(DraftModelProposer):
    """Grows a tree with the draft model. Nodes without children are never computed, as the last token of a chain."""

    name = "tree"

    def __init__(self, model: Model, growth: Growth) -> None:
        super().__init__(model)
        self.growth = growth

    @property
    def num_nodes(self) -> int:
        """Draft tokens of a step at most."""
        return self.growth.num_nodes

    def propose(self, batch: Batch, num_draft_tokens: Sequence[int]) -> Drafts:
        self.drafts = self.growth.grow(batch, self, num_draft_tokens)
        return replace(self.drafts, positions=self.positions)

    def root_logits(self, batch: Batch) -> Tensor:
        logits = self.ingest(batch)
        self.positions = [list(row) for row in self.cached.last_positions]
        # Rows of extended nodes lie behind these, in the order in which they were extended.
        self.first_slots = list(self.cached.cache.lengths)
        self.extended_parents = torch.zeros((batch.num_rows, 0), dtype=torch.int64, device=batch.device)
        return logits

    def extend_nodes(
        self, batch: Batch, token_ids: Tensor, parents: Tensor, depth: int, is_wanted: Sequence[bool]
    ) -> Tensor:
        self.extended_parents = torch.cat([self.extended_parents, parents], dim=1)
        num_new = token_ids.shape[1]
        hidden = self.cached.compute(
            token_ids,
            first_positions=self.draft_positions(batch, depth - 1),
            num_new=[num_new if wanted else 0 for wanted in is_wanted],
            branches=self.branches(num_new),
        )
        for row, computed in zip(self.positions, self.cached.last_positions, strict=True):
            row.extend(computed)
        return self.model.logits(hidden)

    def branches(self, num_new: int) -> Branches:
        """The newest num_new of the extended nodes: one position, and every one sees its ancestors only."""
        visible = ancestors(self.extended_parents)[:, -num_new:]
        return Branches(
            torch.zeros(visible.shape[:2], dtype=torch.int64, device=visible.device), visible, self.first_slots
        )

    def commit(self, batch: Batch, accepted: Sequence[Sequence[int]]) -> None:
        if self.drafts.extended is not None:
            kept = self.path_slots(accepted)
            self.cached.cache.compact(self.first_slots, kept)
            for row, slots in enumerate(kept):
                self.num_ingested[row] += len(slots)
        super().commit(batch, accepted)

    def path_slots(self, accepted: Sequence[Sequence[int]]) -> list[list[int]]:
        """Cache rows of the accepted nodes, as far down as they were computed."""
        assert self.drafts.extended is not None
        numbers = self.drafts.extended.tolist()
        paths = [[numbers[row][node] for node in path] for row, path in enumerate(accepted)]
        return [
            [first + number for number in path if number >= 0]
            for first, path in zip(self.first_slots, paths, strict=True)
        ]
