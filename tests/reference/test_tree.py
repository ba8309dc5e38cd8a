"""Shapes of trees, and a target pass over one: positions by depth, ancestors only, rows moved where a chain's are."""

from __future__ import annotations

import pytest
import torch

from specverify.core.errors import UsageError
from specverify.reference.cached_model import CachedModel, prefill_rows
from specverify.reference.tree import Topology, ancestors, families, verify_branches
from tests.reference import tiny
from tests.reference.test_model import logits_of

PARENTS = (-1, -1, 0, 0, 1, 2, 4)
TOKENS = (3, 7, 2, 9, 2, 11, 5)
PATHS = ((0,), (1,), (0, 2), (0, 3), (1, 4), (0, 2, 5), (1, 4, 6))
PROMPT = (1, 4, 8)
# float64 sums in another order; measured 3e-15.
TOLERANCE = 1e-12


def test_branching_gives_a_tree_level_by_level() -> None:
    """Two children, three of each: parents, depths and sibling ranks."""
    shape = Topology.from_branching((2, 3))

    assert shape.parents == (-1, -1, 0, 0, 0, 1, 1, 1)
    assert shape.depths == (1, 1, 2, 2, 2, 2, 2, 2)
    assert shape.ranks == (0, 1, 0, 1, 2, 0, 1, 2)
    assert (shape.depth, shape.num_nodes) == (2, 8)


def test_paths_of_ranks_give_the_same_tree_in_any_order() -> None:
    """As Medusa lists them."""
    assert Topology.from_paths([(1, 0), (0, 1), (0, 0), (1,), (0,)]).parents == (-1, -1, 0, 0, 1)


@pytest.mark.parametrize("paths", [[(1,)], [(0,), (1, 0)], [(0,), (0, 1)]])
def test_paths_with_a_gap_are_refused(paths: list[tuple[int, ...]]) -> None:
    """A node needs its parent and its earlier siblings."""
    with pytest.raises(UsageError, match="which is not there"):
        Topology.from_paths(paths)


@pytest.mark.parametrize("parents", [(0,), (-1, 1), (-1, -2), (-1, 0, -1)])
def test_parents_out_of_order_are_refused(parents: tuple[int, ...]) -> None:
    """Parents first, and level by level."""
    with pytest.raises(UsageError, match="node"):
        Topology(parents)


def test_ancestors_are_those_on_the_path() -> None:
    """Itself and everything on the way to the root, nothing else."""
    found = ancestors(torch.tensor([PARENTS]))[0]

    assert [set(path) for path in PATHS] == [set(torch.nonzero(row).flatten().tolist()) for row in found]


def test_families_leave_padding_out() -> None:
    """First child and next sibling of root and nodes; padding, whose parent reads -1, is nobody's child."""
    parents = torch.tensor([[*PARENTS], [-1, 0, 0, -1, -1, -1, -1]])
    is_real = torch.tensor([[True] * 7, [True] * 3 + [False] * 4])

    first, following = families(parents, is_real)

    assert first[0].tolist() == [0, 2, 4, 5, -1, 6, -1, -1]
    assert following[0].tolist() == [-1, 1, -1, 3, -1, -1, -1, -1]
    assert first[1, :4].tolist() == [0, 1, -1, -1]
    assert following[1, :4].tolist() == [-1, -1, 2, -1]


def tree_pass() -> tuple[CachedModel, torch.Tensor]:
    """A model that computed the prompt but its last token, then that token and the tree; logits [8, vocab]."""
    cached = CachedModel(tiny.model(), num_rows=1, capacity=16)
    cached.compute(torch.tensor([PROMPT[:-1]]), first_positions=[0], num_new=[len(PROMPT) - 1])
    branches = verify_branches(torch.tensor([PARENTS]), [len(PROMPT) - 1])
    block = torch.tensor([[PROMPT[-1], *TOKENS]])
    hidden = cached.compute(block, first_positions=[len(PROMPT) - 1], num_new=[8], branches=branches)
    return cached, cached.model.logits(hidden)[0]


def test_one_pass_over_a_tree_is_a_pass_over_every_path() -> None:
    """Logits behind each node are those of a plain pass over prompt and path."""
    cached, logits = tree_pass()

    for node, path in enumerate(PATHS):
        text = torch.tensor([[*PROMPT, *(TOKENS[step] for step in path)]])
        torch.testing.assert_close(logits[node + 1], logits_of(cached.model, text)[0, -1], rtol=0, atol=TOLERANCE)


def test_siblings_share_a_position() -> None:
    """A token's position is the prompt's length and its depth, however many nodes stand before it."""
    cached, _ = tree_pass()

    assert cached.last_positions[0] == [2, 3, 3, 4, 4, 4, 5, 5]


@pytest.mark.parametrize("path", PATHS)
def test_compaction_leaves_the_rows_of_the_path_alone(path: tuple[int, ...]) -> None:
    """The cache then holds what a fresh pass over prompt and path gives, row by row."""
    cached, _ = tree_pass()

    cached.cache.compact([len(PROMPT)], [[len(PROMPT) + node for node in path]])
    cached.cache.keep(0, len(PROMPT) + len(path))

    wanted = prefill_rows(cached.model, (*PROMPT, *(TOKENS[node] for node in path)))
    torch.testing.assert_close(cached.cache.rows(0), wanted, rtol=0, atol=TOLERANCE)


def test_lanes_are_compacted_each_by_its_own_path() -> None:
    """Ragged paths in one move, one of them empty."""
    cached, _ = tree_pass()
    cached.select([0, 0, 0])
    first, paths = len(PROMPT), ((1, 4, 6), (), (0, 3))

    cached.cache.compact([first] * 3, [[first + node for node in path] for path in paths])

    for row, path in enumerate(paths):
        cached.cache.keep(row, first + len(path))
        wanted = prefill_rows(cached.model, (*PROMPT, *(TOKENS[node] for node in path)))
        torch.testing.assert_close(cached.cache.rows(row), wanted, rtol=0, atol=TOLERANCE)
