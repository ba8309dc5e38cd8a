"""Engine faults with draft trees, in what is computed and kept: masks, positions, compaction of both caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specverify.faults.engine_parts import Planted
from specverify.reference.batch import Batch
from specverify.reference.cached_model import CachedModel
from specverify.reference.engine import ReferenceEngine
from specverify.reference.proposers import Drafts, FixedTree
from specverify.reference.tree import Branches, Topology

plant = Planted(proposer="tree")

_REWIND = "NVIDIA/TensorRT-LLM#10343"
_MEDUSA_DIFFERS = "NVIDIA/TensorRT-LLM#1795"
_ALTERNATIVES_IN_LINE = "1bit-MONSTER/1bit-MONSTER#111"
_DEEP: dict[str, Any] = {"num_draft_tokens": 3, "growth": FixedTree(Topology.from_branching((2, 1, 1)))}


@plant("tree-kv-rewound-as-suffix", _REWIND)
class _NoCompaction(ReferenceEngine):
    """The target's cache keeps as many rows of a tree as were accepted: the first ones, whatever they hold."""

    def compact(self, drafts: Drafts, accepted: Sequence[Sequence[int]]) -> None:
        return


@plant("tree-kv-path-one-off", "mlc-ai/mlc-llm#2949")
class _PathOneOff(ReferenceEngine):
    """The rows kept of a tree are those one behind the accepted draft tokens."""

    def path_slots(self, first_slots: Sequence[int], accepted: Sequence[Sequence[int]]) -> list[list[int]]:
        return [[slot + 1 for slot in path] for path in super().path_slots(first_slots, accepted)]


@plant("tree-path-of-neighbour", "huggingface/text-generation-inference#1411")
class _PathOfNeighbour(ReferenceEngine):
    """In a batch, the rows kept of a tree are those of the path that another request accepted."""

    def path_slots(self, first_slots: Sequence[int], accepted: Sequence[Sequence[int]]) -> list[list[int]]:
        slots = super().path_slots(first_slots, accepted)
        borrowed = [[first + node for node in path] for first, path in zip(first_slots, _rolled(accepted), strict=True)]
        return [other if len(own) == len(other) else own for own, other in zip(slots, borrowed, strict=True)]


def _rolled(paths: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    return [*paths[1:], *paths[:1]]


def _causal(branches: Branches) -> Branches:
    """Every token sees all that come before it in the list."""
    rows, width, span = branches.visible.shape
    causal = torch.ones((width, span), dtype=torch.bool, device=branches.visible.device).tril(span - width)
    return replace(branches, visible=causal.expand(rows, width, span))


@plant("tree-siblings-visible", _MEDUSA_DIFFERS)
class _SeesSiblings(CachedModel):
    """The verify pass lets a draft token of a tree see all that come before it in the list, siblings included."""

    def tree_mask(self, num_slots: int, branches: Branches) -> Tensor:
        return super().tree_mask(num_slots, _causal(branches))


@plant("tree-ancestor-hidden", _MEDUSA_DIFFERS)
class _HidesParents(CachedModel):
    """The verify pass lets a draft token of a tree see the committed text and itself, and no draft token above it."""

    def tree_mask(self, num_slots: int, branches: Branches) -> Tensor:
        own = torch.eye(branches.visible.shape[1], dtype=torch.bool, device=branches.visible.device)
        own = own[:, : branches.visible.shape[2]].clone()
        own[:, 0] = True
        return super().tree_mask(num_slots, replace(branches, visible=branches.visible & own))


@plant("tree-positions-by-node", _ALTERNATIVES_IN_LINE)
class _PositionsByNode(CachedModel):
    """The verify pass gives the draft tokens of a tree consecutive positions, siblings too."""

    def tree_positions(self, first_positions: Sequence[int], branches: Branches) -> Tensor:
        return self.token_positions(first_positions, branches.depths.shape[1])


@plant("tree-draft-kv-rewound-as-suffix", _REWIND)
class _DraftKeepsFirstRows:
    """The draft model's cache keeps as many rows of a tree as were accepted: the first ones, whatever they hold."""

    first_slots: list[int]

    def path_slots(self, accepted: Sequence[Sequence[int]]) -> list[list[int]]:
        kept = super().path_slots(accepted)  # type: ignore[misc]
        return [list(range(first, first + len(s))) for first, s in zip(self.first_slots, kept, strict=True)]


@plant("tree-draft-siblings-visible", "vllm-project/vllm#26498")
class _DraftSeesSiblings:
    """The draft model computes a tree under a causal mask: a draft token sees its siblings."""

    def branches(self, num_new: int) -> Branches:
        return _causal(super().branches(num_new))  # type: ignore[misc]


@plant("tree-draft-positions-stay", "vllm-project/vllm#26498", **_DEEP)
class _DraftPositionsStay:
    """The draft model computes every level of a tree at the position of the first."""

    def draft_positions(self, batch: Batch, index: int) -> list[int]:
        positions: list[int] = super().draft_positions(batch, 0)  # type: ignore[misc]
        return positions


FAULTS = plant.faults
