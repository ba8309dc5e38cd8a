"""Expected tokens of draft trees."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.laws.economics import round_law
from specverify.laws.tree_economics import (
    best_tree,
    child_acceptance,
    measured_child_acceptance,
    simulated_tree_rounds,
    tree_round_law,
)

SHARES = child_acceptance([0.6, 0.4, 0.3])
BY_DEPTH = np.array([[0.7, 0.2], [0.5, 0.2], [0.4, 0.1]])
BRANCHING = (-1, -1, 0, 0, 1, 2)


def test_shares_of_conditional_rates():
    """The second child is only looked at when the first was rejected."""
    assert child_acceptance([0.6, 0.5, 0.5]) == pytest.approx([0.6, 0.2, 0.1])


@pytest.mark.parametrize("k", [0, 1, 4, 7])
def test_chain(k):
    """A tree in which every node has one child is the chain."""
    law = tree_round_law(range(-1, k - 1), [0.75])

    assert law.probabilities == pytest.approx(round_law(0.75, k).probabilities)


def test_worked_by_hand():
    """Two children, one of which has one child: 1 + .7 + .2 + .7 * .5."""
    law = tree_round_law((-1, -1, 0), BY_DEPTH)

    assert law.mean == pytest.approx(1 + 0.7 + 0.2 + 0.7 * 0.5)
    assert law.probabilities == pytest.approx([0.1, 0.2 + 0.7 * 0.5, 0.7 * 0.5])


@pytest.mark.parametrize("num_rounds", [24, 10_000])
@pytest.mark.parametrize("shares", [SHARES, BY_DEPTH], ids=["alike", "by-depth"])
def test_simulated(shares, num_rounds):
    """Walks down the tree commit what the closed form says, with its spread."""
    law = tree_round_law(BRANCHING, shares)

    tokens = simulated_tree_rounds(BRANCHING, shares, num_rounds=num_rounds, rng=np.random.default_rng(3))

    assert abs(tokens.mean() - law.mean) < 5 * law.spread(num_rounds)
    assert num_rounds < 1_000 or tokens.var() == pytest.approx(law.variance, rel=0.05)


def test_more_tokens_than_a_chain_of_the_same_cost():
    """With as many draft tokens, the best tree commits more than the chain whose tail is hardly ever reached."""
    tree = tree_round_law(best_tree(16, SHARES), SHARES)

    assert tree.mean > round_law(0.6, 16).mean + 0.5


@pytest.mark.parametrize("shares", [SHARES, BY_DEPTH], ids=["alike", "by-depth"])
@pytest.mark.parametrize("num_nodes", [1, 2, 3, 4, 5])
def test_best_of_all_trees(num_nodes, shares):
    """No other tree of as many nodes commits more; all of them are tried."""
    means = []
    for parents in itertools.product(*(range(-1, node) for node in range(num_nodes))):
        try:
            means.append(tree_round_law(parents, shares).mean)
        except UsageError:
            continue

    assert tree_round_law(best_tree(num_nodes, shares), shares).mean == pytest.approx(max(means))


def test_depth_limit():
    """max_depth bounds the number of draft passes."""
    assert best_tree(3, SHARES, max_depth=1) == (-1, -1, -1)
    assert len(best_tree(50, SHARES, max_depth=2)) == 3 + 9


@pytest.mark.parametrize(
    ("parents", "shares"),
    [
        ((0,), SHARES),
        ((-1, 5), SHARES),
        ((-1,) * 4, SHARES),
        (range(-1, 3), BY_DEPTH),
        ((-1,), [0.7, 0.7]),
        ((-1,), []),
    ],
)
def test_wrong_arguments(parents, shares):
    """A node before its parent, a tree wider or deeper than the shares, shares that are no probabilities."""
    with pytest.raises(UsageError):
        tree_round_law(parents, shares)


def test_shares_must_fall():
    """best_tree refuses ranks whose acceptance grows."""
    with pytest.raises(UsageError, match="fall with rank"):
        best_tree(3, [0.2, 0.3])


def test_shares_are_found_again():
    """Rounds walked with known shares give these shares back, whichever children a node has."""
    rng = np.random.default_rng(3)
    children = {node: [c for c, parent in enumerate(BRANCHING) if parent == node] for node in range(-1, len(BRANCHING))}
    rounds = []
    for _ in range(20_000):
        path, node = [], -1
        while children[node]:
            rank = int(np.searchsorted(np.cumsum(SHARES), rng.random(), side="right"))
            if rank >= len(children[node]):
                break
            node = children[node][rank]
            path.append(node)
        rounds.append((BRANCHING, path))

    shares, num_reached = measured_child_acceptance(rounds)

    assert shares == pytest.approx(SHARES[: len(shares)], abs=0.01)
    assert num_reached > 20_000


def test_no_tree_has_no_shares():
    """Rounds that drafted nothing say nothing about children."""
    with pytest.raises(UsageError, match="no round has a tree"):
        measured_child_acceptance([((), ())])
