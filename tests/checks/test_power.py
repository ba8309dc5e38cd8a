"""A sample that could not have found even a gross fault is no pass, and the user is told what would decide it."""

from __future__ import annotations

import re

import pytest
from engine_handmade import Recorded, context_for
from engine_numpy import NumpyEngine

from specverify.checks import power
from specverify.checks.registry import Inconclusive
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.core.types import Request
from specverify.runner import run_checks
from specverify.stats.design import detectable_tv

TRACED = (Capability.TRACE, Capability.DRAFT_PROBS, Capability.TARGET_PROBS)
OF_TRACES = ("acceptance.matches-laws", "draft.declared-law-sampled", "random.draft-and-accept-independent")


def outcome_of(check_id, subject, effort=1.0):
    (result,) = run_checks(subject, ids=[check_id], effort=effort).results
    return result


def detectable(count):
    return detectable_tv(1e-9, count, 10)


def recorded(num_requests):
    """Sampled traces of a lossless engine, ten tokens each."""
    requests = [Request((1, 5, 6), 10, seed=seed, request_id=str(seed)) for seed in range(num_requests)]
    return Recorded(NumpyEngine(*TRACED).generate(requests, speculate=True), capabilities=TRACED, dtype="float64")


def test_enough_samples_return_what_they_would_have_caught():
    assert detectable(500) == power.require(context_for(), 500, detectable, things="steps")


def test_too_few_samples_name_the_number_that_decides():
    """The number is one that does decide, and the effort is enough for it."""
    with pytest.raises(Inconclusive, match=r"20 steps show nothing wrong.*about 120 of them decide it: --effort 6"):
        power.require(context_for(), 20, detectable, things="steps")

    assert detectable(120) <= power.GROSS_TV < detectable(90)


def test_a_capability_is_advised_only_where_it_is_lacking():
    unlocks = {Capability.BATCH: "2,048 pairs", Capability.SAMPLING: "fewer outputs"}
    subject = Recorded([], capabilities=[Capability.BATCH])

    with pytest.raises(Inconclusive) as raised:
        power.require(context_for(), 20, detectable, things="pairs", unlocks=unlocks, subject=subject)

    assert "declare SAMPLING (fewer outputs)" in str(raised.value)
    assert "BATCH" not in str(raised.value)


def test_the_limit_of_several_tokens_is_that_of_each():
    """Two tokens, each half right, are right together a quarter of the time."""
    assert power.gross_tv(2) == 0.75


@pytest.mark.parametrize("check_id", OF_TRACES)
def test_a_few_recorded_steps_decide_nothing(check_id):
    result = outcome_of(check_id, recorded(4))

    assert result.outcome is Outcome.INCONCLUSIVE, result
    assert "record more" in result.reason
    assert "caught" not in result.worth


@pytest.mark.parametrize("check_id", OF_TRACES)
def test_a_hundred_recorded_requests_decide(check_id):
    result = outcome_of(check_id, recorded(100))

    assert result.outcome is Outcome.PASSED, result


def test_pairs_of_many_different_outputs_decide_nothing():
    """256 pairs among hundreds of outputs: no gambler could have learned anything."""
    result = outcome_of("lossless.on-equals-off", NumpyEngine())

    assert result.outcome is Outcome.INCONCLUSIVE, result
    assert "declare BATCH (2,048 pairs in place of 256), or declare SAMPLING" in result.reason


def test_the_effort_that_is_advised_is_enough():
    """More pairs bring more different outputs: the advice allows for them."""
    engine = NumpyEngine()
    advised = re.search(r"--effort ([0-9.]+)", outcome_of("lossless.on-equals-off", engine).reason)

    result = outcome_of("lossless.on-equals-off", engine, effort=float(advised[1]))

    assert result.outcome is Outcome.PASSED, result


def test_pairs_of_few_outputs_decide():
    """With top-k there are 27 outputs at most, and 256 pairs are worth something."""
    result = outcome_of("lossless.on-equals-off", NumpyEngine(Capability.SAMPLING))

    assert result.outcome is Outcome.PASSED, result
