"""Engines from outside that are judged by their own scores: which scenarios, which draft laws, what is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from engine_numpy import PROMPTS, VOCAB, NumpyEngine

from specverify.checks.recorded_laws import recorded_draft_laws
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.core.scenario import Purpose, Scenario
from specverify.core.types import Request, SamplingParams
from specverify.faults.engine_parts import probe_engine
from specverify.reference.subject import Parts
from specverify.reference.verifiers import RejectionVerifier
from specverify.runner import run_checks

STREAM = "lossless.sequence-stream"
RECORDING = (Capability.SCORE, Capability.TRACE, Capability.DRAFT_PROBS)


def stream_of(subject, effort=0.2, **options):
    (result,) = run_checks(subject, ids=[STREAM], effort=effort, **options).results
    return result


def test_scores_without_scenarios_are_enough_for_a_stream():
    """The standard scenarios on the adapter's own prompts: plain sampling, where no option is honoured."""
    result = stream_of(NumpyEngine(Capability.SCORE))

    assert result.outcome is Outcome.PASSED, result
    assert "in 1 scenarios" in result.worth


def test_options_that_are_honoured_are_streamed():
    result = stream_of(NumpyEngine(Capability.SCORE, Capability.SAMPLING))

    assert result.outcome is Outcome.PASSED, result
    assert "in 4 scenarios" in result.worth


def test_a_stream_keeps_to_what_the_engine_has_room_for():
    """Texts no longer than max_positions, prompt included."""
    engine = NumpyEngine(Capability.SCORE, max_positions=12)
    asked = []
    whole = engine.generate
    engine.generate = lambda requests, speculate: asked.extend(requests) or whole(requests, speculate=speculate)

    stream_of(engine, effort=0.02)

    assert max(len(max(PROMPTS, key=len)) + request.max_new_tokens for request in asked) == 12


def test_scenarios_that_cannot_be_scored_are_named_as_what_is_missing():
    """Scores are there; the message must not ask for them."""
    penalised = Scenario("penalised", Purpose.STREAM, SamplingParams(repetition_penalty=1.3), PROMPTS, 8)
    result = stream_of(NumpyEngine(Capability.SCORE, scenarios=(penalised,)))

    assert result.outcome is Outcome.INCONCLUSIVE
    assert "`scenarios`" in result.reason
    assert "declare SCORE" not in result.reason


def test_a_checkpoint_that_is_not_there_is_named():
    result = stream_of(NumpyEngine(Capability.LOAD_CHECKPOINT))

    assert result.outcome is Outcome.INCONCLUSIVE
    assert "`checkpoint`" in result.reason


def test_a_residual_fault_is_caught_from_recorded_draft_laws_within_fewer_tokens():
    """Ordered by target over draft, a rejected token drawn from the target stands out; by the target alone it hides."""
    blind = stream_of(NumpyEngine(Capability.SCORE, wrong="residual"), effort=1.0)
    seeing = stream_of(NumpyEngine(*RECORDING, wrong="residual"), effort=1.0)

    assert seeing.outcome is Outcome.FAILED
    assert blind.outcome is Outcome.PASSED


def test_a_residual_fault_is_named_and_not_called_lossy():
    """A mixture of target and draft comes near as well: the invitation to declare it is not for a plain bug."""
    (finding,) = stream_of(NumpyEngine(*RECORDING, wrong="residual"), effort=1.0).findings

    assert "replaces a rejected token by a draw from the target law, not the residual" in finding.likely_cause
    assert "lossy" not in finding.likely_cause


def test_a_mixture_is_named_where_no_known_mistake_explains_it():
    (finding,) = stream_of(NumpyEngine(*RECORDING, wrong="mixture"), effort=1.0).findings

    assert finding.likely_cause.startswith("lossy: verified tokens follow 0.")
    assert "none of 10 known mistakes of a verifier does" in finding.likely_cause


