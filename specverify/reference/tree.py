"""Draft trees: their shape, who is an ancestor of whom, and how a block of tree tokens sits on top of a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from specverify.core.errors import UsageError

ROOT = -1
"""Parent of the nodes that follow the committed text."""


@dataclass(frozen=True)
class Topology:
    """A tree that is the same in every step. parents: [nodes], -1 at the root's children; level by level.

    Siblings are in the order in which they are drawn, or ranked, and tried.
    """

    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        for node, parent in enumerate(self.parents):
            if not ROOT <= parent < node:
                raise UsageError(
                    f"parents[{node}] is {parent}; a node comes after its parent, so give -1 to {node - 1}"
                )
        if list(self.depths) != sorted(self.depths):
            raise UsageError("the nodes of a topology are not level by level; sort them by depth")

    @classmethod
    def from_branching(cls, branching: Sequence[int]) -> Topology:
        """branching[level] children at every node of each level: (3, 2) has 3 nodes, then 6. (1, 1, 1) is a chain."""
        parents: list[int] = []
        level = [ROOT]
        for num_children in branching:
            first = len(parents)
            parents += [parent for parent in level for _ in range(num_children)]
            level = list(range(first, len(parents)))
        return cls(tuple(parents))

    @classmethod
    def from_paths(cls, paths: Sequence[Sequence[int]]) -> Topology:
        """Nodes as paths of sibling ranks, as Medusa lists them: [(0,), (1,), (0, 0)]; every prefix must be there."""
        ordered = sorted((tuple(path) for path in paths), key=lambda path: (len(path), path))
        numbers = {path: number for number, path in enumerate(ordered)}
        numbers[()] = ROOT
        for path in ordered:
            for missing in (path[:-1], (*path[:-1], path[-1] - 1)):
                if missing not in numbers and (missing[-1:] != (-1,)):
                    raise UsageError(f"path {path} needs node {missing}, which is not there; add it")
        return cls(tuple(numbers[path[:-1]] for path in ordered))

    @property
    def num_nodes(self) -> int:
        return len(self.parents)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """1 at the root's children."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return tuple(depths)

    @property
    def depth(self) -> int:
        return max(self.depths, default=0)

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """How many siblings come before each node."""
        return tuple(self.parents[:node].count(parent) for node, parent in enumerate(self.parents))

    def level(self, depth: int) -> list[int]:
        """The nodes of one depth."""
        return [node for node, own in enumerate(self.depths) if own == depth]

    def is_inner(self, node: int) -> bool:
        return node in self.parents


def standard_topology(depth: int) -> Topology:
    """Two children, two of each of these, then one of each: 2, 6, 10, 14 nodes for depth 1 to 4."""
    return Topology.from_branching([2 if level < 2 else 1 for level in range(depth)])


@dataclass(frozen=True)
class Branches:
    """How the tokens of a block stand in a tree that grows on top of a cache.

    depths: [rows, width], positions counted from the block's first position.
    visible: [rows, width, span]: which of the cache rows first_slots[r] + (0 .. span - 1) a token sees, its own
      among them. Rows before first_slots hold committed text, which every token sees.
    """

    depths: Tensor
    visible: Tensor
    first_slots: Sequence[int]


def node_depths(parents: Tensor) -> Tensor:
    """Depth of every node, [rows, nodes], 1 at the root's children; parents: [rows, nodes]."""
    return ancestors(parents).sum(dim=-1)


def ancestors(parents: Tensor) -> Tensor:
    """Whether the second node is the first one's ancestor or itself, [rows, nodes, nodes]; parents: [rows, nodes]."""
    rows, nodes = parents.shape
    is_ancestor = torch.eye(nodes, dtype=torch.bool, device=parents.device).repeat(rows, 1, 1)
    # The root gets a column of its own, and is its own parent.
    is_ancestor = torch.nn.functional.pad(is_ancestor, (0, 1))
    padded_parents = torch.nn.functional.pad(parents, (0, 1), value=ROOT) % (nodes + 1)
    above = padded_parents[:, :-1]
    for _ in range(nodes):
        if bool((above == nodes).all()):
            break
        is_ancestor.scatter_(2, above[:, :, None], True)
        above = padded_parents.gather(1, above)
    return is_ancestor[:, :, :nodes]


def verify_branches(parents: Tensor, first_slots: Sequence[int]) -> Branches:
    """The newest committed token and a tree [rows, nodes] behind it, as the target computes them in one block."""
    is_ancestor = torch.nn.functional.pad(ancestors(parents), (1, 0, 1, 0))
    is_ancestor[:, :, 0] = True  # everything sees the newest committed token
    return Branches(is_ancestor.sum(dim=-1) - 1, is_ancestor, first_slots)


def families(parents: Tensor, is_real: Tensor) -> tuple[Tensor, Tensor]:
    """(first child, next sibling), each [rows, nodes + 1], -1 where there is none; parents, is_real: [rows, nodes].

    Column 0 is the root and column i + 1 node i; the values are nodes.
    """
    nodes = parents.shape[1]
    number = torch.arange(nodes, device=parents.device)
    is_child = (parents[:, None] == torch.arange(ROOT, nodes, device=parents.device)[:, None]) & is_real[:, None]
    is_later_sibling = is_child.gather(1, (parents + 1)[:, :, None].expand(-1, -1, nodes)) & (number > number[:, None])
    return _first(is_child), torch.nn.functional.pad(_first(is_later_sibling), (1, 0), value=ROOT)


def _first(is_one: Tensor) -> Tensor:
    """Index of the first True in the last dimension, -1 where there is none."""
    if not is_one.shape[-1]:
        return torch.full(is_one.shape[:-1], ROOT, device=is_one.device)
    return torch.where(is_one.any(dim=-1), is_one.to(torch.int8).argmax(dim=-1), ROOT)
