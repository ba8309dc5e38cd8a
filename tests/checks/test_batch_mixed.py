"""Rows that are sampled differently: whose tokens are compared, and what is said of those that differ."""

from __future__ import annotations

import pytest

from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.core.types import Trace
from specverify.faults import engine
from tests.checks.engine_handmade import ScriptedEngine, result_of

CHECK = "batch.rows-keep-their-sampling"
FAULTS = {fault.name: fault for fault in engine.FAULTS}
BATCHES = (Capability.GENERATE, Capability.BATCH)
SEEDED = (*BATCHES, Capability.SEED)


def scripted(spoil, capabilities=BATCHES, **attributes):
    """An engine that spoils the tokens of a row where spoil(request, requests of its batch)."""

    def answer(requests, speculate):
        traces = []
        for request in requests:
            shift = 2 if spoil(request, requests) else 0
            length = len(request.prompt_token_ids)
            tokens = tuple((length + index + shift) % 20 + 4 for index in range(request.max_new_tokens))
            traces.append(Trace(request, tokens, speculated=speculate))
        return traces

    return ScriptedEngine(answer, capabilities=capabilities, **attributes)


def beside_greedy(request, requests):
    return not request.sampling.is_greedy and any(other.sampling.is_greedy for other in requests)


def beside_sampled(request, requests):
    return request.sampling.is_greedy and any(not other.sampling.is_greedy for other in requests)


@pytest.mark.parametrize(
    ("capabilities", "outcome"), [(SEEDED, Outcome.FAILED), (BATCHES, Outcome.PASSED)], ids=["seeds", "no seeds"]
)
def test_sampled_rows_are_judged_by_their_seeds(capabilities, outcome):
    """Without seeds nobody knows what a sampled row should have got."""
    assert outcome is result_of(CHECK, scripted(beside_greedy, capabilities, dtype="float64")).outcome


@pytest.mark.parametrize(("dtype", "outcome"), [("float64", Outcome.FAILED), ("float32", Outcome.PASSED)])
def test_greedy_rows_without_scores_are_judged_in_float64_only(dtype, outcome):
    """Elsewhere the difference may be a near tie, which nobody can see."""
    assert outcome is result_of(CHECK, scripted(beside_sampled, dtype=dtype)).outcome


def test_seeds_are_not_compared_where_rounding_decides():
    """In bfloat16 another batch shape may rightly flip a sampled token."""
    assert Outcome.PASSED is result_of(CHECK, scripted(beside_greedy, SEEDED, dtype="bfloat16")).outcome


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("batch-penalties-of-first-row", "as the first row of the batch asks"),
        ("batch-sampled-row-greedy", "one greedy row makes the whole batch greedy"),
    ],
)
def test_the_cause_fits_the_rows_that_are_right(fault, cause):
    """Which rows are right tells the two ways of losing a row's sampling apart."""
    (finding,) = result_of(CHECK, FAULTS[fault].make()).findings

    assert cause in finding.likely_cause
