"""Heads and skipped layers: any weights leave the text as it is, and every state stands beside its own token."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from specverify.core.errors import UsageError
from specverify.core.types import Request, SamplingParams
from specverify.exact.law import enumerate_law
from specverify.laws.sampling import law_from_logits
from specverify.laws.sequence import total_variation
from specverify.reference.engine import ReferenceEngine
from specverify.reference.head_proposers import chain, layers_to_run
from specverify.reference.heads import untrained_eagle, untrained_medusa
from specverify.reference.model import Model
from specverify.reference.proposers import DynamicTree, FixedTree, Growth
from specverify.reference.proposers.eagle import EagleProposer
from specverify.reference.proposers.layer_skip import LayerSkipProposer
from specverify.reference.proposers.medusa import MedusaProposer
from specverify.reference.tree import Topology
from tests.reference import tiny
from tests.reference.test_engine import GREEDY, ROWS_TOLERANCE, exact_law, requests, texts

SHAPE = Topology.from_branching((2, 2, 1))
GROWTHS: dict[str, Growth] = {
    "chain": FixedTree(chain(3)),
    "best chain": FixedTree(chain(3), is_drawn=False),
    "drawn tree": FixedTree(SHAPE),
    "likeliest tree": FixedTree(SHAPE, is_drawn=False),
    "dynamic": DynamicTree(width=3, depth=3, num_nodes=8),
}
MIXED = SamplingParams(0.7, top_k=3, repetition_penalty=1.3)
SAMPLED = SamplingParams(0.9, repetition_penalty=1.3)

Maker = Callable[[Model, Growth], object]
MAKERS: dict[str, Maker] = {
    "eagle": lambda target, growth: EagleProposer(untrained_eagle(target, taps=()), growth),
    "fused eagle": lambda target, growth: EagleProposer(untrained_eagle(target, taps=(0, 2)), growth),
    "medusa": lambda target, growth: MedusaProposer(untrained_medusa(target, num_heads=3), growth),
    "layer skip": lambda target, growth: LayerSkipProposer(target, (1,), growth),
}
every_growth = pytest.mark.parametrize("growth", GROWTHS.values(), ids=list(GROWTHS))
every_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=list(MAKERS))


def engine(make: Maker, growth: Growth, **options: object) -> ReferenceEngine:
    target = tiny.model()
    return ReferenceEngine(target, make(target, growth), **options)  # type: ignore[arg-type]


@every_growth
@every_maker
def test_greedy_text_is_the_same_with_a_head(make: Maker, growth: Growth) -> None:
    """Token for token, with penalties too."""
    made = engine(make, growth)
    asked = requests(SamplingParams(0.0, repetition_penalty=1.4))

    assert texts(made.generate(asked, speculate=False)) == texts(made.generate(asked, speculate=True))


@every_growth
@every_maker
def test_request_in_a_batch_is_the_request_alone(make: Maker, growth: Growth) -> None:
    """Drafts included: rows that finish, and neighbours that sample otherwise, move nothing."""
    made = engine(make, growth)
    mixed = [
        Request((3, 1, 4), 24, SamplingParams(), seed=1),
        Request((1, 5), 7, GREEDY, seed=2),
        Request((9, 2, 6, 5), 15, MIXED, seed=3),
    ]

    together = made.generate(mixed, speculate=True)

    for request, trace in zip(mixed, together, strict=True):
        alone = made.generate([request], speculate=True)[0]
        assert alone.token_ids == trace.token_ids
        assert [s.draft_token_ids for s in alone.steps] == [s.draft_token_ids for s in trace.steps]
        assert [s.draft_positions for s in alone.steps] == [s.draft_positions for s in trace.steps]


@pytest.mark.parametrize(
    "growth", [GROWTHS["chain"], FixedTree(Topology.from_branching((2, 1)))], ids=["chain", "tree"]
)
@every_maker
def test_enumerated_law_of_a_call_is_the_targets(make: Maker, growth: Growth) -> None:
    """On all paths of a call, penalties included: whatever the head says, and however wrong it is."""
    target = tiny.model(vocab_size=2)
    made = ReferenceEngine(target, make(target, growth), num_draft_tokens=2, record_probs=False)  # type: ignore[arg-type]
    sampling = SamplingParams(temperature=0.8, repetition_penalty=1.3)
    request = Request((0, 1, 1, 0, 1), 3, sampling)

    law = enumerate_law(lambda source: made.generate([request])[0].token_ids, cross_check_calls=100)

    assert law.num_runs > 4
    assert total_variation(law.probabilities, exact_law(target, request.prompt_token_ids, 3, sampling)) < ROWS_TOLERANCE


@every_growth
@pytest.mark.parametrize("make", [MAKERS["eagle"], MAKERS["fused eagle"]], ids=["last state", "fused"])
def test_eagles_rows_come_from_the_targets_features(make: Maker, growth: Growth) -> None:
    """After every step: a row per committed token, each beside the state of the token before it, none of its own."""
    made = engine(make, growth, record_kv_rows=True)
    head = made.proposer.model  # type: ignore[attr-defined]
    accepted = 0

    for trace in made.generate(requests(SamplingParams()), speculate=True):
        text = (*trace.request.prompt_token_ids, *trace.token_ids)
        assert trace.draft_kv_lag == 0
        for step in trace.steps:
            committed = step.start_position + len(step.token_ids)
            accepted += step.num_accepted
            assert committed == step.draft_kv_length_after
            wanted = head.prefill_rows(text[:committed]).numpy()
            np.testing.assert_allclose(step.draft_kv_rows, wanted, rtol=0, atol=ROWS_TOLERANCE)

    assert accepted > 0


def test_eagles_declared_law_is_its_own_at_every_place() -> None:
    """Behind each draft token: features of the target up to the committed text, then the head's own output."""
    made = engine(MAKERS["fused eagle"], GROWTHS["chain"])
    head = made.proposer.model  # type: ignore[attr-defined]

    for trace in made.generate(requests(SAMPLED), speculate=True):
        prompt, output = trace.request.prompt_token_ids, trace.token_ids
        for step in trace.steps:
            committed = output[: step.start_position - len(prompt)]
            for index, logits in enumerate(unrolled(head, [*prompt, *committed], step.draft_token_ids)):
                seen = (*committed, *step.draft_token_ids[:index])
                wanted = law_from_logits(logits, SAMPLED, prompt_token_ids=prompt, output_token_ids=seen)
                np.testing.assert_allclose(step.draft_probs[index], wanted, rtol=0, atol=1e-11)  # type: ignore[index]


