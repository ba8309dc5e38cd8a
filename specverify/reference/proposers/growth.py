"""How a draft tree grows: drawn children on a fixed shape, the likeliest children on a fixed shape, or a free shape.

Growth asks a source for logits behind nodes, and declares every node's law as it was really drawn. That is what makes
the tree verifiable without loss: children drawn without replacement lack their earlier siblings, and children that
were chosen for being the likeliest are point masses, because nothing about them was left to chance.

The number of a node's children must not depend on which tokens were drawn for them: a drawn tree is never pruned by
its own confidence. A chosen tree may be, since every choice follows from the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from specverify.reference.batch import Batch, padded
from specverify.reference.proposers.base import Drafts
from specverify.reference.proposers.children import Children, History, confidence
from specverify.reference.tree import ROOT, Topology


@runtime_checkable
class TreeSource(Protocol):
    """What computes logits behind the nodes of a tree."""

    def root_logits(self, batch: Batch) -> Tensor:
        """Logits [rows, vocab] behind the committed text; takes in first whatever of it is pending."""

    def extend_nodes(
        self, batch: Batch, token_ids: Tensor, parents: Tensor, depth: int, is_wanted: Sequence[bool]
    ) -> Tensor:
        """Logits [rows, n, vocab] behind n nodes of one level, token_ids: [rows, n].

        parents: [rows, n], each one's parent, numbered among all nodes that were extended before; -1 is the root.
        depth: 1 for children of the root. is_wanted: rows that go on; a row that stops is never wanted again.
        """


class Growth(Protocol):
    """A way of growing; num_draft_tokens[r] limits the depth of row r's tree."""

    @property
    def num_nodes(self) -> int:
        """Nodes at most."""

    def grow(self, batch: Batch, source: TreeSource, num_draft_tokens: Sequence[int]) -> Drafts:
        """A tree for every row."""


@dataclass(frozen=True)
class FixedTree:
    """A tree of one shape. is_drawn: children are drawn from the draft law, else they are the likeliest, in order.

    with_replacement: whether a drawn child may repeat a sibling. Greedy requests always get the likeliest children.
    """

    topology: Topology
    is_drawn: bool = True
    with_replacement: bool = False

    @property
    def num_nodes(self) -> int:
        return self.topology.num_nodes

    def grow(self, batch: Batch, source: TreeSource, num_draft_tokens: Sequence[int]) -> Drafts:
        shape, device, history = self.topology, batch.device, History(batch)
        logits = source.root_logits(batch)[:, None]
        depth = min(shape.depth, max(num_draft_tokens))
        num_nodes = sum(own <= depth for own in shape.depths)
        token_ids = torch.zeros((batch.num_rows, num_nodes), dtype=torch.int64, device=device)
        exists = torch.ones((batch.num_rows, num_nodes), dtype=torch.bool, device=device)
        has_laws = self.is_drawn and not batch.sampling.is_greedy
        laws = logits.new_zeros((batch.num_rows, num_nodes, batch.vocab_size)) if has_laws else None
        parents_of_level, number_of = [ROOT], {ROOT: ROOT}
        for level in range(1, depth + 1):
            nodes = shape.level(level)
            is_wanted = [level <= wanted for wanted in num_draft_tokens]
            children = Children(
                batch, logits, history, is_wanted, is_drawn=self.is_drawn, with_replacement=self.with_replacement
            )
            for rank in range(1 + max(shape.ranks[node] for node in nodes)):
                ranked = [node for node in nodes if shape.ranks[node] == rank]
                places = [parents_of_level.index(shape.parents[node]) for node in ranked]
                token_ids[:, ranked], law, has_mass = children.next(places)
                above = [shape.parents[node] for node in ranked]
                exists[:, ranked] = has_mass if level == 1 else has_mass & exists[:, above]
                if laws is not None and law is not None:
                    laws[:, ranked] = law.to(laws.dtype)
            inner = [node for node in nodes if level < depth and shape.is_inner(node)]
            if not inner:
                break
            above = [shape.parents[node] for node in inner]
            history.go_on([parents_of_level.index(parent) for parent in above], token_ids[:, inner])
            parents = torch.tensor([number_of[parent] for parent in above], device=device).expand(batch.num_rows, -1)
            is_wanted = [level < wanted for wanted in num_draft_tokens]
            logits = source.extend_nodes(batch, token_ids[:, inner], parents, level, is_wanted)
            number_of |= {node: len(number_of) - 1 + index for index, node in enumerate(inner)}
            parents_of_level = inner
        own_depths = torch.tensor(shape.depths[:num_nodes], device=device)
        exists &= own_depths <= torch.tensor(list(num_draft_tokens), device=device)[:, None]
        parents = torch.tensor(shape.parents[:num_nodes], device=device).expand(batch.num_rows, -1)
        numbers = torch.tensor([number_of.get(node, ROOT) for node in range(num_nodes)], device=device)
        return _packed(token_ids, parents, numbers.expand(batch.num_rows, -1), laws, exists)


