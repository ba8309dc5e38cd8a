"""Accept rules that are lossy by design: typical acceptance, and a lenient accept test. For chains and for trees.

At temperature 0 both are exact: a law of one token leaves nothing to relax.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specverify.core.errors import UsageError
from specverify.reference.batch import Batch
from specverify.reference.proposers.base import Drafts
from specverify.reference.proposers.growth import DynamicTree, FixedTree, Growth
from specverify.reference.tree import ROOT, ancestors
from specverify.reference.verifiers.base import Verdict, Verifier
from specverify.reference.verifiers.rejection import RejectionVerifier
from specverify.reference.verifiers.tree import TreeRejectionVerifier


@dataclass(frozen=True)
class LossyRule:
    """A lossy rule and what is to be declared of it.

    distance: the largest total variation of a token's law, given the text before it, that the rule can cause; None
    where no such number below 1 is known. It grows with the candidates of a position, of which there are `siblings`.
    """

    name: str
    reason: str
    make_verifier: Callable[[], Verifier]
    loss_of_a_candidate: float | None = None

    def distance(self, siblings: int = 1) -> float | None:
        if self.loss_of_a_candidate is None:
            return None
        return min(1.0, siblings * self.loss_of_a_candidate)


def typical_acceptance(*, epsilon: float = 0.09, delta: float = 0.3) -> LossyRule:
    """Accepts a draft token that is not too unlikely for how sure the target is; draft laws are not looked at.

    The threshold on the target's probability is min(epsilon, delta * exp(-entropy)); of all accepted paths the longest
    is kept, the first of equals. epsilon, delta: as in Medusa's code.

    Source: Cai et al. 2024, Medusa, arXiv 2401.10774, section 2.3.1. There the first token of a step is a greedy
    choice; here every step ends with a token drawn from the target's law, so that none is exempt from the test.
    """
    if not (0.0 < epsilon <= 1.0 and 0.0 < delta <= 1.0):
        raise UsageError(f"epsilon is {epsilon:g} and delta {delta:g}; give two numbers above 0, at most 1")
    reason = f"typical acceptance, threshold min({epsilon:g}, {delta:g} * exp(-entropy))"
    return LossyRule("typical", reason, lambda: TypicalVerifier(epsilon, delta))


def lenient_acceptance(*, lenience: float = 0.7) -> LossyRule:
    """The lossless rule with the draft law counted `lenience` times: at 1 it is lossless, towards 0 it accepts all.

    A draft token is accepted with target / (lenience * draft). No token becomes more than 1 - lenience times its draft
    probability too likely, hence the distance of one candidate.

    Source: Leviathan et al. 2023, arXiv 2211.17192, appendix A.5.
    """
    if not 0.0 < lenience <= 1.0:
        raise UsageError(f"lenience is {lenience:g}; give a number above 0, at most 1, where 1 is lossless")
    reason = f"lenient acceptance, draft law counted {lenience:g} times"
    return LossyRule("lenient", reason, lambda: LenientVerifier(lenience), 1.0 - lenience)


def num_siblings(growth: Growth | None) -> int:
    """Candidates that one place of a draft has at most; None is a chain."""
    if isinstance(growth, FixedTree):
        return 1 + max(growth.topology.ranks, default=0)
    return growth.width if isinstance(growth, DynamicTree) else 1


LOSSY_RULES: dict[str, Callable[[], LossyRule]] = {"typical": typical_acceptance, "lenient": lenient_acceptance}


def lossy_rule(rule: str | LossyRule) -> LossyRule:
    """The rule of that name with its usual numbers, or the rule itself."""
    if isinstance(rule, LossyRule):
        return rule
    if rule not in LOSSY_RULES:
        raise UsageError(f"lossy rule {rule!r} is unknown; choose from {', '.join(LOSSY_RULES)}")
    return LOSSY_RULES[rule]()


class TypicalVerifier:
    """Draws nothing but the final token."""

    name = "typical"

    def __init__(self, epsilon: float, delta: float) -> None:
        self.epsilon = epsilon
        self.delta = delta

    def verify(self, batch: Batch, drafts: Drafts, target_probs: Tensor) -> Verdict:
        parents = drafts.parents if drafts.parents is not None else _chain(drafts)
        laws = target_probs.gather(1, (parents + 1)[:, :, None].expand(-1, -1, target_probs.shape[-1]))
        chance = laws.gather(-1, drafts.token_ids[:, :, None])[:, :, 0]  # [rows, nodes]
        is_typical = (chance >= self.thresholds(laws)) & (chance > 0.0) & drafts.is_real()
        is_ancestor = ancestors(parents)
        is_reached = ~(is_ancestor & ~is_typical[:, None]).any(dim=-1)
        depths = is_ancestor.sum(dim=-1) * is_reached
        # A column of zeros in front: the root, which is what is left where nothing is accepted.
        num_accepted, deepest = torch.nn.functional.pad(depths, (1, 0)).max(dim=-1)
        rows = torch.arange(batch.num_rows, device=parents.device)
        final = batch.draw(target_probs[rows, deepest])
        if drafts.parents is None:
            return Verdict(num_accepted, final)
        is_on_path = is_ancestor[rows, (deepest - 1).clamp(min=0)] & (num_accepted > 0)[:, None]
        numbers = torch.arange(drafts.width, device=parents.device)
        path = torch.where(is_on_path, numbers, drafts.width).sort(dim=1).values
        return Verdict(num_accepted, final, accepted_nodes=path)

    def thresholds(self, laws: Tensor) -> Tensor:
        """Least target probability of an accepted token under laws [..., vocab]."""
        entropy = -torch.xlogy(laws, laws).sum(dim=-1)
        return (self.delta * torch.exp(-entropy)).clamp(max=self.epsilon)


def _chain(drafts: Drafts) -> Tensor:
    return torch.arange(ROOT, drafts.width - 1, device=drafts.token_ids.device).expand_as(drafts.token_ids)


class LenientVerifier:
    """Rejection with a draft law that is too small, so that more is accepted."""

    name = "lenient"

    def __init__(self, lenience: float) -> None:
        self.chain, self.tree = _LenientChain(), _LenientTree()
        self.chain.lenience = self.tree.lenience = lenience

    def verify(self, batch: Batch, drafts: Drafts, target_probs: Tensor) -> Verdict:
        return (self.chain if drafts.parents is None else self.tree).verify(batch, drafts, target_probs)


class _LenientChain(RejectionVerifier):
    lenience: float

    def draft_probs(self, drafts: Drafts, target_probs: Tensor) -> Tensor:
        return self.lenience * super().draft_probs(drafts, target_probs)


class _LenientTree(TreeRejectionVerifier):
    lenience: float

    def draft_probs(self, drafts: Drafts, target_probs: Tensor) -> Tensor:
        return self.lenience * super().draft_probs(drafts, target_probs)
