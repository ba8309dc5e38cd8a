"""Speculative sampling: accept with min(1, target / draft), else draw from the residual; a bonus if all is accepted.

Source: Leviathan et al. 2023, arXiv 2211.17192, algorithm 1; Chen et al. 2023, arXiv 2302.01318, algorithm 2.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from specverify.reference.batch import Batch
from specverify.reference.draws import ACCEPT, FINAL, draw_uniforms
from specverify.reference.proposers.base import Drafts
from specverify.reference.verifiers.base import Verdict, accepted_prefix


class RejectionVerifier:
    """The lossless token-by-token rule. A proposer without draft_probs counts as a point mass on each token.

    Greedy rows need no special case: their laws are point masses too, and the same rule compares argmaxes.
    """

    name = "rejection"

    def verify(self, batch: Batch, drafts: Drafts, target_probs: Tensor) -> Verdict:
        draft_probs = self.draft_probs(drafts, target_probs)
        ratios = self.acceptance_ratios(drafts, draft_probs, target_probs)
        uniforms = self.accept_uniforms(batch, drafts)
        num_accepted = accepted_prefix((uniforms < ratios) & drafts.is_real())
        law = self.final_law(drafts, draft_probs, target_probs, num_accepted)
        return Verdict(num_accepted, self.draw_final(batch, law), uniforms)

    def draft_probs(self, drafts: Drafts, target_probs: Tensor) -> Tensor:
        """The draft law of every draft token, [rows, k, vocab]."""
        if drafts.probs is None:
            return one_hot(drafts.token_ids, target_probs.shape[-1]).to(target_probs.dtype)
        return drafts.probs.to(target_probs.dtype)

    def acceptance_ratios(self, drafts: Drafts, draft_probs: Tensor, target_probs: Tensor) -> Tensor:
        """target / draft at each draft token, [rows, k]; a token is accepted where a uniform lies below it.

        Two zeros give NaN, and no number lies below that: rejected.
        """
        chosen = drafts.token_ids[:, :, None]
        target = self.rows_to_verify(target_probs, drafts.width).gather(-1, chosen)
        return (target / draft_probs.gather(-1, chosen))[:, :, 0]

    def rows_to_verify(self, target_probs: Tensor, width: int) -> Tensor:
        """The target's law that belongs to each draft token, [rows, k, vocab]: row i is the one before token i."""
        return target_probs[:, :width]

    def accept_uniforms(self, batch: Batch, drafts: Drafts) -> Tensor:
        """One uniform in [0, 1) per draft token, [rows, k], float64, from each request's own accept stream."""
        return draw_uniforms(batch.streams, ACCEPT, drafts.num_tokens)

    def final_law(self, drafts: Drafts, draft_probs: Tensor, target_probs: Tensor, num_accepted: Tensor) -> Tensor:
        """Law of the final token, [rows, vocab]: residual where a draft token was rejected, bonus where none was."""
        num_tokens = torch.tensor(list(drafts.num_tokens), device=num_accepted.device)
        bonus = self.bonus_law(target_probs, num_tokens)
        if not drafts.width:
            return bonus
        index = torch.arange(len(num_accepted), device=num_accepted.device)
        # A row that accepted everything looks up its last draft law, and drops what comes of it.
        rejected = num_accepted.clamp(max=drafts.width - 1)
        residual = self.residual_law(draft_probs[index, rejected], target_probs[index, num_accepted])
        return torch.where((num_accepted == num_tokens)[:, None], bonus, residual)

    def residual_law(self, draft_probs: Tensor, target_probs: Tensor) -> Tensor:
        """max(target - draft, 0) renormalised, for rows [rows, vocab]; the target's row where nothing is left."""
        mass = (target_probs - draft_probs).clamp(min=0.0)
        total = mass.sum(dim=-1, keepdim=True)
        return torch.where(total > 0.0, mass / total, target_probs)

    def bonus_law(self, target_probs: Tensor, num_tokens: Tensor) -> Tensor:
        """The target's law after all draft tokens of each row, [rows, vocab]."""
        return target_probs[torch.arange(len(num_tokens), device=num_tokens.device), num_tokens]

    def draw_final(self, batch: Batch, law: Tensor) -> Tensor:
        """Final tokens [rows], from each request's own final stream."""
        return batch.draw(law, FINAL)
