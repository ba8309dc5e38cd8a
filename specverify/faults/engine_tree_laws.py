"""Engine faults with draft trees, in laws and decisions: what siblings are declared to be, the walk down the tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from specverify.faults.engine_parts import OwnDrafterOnly, Planted, probe_engine
from specverify.faults.fault import CorrectSubject
from specverify.reference.batch import Batch
from specverify.reference.engine import ReferenceEngine
from specverify.reference.proposers import Drafts, FixedTree
from specverify.reference.proposers.growth import TreeSource
from specverify.reference.subject import Parts
from specverify.reference.tree import ROOT, Topology
from specverify.reference.verifiers import (
    RejectionVerifier,
    TreeGreedyVerifier,
    TreeRejectionVerifier,
    Verdict,
    Verifier,
)

plant = Planted(proposer="tree")

_MEDUSA_DIFFERS = "NVIDIA/TensorRT-LLM#1795"
_EAGLE_SAMPLING = "SafeAILab/EAGLE#50"
_ALTERNATIVES_IN_LINE = "1bit-MONSTER/1bit-MONSTER#111"


class _DeclaresWholeLaw(FixedTree):
    """Draws siblings without replacement and declares the law of the eldest for all of them."""

    def grow(self, batch: Batch, source: TreeSource, num_draft_tokens: Sequence[int]) -> Drafts:
        drafts = super().grow(batch, source, num_draft_tokens)
        if drafts.probs is None or drafts.parents is None:
            return drafts
        is_sibling = drafts.parents[:, :, None] == drafts.parents[:, None]
        eldest = is_sibling.to(torch.int8).argmax(dim=-1)
        rows = torch.arange(batch.num_rows, device=batch.device)[:, None]
        return replace(drafts, probs=drafts.probs[rows, eldest])


class _Logits:
    """A source of a tree's laws that remembers them."""

    def __init__(self, source: TreeSource) -> None:
        self.source = source

    def root_logits(self, batch: Batch) -> Tensor:
        root = self.source.root_logits(batch)
        self.rows = root[:, None]
        return root

    def extend_nodes(self, batch: Batch, *node_arguments: Any) -> Tensor:
        logits = self.source.extend_nodes(batch, *node_arguments)
        self.rows = torch.cat([self.rows, logits], dim=1)
        return logits


class _DeclaresSoftLaw(FixedTree):
    """Takes the likeliest children and declares the law that they are the likeliest of."""

    def grow(self, batch: Batch, source: TreeSource, num_draft_tokens: Sequence[int]) -> Drafts:
        seen = _Logits(source)
        drafts = super().grow(batch, seen, num_draft_tokens)
        if batch.sampling.is_greedy or drafts.parents is None or drafts.extended is None:
            return drafts
        number = drafts.extended.gather(1, drafts.parents.clamp(min=0))
        number = torch.where(drafts.parents == ROOT, 0, number + 1)
        rows = torch.arange(batch.num_rows, device=batch.device)[:, None]
        return replace(drafts, probs=batch.sampling.law(seen.rows)[rows, number])


def _tree(*branching: int) -> Topology:
    return Topology.from_branching(branching)


@plant("tree-drawn-without-declared-with", _EAGLE_SAMPLING, growth=_DeclaresWholeLaw(_tree(2, 2)))
class _WholeLawDeclared(ReferenceEngine):
    """Siblings are drawn without replacement, and the verifier is told that they were drawn with it."""


@plant("tree-likeliest-declared-as-drawn", "antirez/ds4#482", growth=_DeclaresSoftLaw(_tree(2, 2), False))
class _SoftLawDeclared(ReferenceEngine):
    """Siblings are the likeliest tokens, and the verifier is told that they were drawn from the draft law."""


@plant("tree-rows-of-parent", "ohdearquant/lattice#243")
class _RowsOfNodeBefore(ReferenceEngine):
    """What follows a draft token of a tree is verified against the law of the draft token before it in the list."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        law = super().target_law(batch, logits, drafts)
        return law if drafts.parents is None else torch.cat([law[:, :1], law[:, :-1]], dim=1)


@plant("tree-penalties-see-siblings", "openvinotoolkit/openvino.genai#3451")
class _PenaltiesSeeSiblings(ReferenceEngine):
    """Penalties at a draft token of a tree count all draft tokens before it, siblings included."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        return super().target_law(batch, logits, replace(drafts, parents=None))


