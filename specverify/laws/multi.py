"""Steps with several candidates per position: recursive rejection, with and without replacement."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specverify.core.errors import UsageError
from specverify.laws.residual import accept_ratio, normalised
from specverify.laws.steps import Law
from specverify.laws.tree import Conditional
from specverify.laws.validate import checked_law


class Children(enum.Enum):
    """How the children of a tree node come about."""

    DRAWN = "drawn from the draft law, without replacement"
    DRAWN_WITH_REPLACEMENT = "drawn from the draft law, with replacement"
    LIKELIEST = "the likeliest tokens of the draft law, in order"


def candidates_law(
    candidate_token_ids: Sequence[int],
    draft_probs: ArrayLike,
    target_probs: ArrayLike,
    *,
    with_replacement: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What happens at one position for given candidates: (accepted [candidates], replaced [vocab]), summing to 1.

    draft_probs, target_probs: [vocab]. Candidates are tried in turn; each rejection leaves the residual as the new
    target. Without replacement a rejected candidate also leaves the draft law, which is renormalised.

    Source: Miao et al. 2023, SpecInfer, arXiv 2305.09781, algorithm 2, with replacement; Jeon et al. 2024, recursive
    speculative decoding, arXiv 2402.14160, section 3.1, without.
    """
    draft, target = checked_law(draft_probs, "draft_probs"), checked_law(target_probs, "target_probs")
    if draft.ndim != 1 or draft.shape != target.shape:
        raise UsageError(f"draft_probs has shape {draft.shape} and target_probs {target.shape}; give two rows [vocab]")
    accepted: NDArray[np.float64] = np.zeros(len(candidate_token_ids))
    reached = 1.0
    for i, token in enumerate(candidate_token_ids):
        if not 0 <= token < len(target):
            raise UsageError(f"candidate_token_ids[{i}] is {token}; the laws have tokens 0 to {len(target) - 1}")
        accept = float(accept_ratio(draft[token], target[token]))
        accepted[i] = reached * accept
        reached *= 1.0 - accept
        target = _residual(draft, target)
        if not with_replacement:
            draft = _without(draft, int(token))
    return accepted, reached * target


def multi_step_law(
    draft: Conditional,
    target: Conditional,
    num_candidates: Sequence[int],
    *,
    with_replacement: bool,
    prefix: tuple[int, ...] = (),
) -> Law:
    """Law of what a step emits that drafts a tree: num_candidates[level] candidates at every node of each level.

    An accepted candidate leads to its own candidates, drawn after it; a position where none is accepted ends the step
    with a residual token; a leaf ends it with a bonus token. Cost without replacement: vocab ** num_candidates.
    """
    if any(count < 1 for count in num_candidates):
        raise UsageError(f"num_candidates is {tuple(num_candidates)}; give at least one candidate at every level")
    law: Law = {}
    pending: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while pending:
        tokens, weight = pending.pop()
        target_row = checked_law(target(prefix + tokens), f"target law after {prefix + tokens}")
        if len(tokens) == len(num_candidates):
            accepted, final = np.zeros_like(target_row), target_row
        else:
            draft_row = checked_law(draft(prefix + tokens), f"draft law after {prefix + tokens}")
            accepted, final = node_law(
                draft_row, target_row, num_candidates[len(tokens)], with_replacement=with_replacement
            )
        for token in np.flatnonzero(final):
            law[(*tokens, int(token))] = law.get((*tokens, int(token)), 0.0) + weight * float(final[token])
        pending += [((*tokens, int(token)), weight * float(accepted[token])) for token in np.flatnonzero(accepted)]
    return law


def node_law(
    draft: NDArray[np.float64], target: NDArray[np.float64], num_candidates: int, *, with_replacement: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What happens at one position over random candidates: (accepted [vocab], replaced [vocab]), summing to 1."""
    if num_candidates == 0 or draft.sum() == 0.0:
        return np.zeros_like(target), target
    agreed = np.minimum(draft, target)
    rest = _residual(draft, target)
    if with_replacement:
        accepted, replaced = node_law(draft, rest, num_candidates - 1, with_replacement=True)
        rejected = 1.0 - float(agreed.sum())
        return agreed + rejected * accepted, rejected * replaced
    accepted, replaced = agreed.copy(), np.zeros_like(target)
    for token in np.flatnonzero(draft > agreed):
        weight = float(draft[token] - agreed[token])
        deeper, final = node_law(_without(draft, int(token)), rest, num_candidates - 1, with_replacement=False)
        accepted += weight * deeper
        replaced += weight * final
    return accepted, replaced


def expected_tokens(
    parents: Sequence[int], draft: Conditional, target: Conditional, children: Children, *, prefix: tuple[int, ...] = ()
) -> float:
    """Tokens that a step with this tree emits on average: those accepted and one more. A chain is parents -1, 0, 1, ...

    parents: [nodes], -1 for children of the committed text; a node comes after its parent, siblings in order.
    Cost: vocab ** depth laws, and vocab ** siblings for drawn siblings without replacement.
    """
    children_of: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        children_of.setdefault(parent, []).append(node)

    def accepted_below(node: int, tokens: tuple[int, ...]) -> float:
        nodes = children_of.get(node, [])
        if not nodes:
            return 0.0
        accepted = ranked_law(draft(prefix + tokens), target(prefix + tokens), len(nodes), children)
        return sum(
            float(accepted[rank, token]) * (1.0 + accepted_below(nodes[rank], (*tokens, int(token))))
            for rank, token in zip(*np.nonzero(accepted), strict=True)
        )

    return 1.0 + accepted_below(-1, ())


def ranked_law(
    draft: NDArray[np.float64], target: NDArray[np.float64], num_candidates: int, children: Children
) -> NDArray[np.float64]:
    """Probability that the candidate of each rank is the accepted one and is that token, [candidates, vocab]."""
    accepted = np.zeros((num_candidates, len(target)))
    if num_candidates == 0 or draft.sum() == 0.0:
        return accepted
    if children is Children.LIKELIEST:
        best = np.argsort(-draft, kind="stable")[:num_candidates]
        accepted[np.arange(len(best)), best] = target[best]
        return accepted
    accepted[0] = np.minimum(draft, target)
    rest, num_left = _residual(draft, target), num_candidates - 1
    if children is Children.DRAWN_WITH_REPLACEMENT:
        accepted[1:] = (1.0 - accepted[0].sum()) * ranked_law(draft, rest, num_left, children)
        return accepted
    for token in np.flatnonzero(draft > accepted[0]):
        weight = draft[token] - accepted[0, token]
        accepted[1:] += weight * ranked_law(_without(draft, int(token)), rest, num_left, children)
    return accepted


def _residual(draft: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    return normalised(np.maximum(target - draft, 0.0), otherwise=target)


def _without(draft: NDArray[np.float64], token: int) -> NDArray[np.float64]:
    """The draft law after one token was taken out; all zeros where it was the last one."""
    rest = draft.copy()
    rest[token] = 0.0
    return normalised(rest, otherwise=np.zeros_like(rest))
