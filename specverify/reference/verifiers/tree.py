"""Verification of draft trees: several candidates for a position, tried in turn; an accepted one leads to its own.

One rule serves every way of drafting, because each candidate comes with the law it was really drawn from, given the
siblings tried before it: after a rejection what remains of the target's law is max(law - draft law, 0), renormalised.
Drawn with replacement, siblings share one law; without, each next one lacks what was drawn before; a candidate that
was chosen and not drawn (the k most likely ones) is a point mass, so it is accepted with the probability that the
target has left for it, and has none afterwards.

Source: Miao et al. 2023, SpecInfer, arXiv 2305.09781, algorithm 2, with replacement; Jeon et al. 2024, recursive
speculative decoding, arXiv 2402.14160, section 3.1, without.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specverify.reference.batch import Batch
from specverify.reference.proposers.base import Drafts
from specverify.reference.tree import ROOT, ancestors, families
from specverify.reference.verifiers.base import Verdict
from specverify.reference.verifiers.greedy import GreedyVerifier
from specverify.reference.verifiers.rejection import RejectionVerifier


class TreeRejectionVerifier(RejectionVerifier):
    """Recursive rejection. target_probs: [rows, nodes + 1, vocab]; row i + 1 is the target's law after node i."""

    name = "tree-rejection"

    def verify(self, batch: Batch, drafts: Drafts, target_probs: Tensor) -> Verdict:
        assert drafts.parents is not None
        draft_probs = self.draft_probs(drafts, target_probs)
        uniforms = self.accept_uniforms(batch, drafts)
        first_child, next_sibling = families(drafts.parents, drafts.is_real())
        rows = torch.arange(batch.num_rows, device=target_probs.device)
        law = target_probs[:, 0]
        candidate = first_child[:, 0]
        path = torch.full_like(drafts.parents, ROOT)
        num_accepted = torch.zeros_like(candidate)
        while bool((candidate != ROOT).any()):
            # Rows that are done look at some node, and keep what they have.
            is_open, tried = candidate != ROOT, candidate.clamp(min=0)
            token, draft_law = drafts.token_ids[rows, tried], draft_probs[rows, tried]
            ratio = self.candidate_ratio(law[rows, token], draft_law[rows, token])
            is_accepted = self.decided((uniforms[rows, tried] < ratio) & is_open)
            rejected_law = self.law_after_rejection(draft_law, law, token)
            law = torch.where(is_open[:, None], rejected_law, law)
            law = torch.where(is_accepted[:, None], target_probs[rows, tried + 1], law)
            path[rows[is_accepted], num_accepted[is_accepted]] = tried[is_accepted]
            num_accepted = num_accepted + is_accepted
            following = torch.where(is_accepted, first_child[rows, tried + 1], next_sibling[rows, tried + 1])
            candidate = torch.where(is_open, following, candidate)
        return Verdict(num_accepted, self.draw_final(batch, law), uniforms, path)

    def candidate_ratio(self, left: Tensor, draft: Tensor) -> Tensor:
        """What a uniform must lie below for a candidate to be accepted, [rows].

        left: what remains of the target's law at the candidate; draft: the law it was drawn from, there.
        """
        return left / draft

    def law_after_rejection(self, draft_law: Tensor, law: Tensor, token: Tensor) -> Tensor:
        """What remains of the target's law [rows, vocab] once a candidate was rejected."""
        return self.residual_law(draft_law, law)

    def decided(self, is_accepted: Tensor) -> Tensor:
        """The decisions on the host and back: a walk down the tree goes one way or the other."""
        return torch.tensor([bool(one) for one in is_accepted.tolist()], device=is_accepted.device)


class TreeGreedyVerifier(GreedyVerifier):
    """Walks down the tree along the target's best tokens; draws nothing."""

    name = "tree-greedy"

    def verify(self, batch: Batch, drafts: Drafts, target_probs: Tensor) -> Verdict:
        assert drafts.parents is not None
        best = self.best_tokens(target_probs)  # [rows, nodes + 1]
        is_match = (drafts.token_ids == best.gather(1, drafts.parents + 1)) & drafts.is_real()
        is_ancestor = ancestors(drafts.parents)
        is_reached = ~(is_ancestor & ~is_match[:, None]).any(dim=-1)
        depths = is_ancestor.sum(dim=-1) * is_reached
        num_accepted, deepest = depths.max(dim=-1)
        node = torch.where(num_accepted > 0, deepest, ROOT)
        final = best.gather(1, node[:, None] + 1)[:, 0]
        # The ancestors of the deepest node in order: a node comes after its parent.
        number = torch.arange(drafts.width, device=best.device)
        is_on_path = is_ancestor[torch.arange(len(node), device=best.device), deepest] & (num_accepted > 0)[:, None]
        return Verdict(num_accepted, final, accepted_nodes=torch.where(is_on_path, number, drafts.width).sort(1).values)
