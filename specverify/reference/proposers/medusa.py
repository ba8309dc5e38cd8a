"""Medusa: every head guesses one token further ahead from the same hidden state."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specverify.reference.batch import Batch
from specverify.reference.heads import MedusaHeads
from specverify.reference.proposers.base import Drafts, TargetStates
from specverify.reference.proposers.growth import Growth, as_chain


class MedusaProposer:
    """Drafts as deep as there are heads. A head sees no draft token, so all nodes of a level have one law.

    The newest token has no hidden state yet. The state before it gave the target's law of the newest token, and gives
    head 0's law of the token after it.
    """

    name = "medusa"
    taps: Sequence[int] = ()

    def __init__(self, heads: MedusaHeads, growth: Growth) -> None:
        self.heads = heads
        self.growth = growth

    @property
    def num_nodes(self) -> int:
        return self.growth.num_nodes

    def start(self, batch: Batch, capacity: int) -> None:
        pass

    def observe(self, batch: Batch, states: TargetStates) -> None:
        last = torch.tensor(list(states.num_tokens), device=batch.device) - 1
        self.hidden = states.hidden[torch.arange(batch.num_rows, device=batch.device), last]

    def propose(self, batch: Batch, num_draft_tokens: Sequence[int]) -> Drafts:
        num_levels = [min(wanted, self.heads.num_heads) for wanted in num_draft_tokens]
        return as_chain(self.growth.grow(batch, self, num_levels), self.growth)

    def root_logits(self, batch: Batch) -> Tensor:
        self.logits = self.heads.logits(self.hidden)  # [rows, heads, vocab]
        return self.logits[:, 0]

    def extend_nodes(
        self, batch: Batch, token_ids: Tensor, parents: Tensor, depth: int, is_wanted: Sequence[bool]
    ) -> Tensor:
        return self.logits[:, depth, None].expand(-1, token_ids.shape[1], -1)

    def commit(self, batch: Batch, accepted: Sequence[Sequence[int]]) -> None:
        pass

    def select(self, rows: Sequence[int]) -> None:
        self.hidden = self.hidden[list(rows)]

    def kv_lengths(self) -> None:
        return None

    def kv_rows(self, row: int) -> Tensor | None:
        return None