def unrolled(head, text: list[int], draft: tuple[int, ...]) -> list[np.ndarray]:  # type: ignore[no-untyped-def, type-arg]
    """Logits before each draft token, by whole passes of target and head over the text."""
    from specverify.reference.training.forward import run

    tapped = dict.fromkeys(head.taps, torch.empty(0))
    tokens = torch.tensor([text])
    hidden = run(head.target, tokens, tapped=tapped)
    features = head.features(hidden, torch.stack(list(tapped.values()), dim=2))
    features = torch.cat([torch.zeros_like(features[:, :1]), features[:, :-1]], dim=1)
    found = []
    for index in range(len(draft)):
        tokens = torch.tensor([[*text, *draft[:index]]])
        out = run(head, tokens, inputs=head.inputs(tokens, features))
        features = torch.cat([features, out[:, -1:]], dim=1)
        found.append(head.logits(out[0, -1]).numpy())
    return found


def test_medusas_heads_read_the_state_before_the_newest_token() -> None:
    """Head i gives the law of the draft token i places behind the newest token, whatever was drafted in between."""
    made = engine(MAKERS["medusa"], GROWTHS["chain"])
    heads = made.proposer.heads  # type: ignore[attr-defined]

    for trace in made.generate(requests(SamplingParams()), speculate=True):
        prompt = trace.request.prompt_token_ids
        for step in trace.steps:
            text = (*prompt, *trace.token_ids)[: step.start_position - 1]
            hidden = last_hidden(made.target, text)
            wanted = heads.logits(hidden).softmax(dim=-1)[: step.num_draft_tokens].numpy()
            np.testing.assert_allclose(step.draft_probs, wanted, rtol=0, atol=1e-11)


def last_hidden(model: Model, text: tuple[int, ...]) -> torch.Tensor:
    from specverify.reference.training.forward import run

    return run(model, torch.tensor([text]))[0, -1]


def test_layer_skip_with_all_layers_is_accepted_whole() -> None:
    """Nothing skipped is the target itself, on its own cache."""
    target = tiny.model()
    made = ReferenceEngine(target, LayerSkipProposer(target, range(2), FixedTree(chain(3))))

    for trace in made.generate(requests(SamplingParams()), speculate=True):
        assert trace.num_accepted == trace.num_proposed


def test_layer_skip_reads_what_whole_passes_wrote() -> None:
    """Its first law is that of the skipped pass over the newest token, above rows of the whole target."""
    target = tiny.model()
    made = ReferenceEngine(target, LayerSkipProposer(target, (0,), FixedTree(chain(3))))

    for trace in made.generate(requests(SamplingParams()), speculate=True):
        for step in trace.steps:
            text = (*trace.request.prompt_token_ids, *trace.token_ids)[: step.start_position]
            # The first layer reads embeddings only, so its rows are the same in whole and in skipped passes.
            wanted = target.first_layers(1).logits(last_hidden(target.first_layers(1), text)).softmax(dim=-1)
            np.testing.assert_allclose(step.draft_probs[0], wanted.numpy(), rtol=0, atol=1e-11)  # type: ignore[index]


def test_chains_are_recorded_as_chains() -> None:
    """A growth without branches is no tree to the verifier, and one with branches is."""
    for name, has_parents in (("chain", False), ("drawn tree", True)):
        trace = engine(MAKERS["medusa"], GROWTHS[name]).generate(requests(GREEDY), speculate=True)[0]
        assert has_parents == (trace.steps[0].parents is not None)


def test_best_tokens_are_declared_as_chosen() -> None:
    """The likeliest token is not a sample, so no law is declared for it."""
    for trace in engine(MAKERS["medusa"], GROWTHS["best chain"]).generate(requests(SamplingParams()), speculate=True):
        assert all(step.draft_probs is None for step in trace.steps)


def test_medusa_drafts_no_deeper_than_it_has_heads() -> None:
    target = tiny.model()
    proposer = MedusaProposer(untrained_medusa(target, num_heads=2), FixedTree(chain(5)))

    trace = ReferenceEngine(target, proposer, num_draft_tokens=5).generate([Request((1, 2), 20, GREEDY)])[0]

    assert {2} == {step.num_draft_tokens for step in trace.steps[:-1]}


def test_layers_that_are_not_there_are_refused() -> None:
    with pytest.raises(UsageError, match="give some of 0 to 1"):
        LayerSkipProposer(tiny.model(), (2,), FixedTree(chain(2)))


def test_layers_to_run_are_the_first_half_unless_told() -> None:
    target = tiny.model(num_layers=5)

    assert list(layers_to_run(target, None)) == [0, 1]
    assert list(layers_to_run(target, 3)) == [0, 1, 2]
    assert list(layers_to_run(target, (0, 4))) == [0, 4]
