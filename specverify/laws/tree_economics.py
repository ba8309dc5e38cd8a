"""Expected tokens of a draft tree, from how likely each child is to be the one that is accepted.

The model: given that a node was reached, its child of rank r is the accepted one with probability
child_acceptance[r], whatever the text. A chain is the tree in which every node has one child. As in `laws.economics`,
the first level at which nothing is accepted ends the round, and one final token is added.

Source: Sequoia, Chen et al. 2024, arXiv 2402.12374, section 3 (positional acceptance).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specverify.core.errors import UsageError
from specverify.laws.economics import RoundLaw

# Measured shares are sums of float averages; a real mistake (conditional rates given as shares) is far outside.
_SUM_TOLERANCE = 1e-6


def child_acceptance(conditional: ArrayLike) -> NDArray[np.float64]:
    """Shares from conditional rates: how often child r is accepted among the times that all before it were rejected.

    conditional: [..., ranks]. Result: [..., ranks], entry r is the probability that child r is the accepted one.
    """
    rates = np.asarray(conditional, dtype=np.float64)
    all_before_rejected = np.cumprod(1.0 - rates, axis=-1)
    shares: NDArray[np.float64] = rates * np.concatenate(
        (np.ones_like(rates[..., :1]), all_before_rejected[..., :-1]), axis=-1
    )
    return shares


def measured_child_acceptance(
    rounds: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> tuple[NDArray[np.float64], int]:
    """Shares [ranks] from rounds of (parents, accepted nodes), all depths together, and how many nodes were reached.

    A node counts as reached if it was accepted and has children; child r was tried if those before it were not
    accepted. Raises UsageError where no round has a tree.
    """
    tried: dict[int, int] = {}
    accepted: dict[int, int] = {}
    num_reached = 0
    for parents, path in rounds:
        for node in (-1, *path):
            children = [child for child, parent in enumerate(parents) if parent == node]
            num_reached += bool(children)
            for rank, child in enumerate(children):
                tried[rank] = tried.get(rank, 0) + 1
                if child in path:
                    accepted[rank] = accepted.get(rank, 0) + 1
                    break
    if not num_reached:
        raise UsageError("no round has a tree; give (parents, accepted nodes) of rounds that drafted something")
    return child_acceptance([accepted.get(rank, 0) / tried[rank] for rank in sorted(tried)]), num_reached


def tree_round_law(parents: Sequence[int], child_acceptance: ArrayLike) -> RoundLaw:
    """Law of the tokens that one target pass over this tree commits.

    parents: [nodes], -1 for children of the committed text; a node comes after its parent, siblings in rank order.
    child_acceptance: [ranks] for all depths, or [depths, ranks], depth 0 for the first draft token.
    Raises UsageError where the tree is wider or deeper than child_acceptance says anything about.
    """
    shares = _checked(child_acceptance)
    reached, depths = _reached(parents, shares)
    stops = np.append(reached, 1.0)  # [nodes + 1], the last one is the root, which parents calls -1
    for node, parent in enumerate(parents):
        stops[parent] -= reached[node]
    probabilities = np.zeros(max(depths, default=-1) + 2)
    probabilities[0] = stops[-1]
    for node, depth in enumerate(depths):
        probabilities[depth + 1] += stops[node]
    return RoundLaw(probabilities)


def best_tree(num_nodes: int, child_acceptance: ArrayLike, *, max_depth: int | None = None) -> tuple[int, ...]:
    """Parents of the tree of num_nodes with the most expected tokens; fewer where shares allow no more.

    child_acceptance: as in tree_round_law, falling with rank. Expected tokens are 1 plus the sum over nodes of the
    probability to reach them, and no node is likelier than its parent or its elder sibling: so the likeliest
    num_nodes are a tree, and the best one.
    """
    shares = _checked(child_acceptance)
    if (np.diff(shares, axis=-1) > 0.0).any():
        raise UsageError("child_acceptance must fall with rank: rank 0 is the child that is accepted most often")
    deepest = min(max_depth or num_nodes, num_nodes if len(shares) == 1 else len(shares))
    parents: list[int] = []
    # [-probability, parent, rank, depth, probability of the parent]
    waiting = [(-float(_row(shares, 0)[0]), -1, 0, 0, 1.0)]
    while waiting and len(parents) < num_nodes:
        minus, parent, rank, depth, of_parent = heapq.heappop(waiting)
        if minus == 0.0:
            break
        parents.append(parent)
        if rank + 1 < shares.shape[1]:
            sibling = of_parent * float(_row(shares, depth)[rank + 1])
            heapq.heappush(waiting, (-sibling, parent, rank + 1, depth, of_parent))
        if depth + 1 < deepest:
            child = -minus * float(_row(shares, depth + 1)[0])
            heapq.heappush(waiting, (-child, len(parents) - 1, 0, depth + 1, -minus))
    return tuple(parents)


def simulated_tree_rounds(
    parents: Sequence[int], child_acceptance: ArrayLike, *, num_rounds: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Tokens committed by each of num_rounds walks down the tree."""
    shares = _checked(child_acceptance)
    _reached(parents, shares)
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    tokens = np.ones(num_rounds, dtype=np.int64)
    for index in range(num_rounds):
        node, depth = -1, 0
        while node in children:
            chosen = int(np.searchsorted(np.cumsum(_row(shares, depth)), rng.random(), side="right"))
            if chosen >= len(children[node]):
                break
            node, depth = children[node][chosen], depth + 1
        tokens[index] += depth
    return tokens


def _reached(parents: Sequence[int], shares: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[int]]:
    """Probability that each node is accepted, and its depth (0 for children of the root)."""
    reached = np.zeros(len(parents))
    depths: list[int] = []
    num_children: dict[int, int] = {}
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise UsageError(f"parents[{node}] is {parent}; a node comes after its parent, so give -1 to {node - 1}")
        depth = 0 if parent == -1 else depths[parent] + 1
        rank = num_children.get(parent, 0)
        num_children[parent] = rank + 1
        if rank >= shares.shape[1] or (len(shares) > 1 and depth >= len(shares)):
            raise UsageError(
                f"node {node} is child {rank} at depth {depth}; child_acceptance has shape {shares.shape}, "
                "[depths, ranks]: give it a share"
            )
        reached[node] = (1.0 if parent == -1 else reached[parent]) * _row(shares, depth)[rank]
        depths.append(depth)
    return reached, depths


def _row(shares: NDArray[np.float64], depth: int) -> NDArray[np.float64]:
    row: NDArray[np.float64] = shares[0 if len(shares) == 1 else depth]
    return row


def _checked(child_acceptance: ArrayLike) -> NDArray[np.float64]:
    """[depths, ranks], one row where all depths are alike."""
    shares = np.atleast_2d(np.asarray(child_acceptance, dtype=np.float64))
    if shares.ndim != 2 or shares.shape[1] == 0:
        raise UsageError(f"child_acceptance has shape {shares.shape}; give [ranks] or [depths, ranks]")
    if not (shares >= 0.0).all() or not (shares.sum(axis=-1) <= 1.0 + _SUM_TOLERANCE).all():
        raise UsageError(
            "child_acceptance must be probabilities that sum to at most 1 over the children of a node: at most one is "
            "accepted. Use child_acceptance(...) on rates that are conditional on the rejection of earlier siblings"
        )
    return shares
