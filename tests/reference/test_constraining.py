"""The reference engine under constraints: the exact law of what is allowed, for chains and trees, also in company."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from specverify.core.constraint import Constraint
from specverify.core.errors import UsageError
from specverify.core.types import Request, SamplingParams, Trace
from specverify.exact.law import enumerate_law
from specverify.laws.sampling import law_from_logits
from specverify.laws.sequence import sequence_law, total_variation
from specverify.reference.engine import ReferenceEngine
from specverify.reference.model import Model
from specverify.reference.proposers import DraftModelProposer, FixedTree, NgramProposer, Proposer, TreeProposer
from specverify.reference.subject import PROPOSERS, ReferenceSubject, reference_subject
from specverify.reference.tree import Topology
from tests.reference import tiny
from tests.reference.test_engine import logits_of

GREEDY = SamplingParams(temperature=0.0)
PENALISED = SamplingParams(temperature=0.8, repetition_penalty=1.3, top_k=2)
# Two float64 programs; measured 1e-15.
TOLERANCE = 1e-12
VOCAB, END = 4, 3
# Tokens 0 and 1 take turns with 1 and 2; it may end behind the second of each pair, where 3 is the end token.
TURNS = Constraint(({0: 1, 1: 1}, {1: 2, 2: 2}, {0: 1, 1: 1}), frozenset({2}))
ENDS = Constraint(({0: 1, 2: 1}, {0: 2, 1: 2}, {}), frozenset({2}))


def masked_law(target: Model, request: Request):
    """The target's law of the next token under the constraint, by plain passes."""

    def law(prefix: tuple[int, ...]) -> np.ndarray:
        text = torch.tensor([(*request.prompt_token_ids, *prefix)])
        allowed = request.allowed_after(prefix)
        return law_from_logits(
            logits_of(target, text)[0, -1].numpy(),
            request.sampling,
            prompt_token_ids=request.prompt_token_ids,
            output_token_ids=prefix,
            is_allowed=np.isin(np.arange(VOCAB), sorted(allowed or ())),
        )

    return law


@pytest.mark.parametrize("sampling", [SamplingParams(), PENALISED], ids=["plain", "penalised"])
@pytest.mark.parametrize("drafter", ["draft-model", "n-gram", "tree"])
def test_enumerated_law_is_the_targets_among_allowed_tokens(drafter: str, sampling: SamplingParams) -> None:
    """The drafter knows of no constraint; nothing is lost by that, on any path of the call."""
    target, draft = tiny.model(vocab_size=VOCAB), tiny.model(4, vocab_size=VOCAB, num_layers=1)
    proposers: dict[str, Proposer] = {
        "draft-model": DraftModelProposer(draft),
        "n-gram": NgramProposer(),
        "tree": TreeProposer(draft, FixedTree(Topology.from_branching((2,)))),
    }
    engine = ReferenceEngine(target, proposers[drafter], num_draft_tokens=2, record_probs=False)
    request = Request((0, 1, 2, 0, 1), 3, sampling, eos_token_ids=(END,), constraint=TURNS)

    law = enumerate_law(lambda source: engine.generate([request])[0].token_ids, cross_check_calls=50)

    wanted = sequence_law(masked_law(target, request), 3, eos_token_ids=(END,))
    assert total_variation(law.probabilities, wanted) < TOLERANCE


@pytest.fixture(scope="module")
def subject() -> ReferenceSubject:
    return reference_subject(record_kv_rows=False)


def automaton() -> Constraint:
    """Three classes of the probe's words, in turn."""
    classes = [range(first, 32, 3) for first in (4, 5, 6)]
    return Constraint(
        tuple(tuple((word, (number + 1) % 3) for word in one) for number, one in enumerate(classes)), frozenset({2})
    )


def requests(subject: ReferenceSubject, sampling: SamplingParams) -> list[Request]:
    """Constrained ones and others in turn."""
    made = [
        Request(prompt, 10, sampling, seed=index, eos_token_ids=(2,), request_id=str(index))
        for index, prompt in enumerate(subject.checkpoint.prompts)
    ]
    return [replace(one, constraint=automaton()) if index % 2 else one for index, one in enumerate(made)]


def conforms(trace: Trace) -> bool:
    allowed = [trace.request.allowed_after(trace.token_ids[:index]) for index in range(len(trace.token_ids))]
    return all(one is not None and token in one for one, token in zip(allowed, trace.token_ids, strict=True))


@pytest.mark.parametrize("name", PROPOSERS)
def test_every_proposer_keeps_text_and_constraint(subject: ReferenceSubject, name: str) -> None:
    """Greedy, in a batch with unconstrained rows: the text of plain decoding, and the rows without as alone."""
    asked = requests(subject, GREEDY)

    on = subject.with_proposer(name).generate(asked, speculate=True)

    off = subject.generate(asked, speculate=False)
    alone = subject.generate(asked[::2], speculate=False)
    assert [trace.token_ids for trace in off] == [trace.token_ids for trace in on]
    assert [trace.token_ids for trace in alone] == [trace.token_ids for trace in on[::2]]
    assert all(map(conforms, on[1::2]))
    assert any(step.is_rejection for trace in on[1::2] for step in trace.steps)


@pytest.mark.parametrize("name", ["draft-model", "sometimes-empty", "tree"])
def test_recorded_laws_are_masked_by_the_text_before_them(subject: ReferenceSubject, name: str) -> None:
    """Also behind draft tokens; behind one that was not allowed any law will do."""
    traces = subject.with_proposer(name).generate(requests(subject, SamplingParams()), speculate=True)[1::2]

    for trace in traces:
        for step in trace.steps:
            output = trace.token_ids[: step.start_position - len(trace.request.prompt_token_ids)]
            above = step.parents or range(-1, step.num_draft_tokens - 1)
            texts = [output]
            for parent, token in zip(above, step.draft_token_ids, strict=False):
                texts.append((*texts[parent + 1], token))
            assert step.target_probs is not None
            for law, text in zip(step.target_probs, texts, strict=True):
                allowed = trace.request.allowed_after(text)
                assert allowed is None or set(np.flatnonzero(law)) <= allowed


@pytest.mark.parametrize("speculate", [True, False])
@pytest.mark.parametrize(("ends", "reason", "length"), [((), "constraint", 2), ((END,), "eos", 3)])
def test_a_complete_output_ends(ends: tuple[int, ...], reason: str, length: int, speculate: bool) -> None:
    """With its end token, or without where there is none; also where that falls inside an accepted draft."""
    target = tiny.model(vocab_size=VOCAB)
    engine = ReferenceEngine(target, DraftModelProposer(target), num_draft_tokens=3)

    (trace,) = engine.generate([Request((0, 1), 8, GREEDY, eos_token_ids=ends, constraint=ENDS)], speculate=speculate)

    assert (trace.finish_reason, len(trace.token_ids)) == (reason, length)
    assert conforms(trace)


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (Constraint(({99: 0},), frozenset({0})), "allows token 99; the model has tokens 0 to 3"),
        (Constraint(((),), frozenset({0})), "is complete before its first token"),
    ],
)
def test_constraints_that_the_model_cannot_keep_are_refused(constraint: Constraint, message: str) -> None:
    """With the request's name."""
    engine = ReferenceEngine(tiny.model(vocab_size=VOCAB), NgramProposer())

    with pytest.raises(UsageError, match=message):
        engine.generate([Request((0,), 4, constraint=constraint)])
