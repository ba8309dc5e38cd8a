"""The reference engine as a subject: what it declares is there, and faults stay in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specverify.adapters.reference import reference_engine
from specverify.core.capabilities import Capability
from specverify.core.errors import UsageError
from specverify.core.scenario import Purpose, scenarios_of
from specverify.core.types import Request, SamplingParams
from specverify.probe import ProbePair, write_probe
from specverify.reference.engine import ReferenceEngine
from specverify.reference.subject import PROPOSERS, Parts, ReferenceSubject, reference_subject
from tests.reference import tiny

GREEDY = SamplingParams(temperature=0.0)
# The oracle and the engine are two float64 programs; measured 1e-14.
ORACLE_TOLERANCE = 1e-11


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ProbePair:
    return write_probe(tmp_path_factory.mktemp("probe") / "pair")


@pytest.fixture
def subject(pair: ProbePair) -> ReferenceSubject:
    return reference_engine(pair)


def requests(pair: ProbePair, sampling: SamplingParams = GREEDY) -> list[Request]:
    return [
        Request(prompt, 16, sampling, seed=index, request_id=str(index))
        for index, prompt in enumerate(pair.prompts[:3])
    ]


def test_scores_are_the_oracles(subject: ReferenceSubject, pair: ProbePair) -> None:
    """Log-probabilities of the target, in float64, equal to a program that shares no line with this one."""
    prompt, text = pair.prompts[0], (7, 9, 12, 4, 30)
    logits = pair.target_oracle.logits((*prompt, *text))[len(prompt) - 1 : -1]

    scores = subject.score(prompt, text)

    wanted = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=ORACLE_TOLERANCE)


@pytest.mark.parametrize("model", ["target", "draft"])
def test_kv_rows_are_the_oracles(subject: ReferenceSubject, pair: ProbePair, model: str) -> None:
    """A fresh prefill has the keys and values of the float64 oracle."""
    oracle = pair.target_oracle if model == "target" else pair.draft_oracle

    rows = subject.prefill_kv_rows(model, pair.prompts[1])

    np.testing.assert_allclose(rows, oracle.kv_rows(pair.prompts[1]), rtol=0, atol=ORACLE_TOLERANCE)


@pytest.mark.parametrize("name", PROPOSERS)
def test_every_proposer_keeps_the_greedy_text(subject: ReferenceSubject, pair: ProbePair, name: str) -> None:
    """Also through with_proposer."""
    off = subject.generate(requests(pair), speculate=False)

    on = subject.with_proposer(name).generate(requests(pair), speculate=True)

    assert [trace.token_ids for trace in on] == [trace.token_ids for trace in off]


def test_quiet_run_is_the_same_run(subject: ReferenceSubject, pair: ProbePair) -> None:
    """Without laws and rows in its steps, and saying so."""
    loud = subject.generate(requests(pair, SamplingParams()), speculate=True)
    quiet = subject.quiet().generate(requests(pair, SamplingParams()), speculate=True)

    assert [t.token_ids for t in quiet] == [t.token_ids for t in loud]
    assert all(s.target_probs is None and s.target_kv_rows is None for t in quiet for s in t.steps)
    assert all(t.log_probs is None for t in quiet)
    assert {Capability.KV_ROWS, Capability.TARGET_PROBS, Capability.DRAFT_PROBS, Capability.LOGPROBS} == (
        subject.capabilities - subject.quiet().capabilities
    )


@pytest.mark.parametrize("proposer", ["", "draft-model", "n-gram", "tree", "tree-dynamic"])
def test_log_probabilities_are_raw(subject: ReferenceSubject, pair: ProbePair, proposer: str) -> None:
    """Of prefill's token, of plain decoding, of chains and trees, in a ragged batch: before filters and penalties."""
    sampling = SamplingParams(temperature=0.7, top_k=5, repetition_penalty=1.2)
    drafting = subject.with_proposer(proposer) if proposer else subject

    traces = drafting.generate(requests(pair, sampling), speculate=bool(proposer))

    for trace in traces:
        scores = subject.score(trace.request.prompt_token_ids, trace.token_ids)
        wanted = scores[np.arange(len(scores)), list(trace.token_ids)]
        np.testing.assert_allclose(trace.log_probs, wanted, rtol=0, atol=ORACLE_TOLERANCE)


def test_log_probabilities_end_where_the_output_ends(subject: ReferenceSubject, pair: ProbePair) -> None:
    """Tokens behind an end token, or behind the limit, have none."""
    asked = [
        replace(request, eos_token_ids=tuple(range(4, 16)), max_new_tokens=5) for request in requests(pair, GREEDY)
    ]

    traces = subject.with_proposer("self").generate(asked, speculate=True)

    assert [len(trace.token_ids) for trace in traces] == [len(trace.log_probs or ()) for trace in traces]
    assert any(step.is_truncated for trace in traces for step in trace.steps)


