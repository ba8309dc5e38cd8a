"""Each drafter drafts what it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specverify.core.types import Request, SamplingParams, Trace
from specverify.laws.sampling import law_from_logits
from specverify.reference.engine import ReferenceEngine
from specverify.reference.proposers import (
    AlternatingProposer,
    AntiProposer,
    DraftModelProposer,
    NgramProposer,
    Proposer,
    SelfProposer,
    SometimesEmptyProposer,
)
from tests.reference import tiny
from tests.reference.test_model import logits_of

GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.9, top_k=6, repetition_penalty=1.3, frequency_penalty=0.2)


def run(proposer: Proposer, sampling: SamplingParams, *, new_tokens: int = 24, k: int = 3) -> list[Trace]:
    engine = ReferenceEngine(tiny.model(), proposer, num_draft_tokens=k)
    requests = [
        Request(tuple(range(1, 1 + length)), new_tokens, sampling, seed=length, request_id=str(length))
        for length in (2, 3, 5)
    ]
    return engine.generate(requests, speculate=True)


@pytest.mark.parametrize(
    ("text", "wanted", "found"),
    [
        ([1, 2, 3, 9, 1, 2, 3], 2, [9, 1]),
        ([1, 2, 3, 4, 9, 2, 3, 4, 8, 1, 2, 3, 4], 2, [9, 2]),
        ([7, 2, 3, 5, 1, 2, 3, 6, 4, 2, 3], 3, [6, 4, 2]),
        ([1, 2, 8, 4, 2, 9, 2], 2, [9, 2]),
        ([4, 4, 4], 3, [4]),
        ([1, 2, 3], 3, []),
        ([5], 3, []),
        ([6, 7, 6], 0, []),
    ],
    ids=["longest", "beyond 3", "latest of the longest", "shorter", "repeats", "nothing", "one token", "none wanted"],
)
def test_ngram_copies_what_followed_the_longest_suffix(text: list[int], wanted: int, found: list[int]) -> None:
    """The longest suffix (up to 10) wins over a later but shorter match; of equal ones the latest wins."""
    assert found == NgramProposer().continuation(text, wanted)


def test_ngram_declares_no_law() -> None:
    """A copied token is a point mass, and the trace says so."""
    steps = [step for trace in run(NgramProposer(), GREEDY) for step in trace.steps]

    assert any(step.num_draft_tokens for step in steps)
    assert all(step.draft_probs is None for step in steps)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_self_is_accepted_whole(sampling: SamplingParams) -> None:
    """The target agrees with itself, penalties and all."""
    for trace in run(SelfProposer(tiny.model()), sampling):
        assert trace.num_proposed == trace.num_accepted > 0


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_anti_is_rejected_whole(sampling: SamplingParams) -> None:
    """Where sampling parameters remove tokens, the least likely one is impossible."""
    for trace in run(AntiProposer(tiny.model()), sampling):
        assert trace.num_accepted == 0 < (trace.num_proposed or 0)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_alternating_forces_every_accept_length(sampling: SamplingParams) -> None:
    """Lengths 0 to 3 in turn, out of step between requests."""
    traces = run(AlternatingProposer(tiny.model()), sampling)

    for trace in traces:
        lengths = [step.num_accepted for step in trace.steps if step.num_draft_tokens == 3]
        assert {0, 1, 2, 3} == set(lengths)
    assert traces[0].steps[0].num_accepted != traces[1].steps[0].num_accepted


def test_sometimes_empty_proposes_nothing_now_and_then() -> None:
    """Empty steps are there, full ones too, and a batch holds both at once."""
    traces = run(SometimesEmptyProposer(tiny.disturbed(0, 0.1)), GREEDY)

    by_step = list(zip(*(trace.steps for trace in traces), strict=False))
    assert any(len({bool(step.num_draft_tokens) for step in row}) == 2 for row in by_step)


@pytest.mark.parametrize("proposer", ["draft-model", "sometimes-empty"])
def test_declared_law_is_the_draft_models_own(proposer: str) -> None:
    """At every draft position draft_probs is the law of the draft model after exactly the tokens before it."""
    draft = tiny.disturbed(0, 0.1)
    made = DraftModelProposer(draft) if proposer == "draft-model" else SometimesEmptyProposer(draft)

    for trace in run(made, SAMPLED):
        prompt, output = trace.request.prompt_token_ids, list(trace.token_ids)
        for step in trace.steps:
            committed = output[: step.start_position - len(prompt)]
            for index in range(step.num_draft_tokens):
                seen = (*committed, *step.draft_token_ids[:index])
                # Logits, not log-probabilities: the repetition penalty depends on their sign.
                logits = logits_of(draft, torch.tensor([(*prompt, *seen)]))[0, -1].numpy()
                wanted = law_from_logits(logits, SAMPLED, prompt_token_ids=prompt, output_token_ids=seen)
                assert step.draft_probs is not None
                np.testing.assert_allclose(step.draft_probs[index], wanted, rtol=0, atol=1e-11)


def test_draft_tokens_are_drawn_from_the_declared_law() -> None:
    """First draft tokens of many seedless requests follow their declared law."""
    torch.manual_seed(3)
    draft = tiny.model(7, vocab_size=4, num_layers=1)
    engine = ReferenceEngine(tiny.model(vocab_size=4), DraftModelProposer(draft), num_draft_tokens=1)
    num = 4000
    traces = engine.generate([Request((1, 2), 2)] * num, speculate=True)

    groups: dict[int, list[tuple[int, np.ndarray]]] = {}
    for trace in traces:
        step = trace.steps[0]
        assert step.draft_probs is not None
        groups.setdefault(trace.token_ids[0], []).append((step.draft_token_ids[0], step.draft_probs[0]))
    for drawn in groups.values():
        law, size = drawn[0][1], len(drawn)
        counts = np.bincount([token for token, _ in drawn], minlength=4)
        # 6.5 standard deviations: less than once in 10^9 runs, and the seed is fixed.
        assert (abs(counts - size * law) <= 6.5 * np.sqrt(size * law * (1 - law)) + 1).all()
