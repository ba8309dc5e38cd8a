"""The proposers that draft from the target itself, by name: EAGLE heads, Medusa heads, skipped layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from specverify.core.errors import UsageError
from specverify.reference.head_files import Head, load_head
from specverify.reference.heads import EagleHead, MedusaHeads, untrained_eagle, untrained_medusa
from specverify.reference.model import Model
from specverify.reference.proposers.eagle import EagleProposer
from specverify.reference.proposers.growth import DynamicTree, FixedTree, Growth
from specverify.reference.proposers.layer_skip import LayerSkipProposer
from specverify.reference.proposers.medusa import MedusaProposer
from specverify.reference.tree import Topology, standard_topology

# Kind, and how it grows to a depth unless the caller says how. A Medusa head never sees a draft token, so its likeliest
# token is the best single guess: it is declared as what it is, a choice without chance.
HEAD_PROPOSERS: Mapping[str, tuple[str, Callable[[int], Growth]]] = {
    "eagle": ("eagle", lambda depth: FixedTree(chain(depth))),
    "eagle-tree": ("eagle", lambda depth: FixedTree(standard_topology(depth))),
    "eagle-dynamic": ("eagle", lambda depth: DynamicTree(width=2, depth=depth, num_nodes=2 * depth + 1)),
    "medusa": ("medusa", lambda depth: FixedTree(chain(depth), is_drawn=False)),
    "medusa-tree": ("medusa", lambda depth: FixedTree(standard_topology(depth), is_drawn=False)),
    "layer-skip": ("layer-skip", lambda depth: FixedTree(chain(depth))),
}
HEAD_TREES = ("eagle-tree", "eagle-dynamic", "medusa-tree")
HEADS_WITHOUT_LAW = ("eagle-dynamic", "medusa", "medusa-tree")
HEADS_WITHOUT_CACHE = ("medusa", "medusa-tree", "layer-skip")


def make_head_proposer(
    name: str,
    target: Model,
    *,
    heads: Mapping[str, Head | str | Path],
    draft_layers: int | Sequence[int] | None,
    growth: Growth | None,
    num_draft_tokens: int,
    may_be_untrained: bool,
    mixed: Callable[[type[Any]], Any],
) -> Any:
    """The proposer of that name for this target; see ReferenceSubject for the arguments."""
    kind, grow = HEAD_PROPOSERS[name]
    growth = growth or grow(num_draft_tokens)
    if kind == "layer-skip":
        return mixed(LayerSkipProposer)(target, layers_to_run(target, draft_layers), growth)
    head = find_head(kind, target, heads.get(kind), may_be_untrained=may_be_untrained)
    return mixed(EagleProposer if isinstance(head, EagleHead) else MedusaProposer)(head, growth)


def find_head(kind: str, target: Model, given: Head | str | Path | None, *, may_be_untrained: bool) -> Head:
    """The head that is given, from its folder where that is a path.

    may_be_untrained: nothing given is a head with random weights, the same every time: losslessness owes nothing to
    training. Otherwise it raises UsageError.
    """
    if isinstance(given, EagleHead | MedusaHeads):
        return given
    if given is not None:
        return load_head(Path(given).resolve(), kind, target)
    if not may_be_untrained:
        raise UsageError(
            f"proposer {kind!r} needs a head trained for this target; train one with `specverify train {kind} "
            f"TARGET_DIR --out DIR`, and give {kind}=DIR"
        )
    return untrained_eagle(target) if kind == "eagle" else untrained_medusa(target)


def layers_to_run(target: Model, draft_layers: int | Sequence[int] | None) -> Sequence[int]:
    """The layers that draft: a number counts first layers; by default the first half."""
    num_layers = target.config.num_layers
    if draft_layers is None:
        draft_layers = max(1, num_layers // 2)
    return range(draft_layers) if isinstance(draft_layers, int) else list(draft_layers)


def chain(depth: int) -> Topology:
    """A tree without branches."""
    return Topology.from_branching([1] * depth)