@pytest.mark.parametrize("seed", range(6))
def test_recorded_draft_laws_raise_no_alarm_on_a_lossless_engine(seed):
    """They are known before a token is accepted or replaced: evidence stays far below the alarm."""
    result = stream_of(NumpyEngine(*RECORDING, _own=np.random.default_rng(seed)), seed=seed)

    assert result.outcome is Outcome.PASSED, result
    assert result.figures["log_e"] < 5.0


def test_a_pass_says_of_what_its_total_variation_is():
    """Between bins, in the orders that were looked at: no bound on the tokens' own, and how to see more."""
    blind = stream_of(NumpyEngine(Capability.SCORE))
    seeing = stream_of(NumpyEngine(*RECORDING))

    assert "between 20 bins of the tokens, ordered by target law or a shuffle, in all tokens" in blind.worth
    assert "a wrong residual may hide: record them (DRAFT_PROBS)" in blind.worth
    assert "ordered by target law, draft / target or a shuffle" in seeing.worth
    assert "may hide" not in seeing.worth


def test_a_handful_of_tokens_decides_nothing():
    result = stream_of(NumpyEngine(Capability.SCORE), effort=0.005)

    assert result.outcome is Outcome.INCONCLUSIVE, result
    assert "tokens show nothing wrong" in result.reason


def test_an_assumed_dtype_is_said_where_rounding_is_allowed_for():
    """bfloat16 explains a tenth of total variation: the reader must know that it was a guess."""
    engine = NumpyEngine(*RECORDING)
    del engine.dtype
    assumed = stream_of(engine)
    declared = stream_of(NumpyEngine(*RECORDING, dtype="bfloat16"))

    assert "dtype is not declared, so bfloat16 is assumed" in assumed.worth
    assert "not declared" not in declared.worth
    assert "taken for rounding" in declared.worth


def traces(**changes):
    (trace,) = NumpyEngine(*RECORDING).generate([Request(PROMPTS[0], 12, seed=3)], speculate=True)
    return [replace(trace, steps=tuple(replace(step, **changes) for step in trace.steps))], trace


def test_a_recorded_row_belongs_to_the_token_emitted_in_its_place():
    """None for prefill and bonus tokens; a row for every accepted token and for the one in place of a rejected one."""
    recorded, trace = traces()
    rows = recorded_draft_laws(recorded, VOCAB)

    assert rows.shape == (12, VOCAB)
    assert np.isnan(rows[0]).all()
    for step in trace.steps:
        start = step.start_position - len(PROMPTS[0])
        for index in range(len(step.token_ids)):
            if index < step.num_draft_tokens:
                np.testing.assert_allclose(rows[start + index], step.draft_probs[index])
            else:
                assert np.isnan(rows[start + index]).all()


def test_rows_that_give_the_drafted_token_away_are_left_out():
    """A point mass says which token was drawn, and may say how the verifier's own draw will end."""
    points = np.eye(VOCAB)[[4, 5, 6]]

    assert recorded_draft_laws(traces(draft_probs=points)[0], VOCAB) is None


@pytest.mark.parametrize("rows", [np.full((3, VOCAB), 0.5 / VOCAB), np.full((3, VOCAB + 1), 1.0 / (VOCAB + 1))])
def test_rows_that_are_no_laws_of_this_vocabulary_are_left_out(rows):
    assert recorded_draft_laws(traces(draft_probs=rows)[0], VOCAB) is None


def test_rows_of_a_tree_are_left_out():
    """They follow the siblings that were tried before."""
    assert recorded_draft_laws(traces(parents=(-1, 0, 1))[0], VOCAB) is None


class _DrawsFromTheTarget(RejectionVerifier):
    def residual_law(self, draft_probs, target_probs):
        return target_probs


def test_a_residual_fault_of_an_engine_with_the_probe_is_named():
    """The oracle knows the draft law there, penalties and filters included."""
    subject = probe_engine("residual", parts=Parts(make_verifier=_DrawsFromTheTarget))

    (finding,) = stream_of(subject, effort=0.3).findings

    assert "replaces a rejected token by a draw from the target law, not the residual" in finding.likely_cause
