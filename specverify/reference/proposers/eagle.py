"""EAGLE: one decoder layer that drafts from the target's hidden states, and then from its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from specverify.reference.batch import Batch, padded
from specverify.reference.heads import EagleHead
from specverify.reference.proposers.base import Drafts, TargetStates
from specverify.reference.proposers.growth import Growth, as_chain
from specverify.reference.proposers.tree import TreeProposer


class EagleProposer(TreeProposer):
    """Drafts a chain or a tree. Between steps its cache has a row for every committed token, the newest included.

    The rows of draft tokens were computed from the head's own output. So even those of accepted tokens are computed
    again, from the target's features, as soon as these are there.
    """

    name = "eagle"
    kv_lag = 0
    model: EagleHead

    def __init__(self, model: EagleHead, growth: Growth) -> None:
        super().__init__(model, growth)
        self.taps = model.taps

    def observe(self, batch: Batch, states: TargetStates) -> None:
        """Takes in the committed tokens behind these states, each beside the feature of the token before it."""
        features = self.model.features(states.hidden, states.taps)
        texts = [running.token_ids for running in batch.running]
        num_new = list(states.num_tokens)
        if not any(self.num_ingested):
            features, num_new = pad(features, (0, 0, 1, 0)), [num + 1 for num in num_new]  # token 0 reads zeros
        tokens = padded([text[-new:] for text, new in zip(texts, num_new, strict=True)], batch.device)
        for row, num_rows in enumerate(self.num_ingested):
            self.cached.cache.keep(row, num_rows)
        hidden = self.cached.compute(
            tokens,
            inputs=self.model.inputs(tokens, features[:, : tokens.shape[1]]),
            first_positions=self.first_positions(batch, num_new),
            num_new=num_new,
        )
        self.num_ingested = [done + new for done, new in zip(self.num_ingested, num_new, strict=True)]
        self.hidden = hidden[torch.arange(len(texts), device=batch.device), torch.tensor(num_new) - 1][:, None]

    def first_positions(self, batch: Batch, num_new: Sequence[int]) -> list[int]:
        """Position of each row's first new token: they end with the newest one."""
        return [len(running.token_ids) - new for running, new in zip(batch.running, num_new, strict=True)]

    def propose(self, batch: Batch, num_draft_tokens: Sequence[int]) -> Drafts:
        return as_chain(super().propose(batch, num_draft_tokens), self.growth)

    def root_logits(self, batch: Batch) -> Tensor:
        self.positions: list[list[int]] = [[] for _ in batch.running]
        self.first_slots = list(self.cached.cache.lengths)
        self.extended_parents = torch.zeros((batch.num_rows, 0), dtype=torch.int64, device=batch.device)
        self.hidden = self.hidden[:, :1]
        return self.model.logits(self.hidden[:, 0])

    def extend_nodes(
        self, batch: Batch, token_ids: Tensor, parents: Tensor, depth: int, is_wanted: Sequence[bool]
    ) -> Tensor:
        self.extended_parents = torch.cat([self.extended_parents, parents], dim=1)
        num_new = token_ids.shape[1]
        hidden = self.cached.compute(
            token_ids,
            inputs=self.model.inputs(token_ids, self.parent_features(parents)),
            first_positions=self.draft_positions(batch, depth - 1),
            num_new=[num_new if wanted else 0 for wanted in is_wanted],
            branches=self.branches(num_new),
        )
        self.hidden = torch.cat([self.hidden, hidden], dim=1)
        for row, computed in zip(self.positions, self.cached.last_positions, strict=True):
            row.extend(computed)
        return self.model.logits(hidden)

    def parent_features(self, parents: Tensor) -> Tensor:
        """What the head computed behind each node's parent [rows, n, hidden]; place 0 is the newest token's."""
        places = (parents + 1)[:, :, None].expand(-1, -1, self.hidden.shape[-1])
        return self.hidden.gather(1, places)

    def commit(self, batch: Batch, accepted: Sequence[Sequence[int]]) -> None:
        """Nothing is left to do: `observe` has dropped the drafts and taken in what was committed."""

    def select(self, rows: Sequence[int]) -> None:
        super().select(rows)
        self.hidden = self.hidden[list(rows)]
