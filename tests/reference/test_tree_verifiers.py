"""Tree verification emits the law that it should, enumerated on all paths, for every way of making children."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from specverify.core.types import Request
from specverify.exact.law import enumerate_law
from specverify.laws.multi import candidates_law, multi_step_law
from specverify.laws.sequence import completed_distance, total_variation
from specverify.laws.tree import Conditional, ConditionalTree
from specverify.reference.batch import Batch, RunningRequest
from specverify.reference.draws import RequestStreams
from specverify.reference.proposers import Drafts, DynamicTree, FixedTree, Growth
from specverify.reference.tree import Topology
from specverify.reference.verifiers import TreeGreedyVerifier, TreeRejectionVerifier

CPU = torch.device("cpu")
VOCAB = 3
# float64 products in another order; measured 3e-16.
TOLERANCE = 1e-12
CHAIN_AND_PAIR = Topology.from_branching((2, 1))
LOPSIDED = Topology.from_paths([(0,), (1,), (1, 0)])


class LawSource:
    """Gives the logits of a known draft law, without a model."""

    def __init__(self, draft: Conditional) -> None:
        self.draft = draft

    def root_logits(self, batch: Batch) -> Tensor:
        self.paths: list[tuple[int, ...]] = []
        return self._logits([()])[:, 0]

    def extend_nodes(
        self, batch: Batch, token_ids: Tensor, parents: Tensor, depth: int, is_wanted: Sequence[bool]
    ) -> Tensor:
        above = [() if parent < 0 else self.paths[parent] for parent in parents[0].tolist()]
        new = [(*path, token) for path, token in zip(above, token_ids[0].tolist(), strict=True)]
        self.paths += new
        return self._logits(new)

    def _logits(self, paths: list[tuple[int, ...]]) -> Tensor:
        return torch.tensor(np.array([self.draft(path) for path in paths])).log()[None]


def one_row() -> Batch:
    request = Request((0,), 8)
    return Batch([RunningRequest(request, 0, [0], RequestStreams(None, CPU))], VOCAB, CPU)


def step(growth: Growth, draft: Conditional, target: Conditional) -> tuple[int, ...]:
    """What a step emits that drafts this tree from the draft law and is verified against the target law."""
    batch = one_row()
    drafts = growth.grow(batch, LawSource(draft), [3])
    tokens = drafts.token_ids[0].tolist()
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(tokens, drafts.parents[0].tolist(), strict=True):  # type: ignore[index]
        paths.append((*(() if parent < 0 else paths[parent]), token))
    rows = torch.tensor(np.array([target(path) for path in [(), *paths]]))[None]
    verdict = TreeRejectionVerifier().verify(batch, drafts, rows)
    num_accepted = int(verdict.num_accepted[0])
    nodes = verdict.accepted_nodes[0].tolist()[:num_accepted]  # type: ignore[index]
    return (*(tokens[node] for node in nodes), int(verdict.final_token_ids[0]))


def laws(seed: int) -> tuple[ConditionalTree, Conditional]:
    """A target with zeros, ties and one-hot rows in it, and a draft that disagrees."""
    target = ConditionalTree(VOCAB, seed, specials=("zeros", "ties", "one-hot"), special_chance=0.3)
    return target, target.draft(seed=seed + 1, disagreement=0.6)


GROWTHS: dict[str, Growth] = {
    "more children than tokens": FixedTree(Topology.from_branching((4,))),
    "uneven shape": FixedTree(LOPSIDED),
    "likeliest children": FixedTree(LOPSIDED, is_drawn=False),
    "dynamic": DynamicTree(width=2, depth=2, num_nodes=4),
}


@pytest.mark.parametrize("growth", GROWTHS.values(), ids=list(GROWTHS))
def test_tree_step_is_lossless(growth: Growth) -> None:
    """Completed with tokens of the target, what a step emits follows the target's sequence law."""
    target, draft = laws(7)

    law = enumerate_law(lambda source: step(growth, draft, target), cross_check_calls=50)

    assert completed_distance(law.probabilities, target).tv < TOLERANCE


@pytest.mark.parametrize("with_replacement", [False, True])
def test_drawn_tree_accepts_as_the_closed_form_says(with_replacement: bool) -> None:
    """Not only lossless: every emitted tuple has the probability of recursive rejection."""
    target, draft = laws(6)
    growth = FixedTree(CHAIN_AND_PAIR, with_replacement=with_replacement)

    law = enumerate_law(lambda source: step(growth, draft, target), cross_check_calls=50)

    wanted = multi_step_law(draft, target, (2, 1), with_replacement=with_replacement)
    assert total_variation(law.probabilities, wanted) < TOLERANCE


