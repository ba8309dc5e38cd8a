"""What an engine reports of itself: which statements are judged, and how exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.core.types import Step, Trace
from specverify.faults import engine
from tests.checks.engine_handmade import ScriptedEngine, honest_trace, result_of

CHECK = "trace.agrees-with-itself"
FAULTS = {fault.name: fault for fault in engine.FAULTS}
STOPS = (Capability.GENERATE, Capability.STOP)


def reporting(*, capabilities=(Capability.GENERATE,), num_tokens=None, **statements):
    """An engine that gives tokens 4, 5, 6 ... up to num_tokens and end tokens, and states this of each trace."""

    def answer(requests, speculate):
        traces = []
        for request in requests:
            tokens = tuple(range(4, 4 + request.max_new_tokens))[:num_tokens]
            ends = [index + 1 for index, token in enumerate(tokens) if token in request.eos_token_ids]
            traces.append(Trace(request, tokens[: ends[0] if ends else None], speculated=speculate, **statements))
        return traces

    return ScriptedEngine(answer, capabilities=capabilities)


@pytest.mark.parametrize(
    ("statements", "outcome"),
    [
        ({}, Outcome.INCONCLUSIVE),
        ({"finish_reason": "abort"}, Outcome.INCONCLUSIVE),
        ({"num_proposed": 9, "num_accepted": 9}, Outcome.PASSED),
        ({"num_proposed": 9, "num_accepted": 10}, Outcome.FAILED),
        ({"finish_reason": "length"}, Outcome.PASSED),
        ({"finish_reason": "length", "num_tokens": 5}, Outcome.FAILED),
        # It may have an end token of its own.
        ({"finish_reason": "stop", "num_tokens": 5}, Outcome.PASSED),
        # Some requests name an end token that comes, the others end by length.
        ({"finish_reason": "length", "capabilities": STOPS}, Outcome.FAILED),
    ],
)
def test_statements_of_an_engine_without_steps(statements, outcome):
    """Only what is stated is judged, and only what contradicts the tokens fails."""
    assert outcome is result_of(CHECK, reporting(**statements)).outcome


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({"num_proposed": 6, "num_accepted": 4}, Outcome.PASSED),
        ({"num_proposed": 7}, Outcome.FAILED),
        ({"num_accepted": 3}, Outcome.FAILED),
        ({"num_accepted": 6}, Outcome.FAILED),
    ],
)
def test_counts_are_the_sums_over_the_steps(change, outcome):
    """Two steps of three draft tokens, 1 and 3 accepted."""
    trace = replace(honest_trace([1, 3]), **change)

    def answer(requests, speculate):
        return [replace(trace, request=replace(trace.request, request_id=r.request_id)) for r in requests]

    assert outcome is result_of(CHECK, ScriptedEngine(answer)).outcome


@pytest.mark.parametrize(("accepted", "outcome"), [(0, 1), (1, 0), (2, 0), (3, 0), (4, 1)])
def test_a_step_that_was_cut_short_may_be_counted_before_or_after_the_cut(accepted, outcome):
    """Three accepted, two of them kept: 1 is what is kept but for one final token, 3 what the verifier accepted."""
    step = Step(0, 4, (5, 6, 7), (5, 6), 3, is_truncated=True)

    def answer(requests, speculate):
        return [Trace(r, (4, 5, 6), (step,), num_accepted=accepted) for r in requests]

    assert (Outcome.PASSED, Outcome.FAILED)[outcome] is result_of(CHECK, ScriptedEngine(answer)).outcome


def test_bonus_tokens_counted_as_accepted_are_recognised():
    """Every count is too large by the number of steps."""
    (finding,) = result_of(CHECK, FAULTS["report-accepted-counts-bonus"].make()).findings

    assert "final token of every step" in finding.likely_cause


def test_traces_without_statements_are_told_what_to_fill_in():
    def answer(requests, speculate):
        return [Trace(r, (4, 5, 6)) for r in requests]

    assert "fill in num_proposed, num_accepted and finish_reason" in result_of(CHECK, ScriptedEngine(answer)).reason
