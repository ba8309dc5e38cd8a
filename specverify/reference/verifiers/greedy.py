"""Greedy verification: a draft token stays while it is the target's best token."""

from __future__ import annotations

from torch import Tensor

from specverify.reference.batch import Batch
from specverify.reference.proposers.base import Drafts
from specverify.reference.verifiers.base import Verdict, accepted_prefix


class GreedyVerifier:
    """Compares draft tokens with the target's argmax; draws nothing."""

    name = "greedy"

    def verify(self, batch: Batch, drafts: Drafts, target_probs: Tensor) -> Verdict:
        best = self.best_tokens(target_probs)
        matches = (drafts.token_ids == best[:, : drafts.width]) & drafts.is_real()
        num_accepted = accepted_prefix(matches)
        return Verdict(num_accepted, self.final_tokens(best, num_accepted))

    def best_tokens(self, target_probs: Tensor) -> Tensor:
        """The target's best token at every position, [rows, k + 1]; the lowest id of a tie."""
        return target_probs.argmax(dim=-1)

    def final_tokens(self, best: Tensor, num_accepted: Tensor) -> Tensor:
        """The best token right behind the accepted ones, [rows]."""
        return best.gather(1, num_accepted[:, None])[:, 0]
