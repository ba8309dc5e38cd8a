"""The engine with draft trees: nothing changes but the speed, and both caches hold the accepted path."""

from __future__ import annotations

import numpy as np
import pytest

from specverify.core.types import Request, SamplingParams
from specverify.exact.law import enumerate_law
from specverify.laws.multi import Children, expected_tokens
from specverify.laws.sequence import total_variation
from specverify.probe import default_probe
from specverify.reference.cached_model import prefill_rows
from specverify.reference.engine import ReferenceEngine
from specverify.reference.proposers import DynamicTree, FixedTree, Growth, TreeProposer
from specverify.reference.subject import reference_subject
from specverify.reference.tree import Topology
from specverify.trace import read_traces, write_traces
from tests.reference import tiny
from tests.reference.test_engine import GREEDY, ROWS_TOLERANCE, exact_law, requests, texts

SHAPE = Topology.from_paths([(0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0)])
GROWTHS: dict[str, Growth] = {
    "drawn": FixedTree(SHAPE),
    "drawn with replacement": FixedTree(SHAPE, with_replacement=True),
    "likeliest": FixedTree(SHAPE, is_drawn=False),
    "dynamic": DynamicTree(width=3, depth=3, num_nodes=8),
}
every_growth = pytest.mark.parametrize("growth", GROWTHS.values(), ids=list(GROWTHS))
MIXED = SamplingParams(0.7, top_k=2, repetition_penalty=1.3)


def engine(growth: Growth, **options: object) -> ReferenceEngine:
    return ReferenceEngine(tiny.model(), TreeProposer(tiny.disturbed(0, 0.1), growth), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(0.0, repetition_penalty=1.4, frequency_penalty=0.3)])
@every_growth
def test_greedy_text_is_the_same_with_a_tree(growth: Growth, sampling: SamplingParams) -> None:
    """Token for token, with penalties too, which see each node's own path."""
    made = engine(growth)

    off = made.generate(requests(sampling), speculate=False)

    assert texts(off) == texts(made.generate(requests(sampling), speculate=True))


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams()], ids=["greedy", "sampled"])
@every_growth
def test_both_caches_hold_the_accepted_path(growth: Growth, sampling: SamplingParams) -> None:
    """After every step, content and number of rows, for paths that leave siblings behind in between."""
    made = engine(growth, record_kv_rows=True)
    draft = made.proposer.model  # type: ignore[attr-defined]
    moved = False

    for trace in made.generate(requests(sampling), speculate=True):
        text = (*trace.request.prompt_token_ids, *trace.token_ids)
        for step in trace.steps:
            committed = step.start_position + len(step.token_ids)
            moved |= step.accepted_nodes not in ((), (0,))
            assert committed - 1 == step.target_kv_length_after
            assert committed - step.draft_kv_length_after in (1, 2)  # type: ignore[operator]
            for model, rows in ((made.target, step.target_kv_rows), (draft, step.draft_kv_rows)):
                assert rows is not None
                wanted = prefill_rows(model, text[: rows.shape[2]]).numpy()
                np.testing.assert_allclose(rows, wanted, rtol=0, atol=ROWS_TOLERANCE)

    assert moved


@every_growth
def test_steps_record_the_tree_and_the_path(growth: Growth) -> None:
    """Nodes after their parents; the accepted nodes are a path from the root, and their tokens are what was emitted."""
    for trace in engine(growth).generate(requests(SamplingParams()), speculate=True):
        for step in trace.steps:
            parents, nodes = step.parents or (), step.accepted_nodes or ()
            assert all(parent < node for node, parent in enumerate(parents))
            assert (-1, *nodes[:-1])[: len(nodes)] == tuple(parents[node] for node in nodes)
            accepted = tuple(step.draft_token_ids[node] for node in nodes)
            assert accepted[: len(step.token_ids)] == step.token_ids[: len(accepted)]
            depths = [0] * len(parents)
            for node, parent in enumerate(parents):
                depths[node] = 1 + (depths[parent] if parent >= 0 else 0)
            start = step.start_position - 1
            assert (start, *(start + depth for depth in depths)) == step.target_positions


