"""Draft trees as a step records them: depths, paths, and what was accepted of them. A chain is a tree of one branch."""

from __future__ import annotations

from collections.abc import Sequence

from specverify.checks import wording
from specverify.checks.places import Place
from specverify.core.types import Step

ROOT = -1
"""Parent of the draft tokens that follow the committed text."""


def is_tree(step: Step) -> bool:
    return step.parents is not None and bool(step.draft_token_ids)


def parents_of(step: Step) -> tuple[int, ...]:
    """Parent of every draft token; a chain's are -1, 0, 1 and so on."""
    return tuple(range(ROOT, step.num_draft_tokens - 1)) if step.parents is None else tuple(step.parents)


def is_well_formed(step: Step) -> bool:
    """Whether every draft token has a parent that comes before it."""
    parents = parents_of(step)
    return len(parents) == step.num_draft_tokens and all(ROOT <= p < node for node, p in enumerate(parents))


def node_depths(step: Step) -> tuple[int, ...]:
    """Tokens from the committed text to each draft token, itself included: 1 where it follows the text."""
    depths: list[int] = []
    for parent in parents_of(step):
        depths.append(1 if parent == ROOT else depths[parent] + 1)
    return tuple(depths)


def node_path(step: Step, node: int) -> tuple[int, ...]:
    """Draft tokens by number, from the root's child to this one."""
    parents = parents_of(step)
    path: list[int] = []
    while node != ROOT:
        path.append(node)
        node = parents[node]
    return tuple(reversed(path))


def elder_siblings(step: Step, node: int) -> tuple[int, ...]:
    """Draft tokens with the same parent that are tried before this one."""
    parents = parents_of(step)
    return tuple(other for other in range(node) if parents[other] == parents[node])


def leaves(step: Step) -> tuple[int, ...]:
    parents = parents_of(step)
    return tuple(node for node in range(step.num_draft_tokens) if node not in parents)


def accepted_nodes(step: Step) -> tuple[int, ...]:
    """Accepted draft tokens by number, in order."""
    return tuple(range(step.num_accepted)) if step.accepted_nodes is None else tuple(step.accepted_nodes)


def tokens_of(step: Step, nodes: Sequence[int]) -> tuple[int, ...]:
    return tuple(step.draft_token_ids[node] for node in nodes)


def is_scattered(step: Step) -> bool:
    """Whether the accepted path is not the first draft tokens in order, so that its cache rows have to move."""
    nodes = accepted_nodes(step)
    return nodes != tuple(range(len(nodes)))


def tree_places(seen: Sequence[Place]) -> list[Place]:
    """Steps with a draft tree; those whose parents make no sense are left to tree.accepted-path."""
    return [place for place in seen if is_tree(place.step) and is_well_formed(place.step)]


def drafts_row(step: Step) -> tuple[str, ...]:
    """The row of a table that shows what was drafted."""
    if step.parents is None:
        return ("draft", *(wording.token_text(step.draft_token_ids) or ["none"]))
    return ("draft<parent", *drawing(step))


def drawing(step: Step) -> tuple[str, ...]:
    """The tree in one row of cells: each draft token with its parent's number, the accepted ones marked."""
    chosen = accepted_nodes(step)
    return tuple(
        f"{token}<{'text' if parent == ROOT else parent}{'*' if node in chosen else ''}"
        for node, (token, parent) in enumerate(zip(step.draft_token_ids, parents_of(step), strict=False))
    )