def test_likeliest_children_declared_as_draws_are_lossy() -> None:
    """The published mistake: top-k children verified against the soft draft law. The tests above would see it."""

    class Declared(FixedTree):
        def grow(self, batch: Batch, source: LawSource, num_draft_tokens: Sequence[int]) -> Drafts:  # type: ignore[override]
            made = super().grow(batch, source, num_draft_tokens)
            soft = torch.tensor(np.array([draft(()), draft(())]))
            return Drafts(made.token_ids, made.num_tokens, soft[None], parents=made.parents)

    target, draft = laws(7)
    growth = Declared(Topology.from_branching((2,)), is_drawn=False)

    law = enumerate_law(lambda source: step(growth, draft, target), cross_check_calls=50)

    assert completed_distance(law.probabilities, target).tv > 0.01


@pytest.mark.parametrize("token_ids", [(0, 1), (2, 2), (1, 0)])
def test_given_candidates_are_accepted_as_the_closed_form_says(token_ids: tuple[int, int]) -> None:
    """Two candidates of one law, tried in turn."""
    target, draft = laws(7)
    target_row, draft_row = target(()), draft(())
    rows = torch.tensor(np.stack([target_row] * 3))[None]
    drafts = Drafts(
        torch.tensor([token_ids]), [2], torch.tensor(np.stack([draft_row] * 2))[None], parents=torch.tensor([[-1, -1]])
    )

    def program(source: object) -> int:
        verdict = TreeRejectionVerifier().verify(one_row(), drafts, rows)
        return int(verdict.accepted_nodes[0, 0]) if int(verdict.num_accepted[0]) else -1  # type: ignore[index]

    law = enumerate_law(program, cross_check_calls=50)

    accepted, replaced = candidates_law(token_ids, draft_row, target_row, with_replacement=True)
    wanted = {(0,): accepted[0], (1,): accepted[1], (-1,): float(replaced.sum())}
    found = {key if isinstance(key, tuple) else (key,): value for key, value in law.probabilities.items()}
    assert total_variation(found, wanted) < TOLERANCE


def test_greedy_walk_follows_the_best_tokens() -> None:
    """Three rows: the second child and its child; nothing; a whole path, so that the final token is its bonus."""
    parents = torch.tensor([[-1, -1, 0, 1]]).expand(3, -1)
    drafts = Drafts(torch.tensor([[0, 1, 2, 2], [0, 1, 2, 2], [1, 0, 1, 1]]), [4] * 3, parents=parents)
    best = torch.tensor([[1, 0, 2, 0, 1], [2, 0, 0, 0, 0], [1, 1, 2, 0, 2]])
    target_probs = torch.nn.functional.one_hot(best, VOCAB).to(torch.float64)

    verdict = TreeGreedyVerifier().verify(one_row(), drafts, target_probs)

    assert verdict.num_accepted.tolist() == [2, 0, 2]
    assert verdict.final_token_ids.tolist() == [1, 2, 0]
    nodes = verdict.accepted_nodes
    assert nodes is not None
    assert [nodes[0, :2].tolist(), nodes[2, :2].tolist()] == [[1, 3], [0, 2]]


def test_rows_of_a_batch_are_walked_apart() -> None:
    """Each row's decision is the one it takes alone, at its own depth and number of nodes."""
    parents = torch.tensor([[-1, -1, 0], [-1, 0, -1], [-1, -1, -1]])
    token_ids, num_tokens = torch.tensor([[0, 1, 2], [1, 1, 0], [2, 0, 0]]), [3, 2, 1]
    generator = torch.Generator().manual_seed(3)
    target_probs = torch.randn(3, 4, VOCAB, generator=generator, dtype=torch.float64).softmax(-1)

    def decide(rows: list[int]) -> list[tuple[int, int]]:
        batch = Batch(
            [RunningRequest(Request((0,), 8, seed=row), 0, [0], RequestStreams(row, CPU)) for row in rows], VOCAB, CPU
        )
        drafts = Drafts(token_ids[rows], [num_tokens[row] for row in rows], parents=parents[rows])
        verdict = TreeRejectionVerifier().verify(batch, drafts, target_probs[rows])
        return list(zip(verdict.num_accepted.tolist(), verdict.final_token_ids.tolist(), strict=True))

    assert [decide([row])[0] for row in range(3)] == decide([0, 1, 2])