@every_growth
def test_tree_request_in_a_batch_is_the_request_alone(growth: Growth) -> None:
    """Whatever its neighbours' sampling, depth limits and number of nodes."""
    made = engine(growth)
    mixed = [
        Request((3, 1, 4), 24, SamplingParams(), seed=1),
        Request((1, 5), 7, GREEDY, seed=2),
        Request((9, 2, 6, 5), 15, MIXED, seed=3),
        Request((9, 2, 6, 5), 13, MIXED, seed=4),
    ]

    together = made.generate(mixed, speculate=True)

    for request, trace in zip(mixed, together, strict=True):
        alone = made.generate([request], speculate=True)[0]
        assert alone.token_ids == trace.token_ids
        assert [s.draft_token_ids for s in alone.steps] == [s.draft_token_ids for s in trace.steps]
        assert [s.parents for s in alone.steps] == [s.parents for s in trace.steps]
        assert [s.draft_positions for s in alone.steps] == [s.draft_positions for s in trace.steps]


@pytest.mark.parametrize(
    "growth",
    [
        FixedTree(Topology.from_branching((2, 1))),
        FixedTree(Topology.from_branching((2, 2)), is_drawn=False),
        DynamicTree(width=2, depth=2, num_nodes=3),
    ],
    ids=["drawn", "likeliest", "dynamic"],
)
def test_enumerated_law_of_a_tree_call_is_the_targets(growth: Growth) -> None:
    """Drafting, verification, compaction of both caches and penalties, on all paths of a call."""
    target, draft = tiny.model(vocab_size=2), tiny.model(4, vocab_size=2, num_layers=1)
    made = ReferenceEngine(target, TreeProposer(draft, growth), num_draft_tokens=2, record_probs=False)
    sampling = SamplingParams(temperature=0.8, repetition_penalty=1.3)
    request = Request((0, 1, 1, 0, 1), 3, sampling)

    law = enumerate_law(lambda source: made.generate([request])[0].token_ids, cross_check_calls=100)

    wanted = exact_law(target, request.prompt_token_ids, 3, sampling)
    assert total_variation(law.probabilities, wanted) < ROWS_TOLERANCE


def test_drawn_siblings_lack_the_ones_before() -> None:
    """Without replacement, siblings differ, and each one's declared law gives the earlier ones nothing."""
    for trace in engine(GROWTHS["drawn"]).generate(requests(SamplingParams()), speculate=True):
        for step in trace.steps:
            assert step.draft_probs is not None
            np.testing.assert_allclose(step.draft_probs.sum(axis=-1), 1.0, atol=1e-12)
            for node, parent in enumerate(step.parents or ()):
                earlier = [step.draft_token_ids[n] for n in range(node) if (step.parents or ())[n] == parent]
                assert step.draft_token_ids[node] not in earlier
                assert step.draft_probs[node, earlier].sum() == 0.0
                assert step.draft_probs[node, step.draft_token_ids[node]] > 0.0


def test_traces_of_trees_survive_a_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Parents and accepted nodes come back."""
    traces = engine(GROWTHS["drawn"]).generate(requests(SamplingParams()), speculate=True)

    write_traces(tmp_path / "tree.jsonl", traces)

    for before, after in zip(traces, read_traces(tmp_path / "tree.jsonl").traces, strict=True):
        assert [(s.parents, s.accepted_nodes) for s in before.steps] == [
            (s.parents, s.accepted_nodes) for s in after.steps
        ]


@pytest.mark.parametrize("with_replacement", [False, True])
def test_tree_beats_the_chain_by_what_the_closed_form_says(with_replacement: bool) -> None:
    """Tokens of the first step after prefill, at two draft passes; seeded, and within 3 % of theory."""
    pair, sampling, shape = default_probe(), SamplingParams(top_k=4), Topology.from_branching((2, 2))
    prompt, chain = pair.prompts[0], (-1, 0)
    draft, target = (o.conditional(prompt, sampling) for o in (pair.draft_oracle, pair.target_oracle))
    kind = Children.DRAWN_WITH_REPLACEMENT if with_replacement else Children.DRAWN
    first = target(())

    def theory(parents: tuple[int, ...]) -> float:
        tokens = np.flatnonzero(first)
        return sum(first[t] * expected_tokens(parents, draft, target, kind, prefix=(int(t),)) for t in tokens)

    growth = FixedTree(shape, with_replacement=with_replacement)
    made = reference_subject(pair, proposer="tree", num_draft_tokens=2, growth=growth).quiet()
    traces = made.generate([Request(prompt, 4, sampling, seed=seed) for seed in range(1500)], speculate=True)

    measured = float(np.mean([len(trace.steps[0].token_ids) for trace in traces]))
    assert measured == pytest.approx(theory(shape.parents), rel=0.03)
    assert theory(shape.parents) > theory(chain)
