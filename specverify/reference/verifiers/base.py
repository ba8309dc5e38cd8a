"""What a verifier is given and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from specverify.reference.batch import Batch
from specverify.reference.proposers.base import Drafts


@dataclass(frozen=True)
class Verdict:
    """num_accepted: [rows]. final_token_ids: [rows], residual or bonus. uniforms: [rows, k] of the accept tests.

    accepted_nodes: for a tree, the accepted tokens by number, in order, [rows, any width], padding behind them.
    """

    num_accepted: Tensor
    final_token_ids: Tensor
    uniforms: Tensor | None = None
    accepted_nodes: Tensor | None = None


class Verifier(Protocol):
    """An accept rule. target_probs: [rows, k + 1, vocab]; row i is the target's law after i draft tokens."""

    name: str

    def verify(self, batch: Batch, drafts: Drafts, target_probs: Tensor) -> Verdict: ...


def accepted_prefix(is_accepted: Tensor) -> Tensor:
    """Number of draft tokens before the first that is not accepted, [rows]; is_accepted: [rows, k]."""
    return is_accepted.cumprod(dim=1).sum(dim=1)