@pytest.mark.parametrize(
    ("options", "is_shown"),
    [({}, True), ({"record_probs": False}, False), ({"record_probs": False, "record_log_probs": True}, True)],
)
def test_log_probabilities_are_declared_where_they_are_recorded(
    pair: ProbePair, options: dict[str, bool], is_shown: bool
) -> None:
    """By default as laws are."""
    subject = reference_engine(pair, **options)

    (trace,) = subject.generate(requests(pair)[:1], speculate=True)

    assert is_shown is (Capability.LOGPROBS in subject.capabilities) is (trace.log_probs is not None)


def test_declared_capabilities_are_there(subject: ReferenceSubject, pair: ProbePair) -> None:
    """What a step is said to hold, it holds."""
    step = subject.generate(requests(pair, SamplingParams()), speculate=True)[0].steps[0]

    for capability, value in {
        Capability.DRAFT_PROBS: step.draft_probs,
        Capability.TARGET_PROBS: step.target_probs,
        Capability.KV_LENGTH: step.target_kv_length_after,
        Capability.DRAFT_KV: step.draft_kv_length_after,
        Capability.KV_ROWS: step.draft_kv_rows,
        Capability.POSITIONS: step.draft_positions,
        Capability.TOKENIZER: subject.tokenizers,
        Capability.LOAD_CHECKPOINT: subject.checkpoint,
        Capability.SEED: step.uniforms,
    }.items():
        assert capability in subject.capabilities
        assert value is not None, capability
    assert Capability.DRAFT_PROBS not in subject.with_proposer("n-gram").capabilities


def test_every_purpose_has_scenarios(subject: ReferenceSubject) -> None:
    """A probe pair brings the standard scenarios along."""
    assert all(scenarios_of(subject, purpose) for purpose in Purpose)


def test_planted_parts_survive_another_proposer(pair: ProbePair) -> None:
    """Engine, proposer mixin and verifier of a fault are there whichever drafter is put in."""

    class OneTooFew(ReferenceEngine):
        def num_to_propose(self, running: Any) -> int:
            return super().num_to_propose(running) - 1

    class Lies:
        def declared_law(self, batch: Any, law: Any, logits: Any) -> Any:
            return law.roll(1, -1)

    parts = Parts(engine_class=OneTooFew, proposer_mixin=Lies)
    broken = reference_subject(pair, parts=parts).with_proposer("self").with_proposer("alternating").quiet()

    assert isinstance(broken.engine, OneTooFew)
    assert isinstance(broken.engine.proposer, Lies)


def test_models_and_directories_are_taken_alike(pair: ProbePair) -> None:
    """Checkpoint directories, a pair's directory, or models already loaded."""
    by_directory = reference_engine(target=pair.target_dir, draft=str(pair.draft_dir), dtype="float64")
    by_pair = reference_engine(str(pair.directory))
    by_model = reference_engine(target=by_pair.target, draft=by_pair.draft)

    texts = {
        engine.generate(requests(pair), speculate=True)[0].token_ids for engine in (by_directory, by_pair, by_model)
    }

    assert len(texts) == 1
    assert by_directory.tokenizers is not None
    assert by_model.tokenizers is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"proposer": "mamba"}, "proposer 'mamba' is unknown; choose from draft-model"),
        ({"dtype": "int8"}, "dtype 'int8' is unknown; choose from float64"),
        ({"model": "gpt2"}, "model 'gpt2' is unknown"),
        ({"draft": "x"}, "a draft is named without a target"),
        ({"target": "nowhere"}, "config.json is not there"),
        ({"num_draft_tokens": 0}, "num_draft_tokens is 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_arguments_are_refused(pair: ProbePair, arguments: dict[str, Any], message: str) -> None:
    """At once, not at the first generate."""
    probe = None if {"model", "draft", "target"} & arguments.keys() else pair

    with pytest.raises(UsageError, match=message):
        reference_engine(probe, **arguments)


def test_draft_model_is_needed_for_its_proposer(tmp_path: Path) -> None:
    """A target alone serves the drafters that need no second model."""
    target = tiny.model()

    with pytest.raises(UsageError, match="needs a draft model"):
        reference_engine(target=target)
    assert reference_engine(target=target, proposer="n-gram").proposer == "n-gram"


def test_the_standard_pair_has_a_name() -> None:
    """`--model probe` says what is the default."""
    assert reference_engine(model="probe").target is reference_engine().target


@pytest.mark.parametrize("proposer", ["anti", "alternating"])
def test_scripted_drafts_are_not_a_models_law(proposer: str) -> None:
    """What a script makes of the law changes by turns: it cannot be computed afresh, and is not offered."""
    assert Capability.DRAFT_SCORE not in reference_engine(proposer=proposer).capabilities


@pytest.mark.parametrize("proposer", ["tree", "eagle-tree"])
def test_trees_are_asked_for_little_at_once(proposer: str) -> None:
    """Every path of a call must stay countable: no tree of two levels with three tokens to choose from."""
    exact = scenarios_of(reference_engine(proposer=proposer), Purpose.EXACT)

    assert {(one.sampling.top_k, one.max_new_tokens) for one in exact} == {(3, 2), (2, 3)}
    assert {"", "temperature", "top_p", "repetition_penalty", "eos_token_ids"} == {one.option for one in exact}
