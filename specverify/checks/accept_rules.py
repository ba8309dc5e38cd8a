"""How many draft tokens the known lossless rules accept, given both laws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.checks import tree_shape
from specverify.core.types import Step
from specverify.laws.residual import accept_ratio, residual
from specverify.laws.steps import block_quantities

Array = NDArray[np.float64]


def token_chances(step: Step, *, point_mass: bool, draft_probs: Any = None, target_probs: Any = None) -> Array:
    """Chance that each draft token passes, given that those before it did, [k].

    point_mass: the rule that ignores the draft law, which is also sample-and-compare. Laws as recorded in the step
    where none are given.
    """
    target = np.asarray(step.target_probs if target_probs is None else target_probs, dtype=np.float64)
    draft = step.draft_probs if draft_probs is None else draft_probs
    places, tokens = np.arange(step.num_draft_tokens), list(step.draft_token_ids)
    wanted = target[places, tokens]
    if point_mass or draft is None:
        return wanted
    chances: Array = np.asarray(accept_ratio(np.asarray(draft, dtype=np.float64)[places, tokens], wanted))
    return chances


def accepted_laws(step: Step, draft_probs: Any, target_probs: Any) -> Mapping[str, Array]:
    """Law of the number of accepted draft tokens, [k + 1], by name of the rule; those of trees end at their depth."""
    if tree_shape.is_tree(step):
        laws = {"point-mass": _tree_law(step, None, np.asarray(target_probs, dtype=np.float64))}
        if draft_probs is not None:
            laws["token-wise"] = _tree_law(step, np.asarray(draft_probs, dtype=np.float64), np.asarray(target_probs))
        return laws
    laws = {
        "point-mass": _from_chances(
            token_chances(step, point_mass=True, draft_probs=draft_probs, target_probs=target_probs)
        )
    }
    if draft_probs is None:
        return laws
    laws["token-wise"] = _from_chances(
        token_chances(step, point_mass=False, draft_probs=draft_probs, target_probs=target_probs)
    )
    draft, target = np.asarray(draft_probs, dtype=np.float64), np.asarray(target_probs, dtype=np.float64)
    passes, _ = block_quantities(tuple(step.draft_token_ids), draft, target)
    laws["block"] = _from_passes(np.asarray(passes))
    return laws


def _tree_law(step: Step, draft: Array | None, target: Array) -> Array:
    """Candidates in turn, each rejection leaving the residual; draft None: each is a point mass.

    Source: Miao et al. 2023, SpecInfer, arXiv 2305.09781, algorithm 2.
    """
    parents, depths = tree_shape.parents_of(step), tree_shape.node_depths(step)
    law: Array = np.zeros(step.num_draft_tokens + 1)
    reached = {tree_shape.ROOT: 1.0}  # chance that each draft token, or the root, is accepted
    for node, depth in ((tree_shape.ROOT, 0), *enumerate(depths)):
        weight, left = reached[node], target[node + 1]
        for child in (c for c, parent in enumerate(parents) if parent == node):
            token = step.draft_token_ids[child]
            drawn = np.eye(1, len(left), token)[0] if draft is None else draft[child]
            chance = float(accept_ratio(drawn[token], left[token]))
            reached[child], weight, left = weight * chance, weight * (1.0 - chance), residual(drawn, left)
        law[depth] += weight
    return law


def _from_chances(chances: Array) -> Array:
    """Accept until the first that fails."""
    law: Array = np.empty(len(chances) + 1)
    reached = 1.0
    for index, chance in enumerate(chances):
        law[index] = reached * (1.0 - chance)
        reached *= float(chance)
    law[-1] = reached
    return law


def _from_passes(passes: Array) -> Array:
    """The longest prefix that passes is kept, also where a shorter one failed."""
    law: Array = np.empty(len(passes))
    remaining = 1.0
    for length in range(len(passes) - 1, -1, -1):
        law[length] = remaining * passes[length]
        remaining *= 1.0 - float(passes[length])
    return law
