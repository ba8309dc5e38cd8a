"""The standard drafters: what they make the verifier do is known beforehand.

They run the target model itself as their draft model, so they know the law they will be verified against. All but
"sometimes-empty" therefore need no second model. Scripts depend on the request alone, never on its batch row.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specverify.reference.batch import Batch, RunningRequest
from specverify.reference.proposers.base import Drafts
from specverify.reference.proposers.draft_model import DraftModelProposer
from specverify.reference.sampling import TokenCounts

EMPTY_EVERY = 3


class SelfProposer(DraftModelProposer):
    """Drafts with the target's own law: everything must be accepted, up to rounding."""

    name = "self"


class AntiProposer(DraftModelProposer):
    """Drafts the least likely token, as a point mass: accepted only with that token's own probability.

    Under greedy decoding, or where sampling parameters remove any token, that is never.
    """

    name = "anti"

    def draft_law(
        self,
        batch: Batch,
        logits: Tensor,
        counts: TokenCounts | None,
        index: int,
        num_draft_tokens: Sequence[int],
    ) -> Tensor:
        return least_likely(super().draft_law(batch, logits, counts, index, num_draft_tokens))


class AlternatingProposer(DraftModelProposer):
    """Aims for each accept length in turn: so many draft tokens with the target's law, the rest least likely."""

    name = "alternating"

    def draft_law(
        self,
        batch: Batch,
        logits: Tensor,
        counts: TokenCounts | None,
        index: int,
        num_draft_tokens: Sequence[int],
    ) -> Tensor:
        law = super().draft_law(batch, logits, counts, index, num_draft_tokens)
        aims = zip(batch.running, num_draft_tokens, strict=True)
        is_agreed = torch.tensor([index < wanted_length(r, k) for r, k in aims], device=batch.device)
        return torch.where(is_agreed[:, None], law, least_likely(law))


class SometimesEmptyProposer(DraftModelProposer):
    """Proposes nothing in every third step. The draft model must keep up with the text all the same."""

    name = "sometimes-empty"

    def propose(self, batch: Batch, num_draft_tokens: Sequence[int]) -> Drafts:
        wanted = [
            0 if turn(running) % EMPTY_EVERY == 0 else num
            for running, num in zip(batch.running, num_draft_tokens, strict=True)
        ]
        return super().propose(batch, wanted)


def turn(running: RunningRequest) -> int:
    """Steps done, started at a number that differs between prompts so that batch rows are out of step."""
    return len(running.steps) + running.prompt_length


def wanted_length(running: RunningRequest, num_draft_tokens: int) -> int:
    """The accept length that the alternating drafter aims for: 0 to num_draft_tokens, in turn."""
    return turn(running) % (num_draft_tokens + 1)


def least_likely(law: Tensor) -> Tensor:
    """Point masses on the least likely token of each row, [rows, vocab]."""
    return torch.zeros_like(law).scatter_(-1, law.argmin(dim=-1, keepdim=True), 1.0)
