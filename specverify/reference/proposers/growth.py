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
from torch.nn.functional import one_hot

from specverify.core.types import SamplingParams
from specverify.reference.batch import Batch, padded
from specverify.reference.draws import DRAFT, draw_tokens
from specverify.reference.proposers.base import Drafts
from specverify.reference.sampling import SamplingRows
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
        shape, device, history = self.topology, batch.device, _History(batch)
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
            children = _Children(batch, self, logits, history, [level <= wanted for wanted in num_draft_tokens])
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
        rows, device, history = batch.num_rows, batch.device, _History(batch)
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


class _History:
    """What penalties see at the nodes of the current level: [rows, nodes, vocab], or nothing without penalties."""

    def __init__(self, batch: Batch) -> None:
        self.counts = batch.token_counts()
        self.in_output = None if self.counts is None else self.counts.in_output[:, None]

    def go_on(self, places: Sequence[int] | Tensor, token_ids: Tensor) -> None:
        """To the nodes with these tokens [rows, n], whose parents stood at these places of the level before."""
        if self.in_output is None:
            return
        if isinstance(places, Tensor):
            above = self.in_output.gather(1, places[:, :, None].expand(-1, -1, self.in_output.shape[-1]))
        else:
            above = self.in_output[:, list(places)]
        self.in_output = above + one_hot(token_ids, above.shape[-1])


def confidence(batch: Batch, logits: Tensor, history: _History) -> Tensor:
    """Scores [rows, nodes, vocab] by which children are ranked: the logits, after penalties."""
    if history.counts is None:
        return logits
    bare = SamplingParams()
    params = [
        replace(
            bare,
            repetition_penalty=running.request.sampling.repetition_penalty,
            presence_penalty=running.request.sampling.presence_penalty,
            frequency_penalty=running.request.sampling.frequency_penalty,
        )
        for running in batch.running
    ]
    return SamplingRows(params, batch.device).law(logits, history.counts, history.in_output).log()


class _Children:
    """Hands out the children of the nodes of one level, rank by rank."""

    def __init__(
        self, batch: Batch, growth: FixedTree, logits: Tensor, history: _History, is_wanted: Sequence[bool]
    ) -> None:
        self.batch, self.growth = batch, growth
        # A row that goes no deeper draws nothing more, or what it draws later would depend on its neighbours.
        self.is_wanted = is_wanted
        self.law: Tensor | None = None
        self.ranked: Tensor | None = None
        self.rank = 0
        if growth.is_drawn and not batch.sampling.is_greedy:
            self.law = batch.sampling.law(logits, history.counts, history.in_output)
        if not growth.is_drawn or batch.sampling.has_greedy:
            self.ranked = confidence(batch, logits, history).argsort(dim=-1, descending=True, stable=True)

    def next(self, places: Sequence[int]) -> tuple[Tensor, Tensor | None, Tensor]:
        """(tokens [rows, n], laws [rows, n, vocab] or None, whether there was one [rows, n]) for these parents."""
        batch, places = self.batch, list(places)
        rank, self.rank = self.rank, self.rank + 1
        if self.ranked is not None:
            chosen = self.ranked[:, places, min(rank, batch.vocab_size - 1)]
            has_rank = torch.full_like(chosen, rank < batch.vocab_size, dtype=torch.bool)
        if self.law is None:
            return chosen, None, has_rank
        law = self.law[:, places]
        has_mass = law.sum(dim=-1) > 0.0
        # Where nothing is left to draw, something is drawn all the same, and dropped.
        drawable = torch.where(has_mass[:, :, None], law, one_hot(law.argmax(dim=-1), law.shape[-1]).to(law.dtype))
        streams = [stream for stream in batch.streams for _ in places]
        is_wanted = [wanted for wanted in self.is_wanted for _ in places]
        drawn = draw_tokens(drawable.flatten(0, 1), streams, DRAFT, is_wanted).view(has_mass.shape)
        if self.ranked is not None:
            is_greedy = torch.tensor([p.is_greedy for p in batch.sampling.params], device=batch.device)[:, None]
            drawn, has_mass = torch.where(is_greedy, chosen, drawn), torch.where(is_greedy, has_rank, has_mass)
            law = torch.where(is_greedy[:, :, None], one_hot(chosen, law.shape[-1]).to(law.dtype), law)
        if not self.growth.with_replacement:
            rest = law.scatter(-1, drawn[:, :, None], 0.0)
            total = rest.sum(dim=-1, keepdim=True)
            self.law = self.law.clone()
            self.law[:, places] = torch.where(total > 0.0, rest / total, 0.0)
        return drawn, law, has_mass


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