@dataclass(frozen=True)
class DynamicTree:
    """The likeliest children of the likeliest nodes, and of all of them the num_nodes likeliest.

    width: nodes that are extended per level, and children that each of them gets. Likely: the product of draft
    probabilities from the root. A node is never likelier than its parent, so what is kept is a tree.

    Source: Li et al. 2024, EAGLE-2, arXiv 2406.16858, sections 4.1 and 4.2.
    """

    width: int
    depth: int
    num_nodes: int

    def grow(self, batch: Batch, source: TreeSource, num_draft_tokens: Sequence[int]) -> Drafts:
        rows, device, history = batch.num_rows, batch.device, History(batch)
        width = min(self.width, batch.vocab_size)
        depth = min(self.depth, max(num_draft_tokens))
        limits = torch.tensor(list(num_draft_tokens), device=device)[:, None]
        index = torch.arange(rows, device=device)[:, None]
        logits = source.root_logits(batch)[:, None]
        # All candidates so far: token, parent (a candidate), log confidence, number among the extended ones.
        token_ids = torch.zeros((rows, 0), dtype=torch.int64, device=device)
        parents, numbers = token_ids, token_ids
        scores = logits.new_zeros((rows, 0))
        frontier, frontier_scores = token_ids.new_full((rows, 1), ROOT), logits.new_zeros((rows, 1))
        num_extended = 0
        for level in range(1, depth + 1):
            log_laws = confidence(batch, logits, history).log_softmax(dim=-1)
            best, tokens = log_laws.topk(width, dim=-1)  # [rows, frontier, width]
            own = (frontier_scores[:, :, None] + best).flatten(1)
            own = own.masked_fill(level > limits, -torch.inf)
            first = token_ids.shape[1]
            token_ids = torch.cat([token_ids, tokens.flatten(1)], dim=1)
            parents = torch.cat([parents, frontier.repeat_interleave(width, dim=1)], dim=1)
            scores = torch.cat([scores, own], dim=1)
            numbers = torch.cat([numbers, torch.full_like(own, ROOT, dtype=torch.int64)], dim=1)
            if level == depth:
                break
            frontier_scores, chosen = own.topk(min(width, own.shape[1]), dim=1)
            chosen = chosen.sort(dim=1).values
            frontier_scores = own.gather(1, chosen)
            places = chosen // width
            frontier = first + chosen
            tokens_wanted = token_ids.gather(1, frontier)
            history.go_on(places, tokens_wanted)
            above = parents.gather(1, frontier)
            number_above = torch.where(above == ROOT, ROOT, numbers.gather(1, above.clamp(min=0)))
            is_wanted = [level < wanted for wanted in num_draft_tokens]
            logits = source.extend_nodes(batch, tokens_wanted, number_above, level, is_wanted)
            numbers[index, frontier] = num_extended + torch.arange(frontier.shape[1], device=device)
            num_extended += frontier.shape[1]
        # Stable, so that of equals the earlier one stays: a parent comes before its children.
        order = scores.sort(dim=1, descending=True, stable=True).indices[:, : self.num_nodes]
        kept = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, order, True) & (scores > -torch.inf)
        return _packed(token_ids, parents, numbers, None, kept)


def _packed(token_ids: Tensor, parents: Tensor, numbers: Tensor, laws: Tensor | None, exists: Tensor) -> Drafts:
    """The nodes [rows, nodes] that exist, moved to the left, with their parents renumbered."""
    num_tokens = exists.sum(dim=1).tolist()
    width = max(num_tokens)
    if width == 0:
        return Drafts(padded([[]] * len(num_tokens), token_ids.device), num_tokens, laws)
    if min(num_tokens) == exists.shape[1]:
        return Drafts(token_ids, num_tokens, laws, parents=parents, extended=numbers)
    order = (~exists).to(torch.int8).sort(dim=1, stable=True).indices[:, :width]
    is_kept = exists.gather(1, order)
    place = exists.cumsum(dim=1) - 1  # where each node goes
    above = parents.gather(1, order)
    moved = torch.where(above == ROOT, ROOT, place.gather(1, above.clamp(min=0)))
    return Drafts(
        token_ids.gather(1, order),
        num_tokens,
        None if laws is None else laws.gather(1, order[:, :, None].expand(-1, -1, laws.shape[-1])),
        parents=torch.where(is_kept, moved, ROOT),
        extended=torch.where(is_kept, numbers.gather(1, order), ROOT),
    )


def as_chain(drafts: Drafts, growth: Growth) -> Drafts:
    """The drafts of a growth without branches as the chain they are; others as they are."""
    is_chain = isinstance(growth, FixedTree) and growth.topology.depth == growth.num_nodes
    return replace(drafts, parents=None, extended=None) if is_chain else drafts


def num_siblings(growth: Growth | None) -> int:
    """Candidates that a position has at most; 1 without a tree."""
    if isinstance(growth, FixedTree):
        return 1 + max(growth.topology.ranks, default=0)
    return growth.width if isinstance(growth, DynamicTree) else 1
