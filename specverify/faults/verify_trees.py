"""The reference engine's tree verifiers as verify functions: their law can be enumerated step by step."""

from __future__ import annotations

from torch import Tensor

from specverify.core.types import Request
from specverify.faults.fault import CorrectSubject, Fault
from specverify.reference.batch import Batch, RunningRequest
from specverify.reference.draws import RequestStreams
from specverify.reference.proposers import Drafts
from specverify.reference.verifiers import TreeRejectionVerifier


class ReferenceTreeVerifier:
    """Recursive rejection, as the engine does it."""

    verifier_class: type[TreeRejectionVerifier] = TreeRejectionVerifier

    def __call__(
        self, draft_token_ids: Tensor, parents: Tensor, draft_probs: Tensor, target_probs: Tensor
    ) -> tuple[list[int], int]:
        device = target_probs.device
        running = RunningRequest(Request((0,), 8), 0, [0], RequestStreams(None, device))
        batch = Batch([running], target_probs.shape[-1], device)
        drafts = Drafts(draft_token_ids[None], [len(draft_token_ids)], draft_probs[None], parents=parents[None])
        verdict = self.verifier_class().verify(batch, drafts, target_probs[None])
        assert verdict.accepted_nodes is not None
        num_accepted = int(verdict.num_accepted[0])
        path = verdict.accepted_nodes[0, :num_accepted]
        return [*draft_token_ids[path].tolist(), int(verdict.final_token_ids[0])], num_accepted


class _ResidualOfWholeLaw(TreeRejectionVerifier):
    def law_after_rejection(self, draft_law: Tensor, law: Tensor, token: Tensor) -> Tensor:
        return law.scatter(-1, token[:, None], 0.0) / (1.0 - law.gather(-1, token[:, None]))


class _TriedSiblingsRemoved(ReferenceTreeVerifier):
    verifier_class = _ResidualOfWholeLaw


FAULTS = (
    Fault(
        "verify-tree-drawn-siblings-removed",
        "a rejected candidate that was drawn is struck out, as if it had been chosen",
        "SafeAILab/EAGLE#183 (the rule of a point mass beside the ratio of a drawn candidate)",
        _TriedSiblingsRemoved,
    ),
)
CORRECT = (
    CorrectSubject(
        "reference-tree-rejection", "the reference engine's recursive rejection over trees", ReferenceTreeVerifier
    ),
)
