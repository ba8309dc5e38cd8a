"""What an engine is put together from: proposers by name, and the parts that a planted bug replaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specverify.core.errors import UsageError
from specverify.reference.engine import ReferenceEngine
from specverify.reference.head_files import Head
from specverify.reference.head_proposers import HEAD_PROPOSERS, make_head_proposer
from specverify.reference.model import Model
from specverify.reference.proposers import (
    AlternatingProposer,
    AntiProposer,
    DraftModelProposer,
    DynamicTree,
    FixedTree,
    Growth,
    NgramProposer,
    Proposer,
    SelfProposer,
    SometimesEmptyProposer,
    TreeProposer,
)
from specverify.reference.tree import standard_topology
from specverify.reference.verifiers import Verifier

# Proposers that run a model: the draft model, or (True) the target itself.
MODEL_PROPOSERS: Mapping[str, tuple[type[DraftModelProposer], bool]] = {
    "draft-model": (DraftModelProposer, False),
    "sometimes-empty": (SometimesEmptyProposer, False),
    "self": (SelfProposer, True),
    "anti": (AntiProposer, True),
    "alternating": (AlternatingProposer, True),
}
# Trees of the draft model: how they grow to a depth, unless the caller says how.
TREES: Mapping[str, Callable[[int], Growth]] = {
    "tree": lambda depth: FixedTree(standard_topology(depth)),
    "tree-replacement": lambda depth: FixedTree(standard_topology(depth), with_replacement=True),
    "tree-top": lambda depth: FixedTree(standard_topology(depth), is_drawn=False),
    "tree-dynamic": lambda depth: DynamicTree(width=2, depth=depth, num_nodes=2 * depth + 1),
}
PROPOSERS = (*MODEL_PROPOSERS, "n-gram", *TREES, *HEAD_PROPOSERS)


@dataclass(frozen=True)
class Parts:
    """What the engine is put together from; a planted bug replaces one of them.

    proposer_mixin: mixed into every proposer that runs a model, so that a bug of the draft side is there whichever
      drafter is put in. ngram_class: the proposer called "n-gram". make_verifier: None leaves the choice to the
      engine.
    """

    engine_class: type[ReferenceEngine] = ReferenceEngine
    proposer_mixin: type | None = None
    ngram_class: type[NgramProposer] = NgramProposer
    make_verifier: Callable[[], Verifier] | None = None

    def mixed(self, proposer_class: type[Any]) -> Any:
        """The class with the mixin in front, where there is one."""
        if self.proposer_mixin is None:
            return proposer_class
        return type(proposer_class.__name__, (self.proposer_mixin, proposer_class), {})


# An engine without planted bugs.
SOUND = Parts()


def make_proposer(
    name: str,
    parts: Parts,
    *,
    target: Model,
    draft: Model | None,
    num_draft_tokens: int,
    growth: Growth | None,
    heads: Mapping[str, Head | str | Path],
    draft_layers: int | Sequence[int] | None,
    may_be_untrained: bool,
) -> Proposer:
    """The proposer of that name, with the planted bug of the parts in it where there is one.

    Arguments as in ReferenceSubject. Raises UsageError where the name needs a draft model and there is none.
    """
    if name == "n-gram":
        return parts.ngram_class()
    if name in HEAD_PROPOSERS:
        head: Proposer = make_head_proposer(
            name,
            target,
            heads=heads,
            draft_layers=draft_layers,
            growth=growth,
            num_draft_tokens=num_draft_tokens,
            may_be_untrained=may_be_untrained,
            mixed=parts.mixed,
        )
        return head
    if name in ("draft-model", *TREES) and draft is None:
        raise UsageError(f"proposer {name!r} needs a draft model; give one, or choose from {_without_draft()}")
    if name in TREES:
        assert draft is not None
        tree: Proposer = parts.mixed(TreeProposer)(draft, growth or TREES[name](num_draft_tokens))
        return tree
    proposer_class, runs_target = MODEL_PROPOSERS[name]
    made: Proposer = parts.mixed(proposer_class)(target if runs_target or draft is None else draft)
    return made


def _without_draft() -> str:
    return ", ".join(name for name in PROPOSERS if name not in ("draft-model", *TREES))