class _TreesVerifiedBy(ReferenceEngine):
    """Sampled trees are verified by another verifier, or greedy ones."""

    sampled: type[Verifier] = TreeRejectionVerifier
    greedy: type[Verifier] = TreeGreedyVerifier

    def choose_verifier(self, batch: Batch, drafts: Drafts) -> Verifier:
        if drafts.parents is None:
            return super().choose_verifier(batch, drafts)
        return self.greedy() if batch.sampling.is_greedy else self.sampled()


class _TargetStays(TreeRejectionVerifier):
    def law_after_rejection(self, draft_law: Tensor, law: Tensor, token: Tensor) -> Tensor:
        return law


@plant("tree-siblings-tried-against-target", _EAGLE_SAMPLING)
class _SiblingsAgainstTarget(_TreesVerifiedBy):
    """After a rejection the next sibling is tried against the whole target law again."""

    sampled = _TargetStays


class _AsAChain(RejectionVerifier):
    def verify(self, batch: Batch, drafts: Drafts, target_probs: Tensor) -> Verdict:
        verdict = super().verify(batch, drafts, target_probs)
        return replace(verdict, accepted_nodes=torch.arange(drafts.width).expand_as(drafts.token_ids))


@plant("tree-path-across-branches", _ALTERNATIVES_IN_LINE)
class _TreeAsAChain(_TreesVerifiedBy):
    """The draft tokens of a tree are verified one after the other, as if each followed the one before it."""

    sampled = _AsAChain


class _AnyMatch(TreeGreedyVerifier):
    def verify(self, batch: Batch, drafts: Drafts, target_probs: Tensor) -> Verdict:
        right = super().verify(batch, drafts, target_probs)
        assert right.accepted_nodes is not None
        best = self.best_tokens(target_probs)
        rows, first = torch.arange(batch.num_rows), torch.zeros(batch.num_rows, dtype=torch.int64)
        is_first = (right.num_accepted == 0) & drafts.is_real()[:, 0]
        path = torch.where(is_first[:, None], torch.arange(drafts.width), right.accepted_nodes)
        final = torch.where(is_first, best[rows, first + 1], right.final_token_ids)
        return replace(right, num_accepted=right.num_accepted + is_first, accepted_nodes=path, final_token_ids=final)


@plant("tree-greedy-takes-first", _MEDUSA_DIFFERS)
class _GreedyTakesFirst(_TreesVerifiedBy):
    """At temperature 0 the first candidate is taken where none of them is the target's best token."""

    greedy = _AnyMatch


class _SiblingsAsPoints(TreeRejectionVerifier):
    """Throws the draft laws away: siblings are accepted in turn with what the target has left for them.

    Lossless however they were drawn, and accepts less: SafeAILab/EAGLE#183, sgl-project/sglang#9877.
    """

    def draft_probs(self, drafts: Drafts, target_probs: Tensor) -> Tensor:
        return one_hot(drafts.token_ids, target_probs.shape[-1]).to(target_probs.dtype)


class _SiblingsAsPointsEngine(_TreesVerifiedBy):
    sampled = _SiblingsAsPoints


def _subject(name: str, sentence: str, proposer: str = "tree", **options: Any) -> CorrectSubject:
    def make() -> OwnDrafterOnly:
        return OwnDrafterOnly(probe_engine(name, proposer=proposer, every_option=False, **options))

    return CorrectSubject(name, sentence, make)


FAULTS = plant.faults
CORRECT = (
    _subject("engine-tree", "Trees whose siblings are drawn without replacement."),
    _subject("engine-tree-replacement", "Trees whose siblings are drawn with replacement.", "tree-replacement",
             growth=FixedTree(_tree(2, 1), with_replacement=True)),
    _subject("engine-tree-top", "Trees of the likeliest tokens.", "tree-top"),
    _subject("engine-tree-dynamic", "Trees that grow where the draft model is confident.", "tree-dynamic"),
    _subject("engine-tree-point-mass", "Drawn trees, verified as if every token had been chosen.",
             parts=Parts(engine_class=_SiblingsAsPointsEngine)),
)  # fmt: skip
