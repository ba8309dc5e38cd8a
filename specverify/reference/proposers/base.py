"""What a proposer is asked for, and what it hands over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from specverify.reference.batch import Batch
from specverify.reference.cached_model import CachedModel


@dataclass(frozen=True)
class Drafts:
    """Draft tokens of every row, ragged.

    token_ids: [rows, k]; row r has num_tokens[r] of them, then padding.
    probs: [rows, k, vocab], the law that each token was really drawn from; None where the proposer is
      deterministic, which is a point mass on each token. Padding has whatever it has.
    parents: for a tree, the parent of each token [rows, k], -1 where it follows the committed text and at padding; a
      token comes after its parent, and siblings are tried in order. Then probs are the laws given the siblings before.
    extended: for a tree, [rows, k]: the number of each token among those that the proposer computed itself, -1 where
      it did not.
    positions: positions that the draft model computed for this step, per row; None without a draft model.
    """

    token_ids: Tensor
    num_tokens: Sequence[int]
    probs: Tensor | None = None
    positions: Sequence[Sequence[int]] | None = None
    parents: Tensor | None = None
    extended: Tensor | None = None

    @property
    def width(self) -> int:
        return self.token_ids.shape[1]

    def is_real(self) -> Tensor:
        """True at draft tokens, False at padding, [rows, k]."""
        device = self.token_ids.device
        if min(self.num_tokens) == self.width:
            return torch.ones(self.token_ids.shape, dtype=torch.bool, device=device)
        return torch.arange(self.width, device=device) < torch.tensor(list(self.num_tokens), device=device)[:, None]


class Proposer(Protocol):
    """Makes draft tokens. It is told when a batch starts, what was committed, and which rows go on."""

    name: str

    def start(self, batch: Batch, capacity: int) -> None:
        """Forgets everything and gets ready for this batch; capacity: tokens that the longest row may reach."""

    def propose(self, batch: Batch, num_draft_tokens: Sequence[int]) -> Drafts:
        """At most num_draft_tokens[r] tokens that may follow row r's committed text."""

    def commit(self, batch: Batch, accepted: Sequence[Sequence[int]]) -> None:
        """The batch's texts now hold what was accepted and the final token: drop whatever was not.

        accepted: the draft tokens of each row that were accepted, by number, in order: 0, 1, ... in a chain.
        """

    def select(self, rows: Sequence[int]) -> None:
        """Goes on with these rows only, in this order."""

    def kv_lengths(self) -> Sequence[int] | None:
        """Rows in use in the draft model's cache, per batch row; None without a draft model."""

    def kv_rows(self, row: int) -> Tensor | None:
        """A copy of the draft model's rows in use, [layers, 2, length, kv_heads, head_dim]."""


@dataclass(frozen=True)
class TargetStates:
    """What the target's last pass computed of tokens that are committed now; rows are ragged, padded on the right.

    hidden: [rows, width, hidden], after the last norm: what the target's head reads.
    taps: [rows, width, taps, hidden], the residual stream in front of the layers that the proposer asked for.
    num_tokens: states of each row; they are those of consecutive positions of the text, from first_positions[r] on.
      The newest committed token never has one: the next pass computes it.
    cached: the target with its cache, rolled back to the committed tokens. Whoever computes with it must put
      cache.keep back to what it was.
    """

    hidden: Tensor
    taps: Tensor | None
    num_tokens: Sequence[int]
    first_positions: Sequence[int]
    cached: CachedModel


@runtime_checkable
class TargetReader(Proposer, Protocol):
    """A proposer that drafts from the target's hidden states, or with its layers and cache.

    taps: the layers in front of which it wants the residual stream: 0 is the embedding, the number of layers is the
    stream behind the last one.
    """

    taps: Sequence[int]

    def observe(self, batch: Batch, states: TargetStates) -> None:
        """Told after prefill, and after every step before `commit`: together, each committed token but one, once."""
