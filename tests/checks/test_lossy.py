"""Declared lossiness: certified from few tokens, judged against what the engine claims."""

import pytest

from specverify.core.outcomes import Outcome
from specverify.faults.engine_parts import DeclaredLossy, probe_engine
from specverify.faults.engine_rules import MixesDraftIn
from specverify.reference.subject import Parts
from specverify.runner import run_checks


def judged(distance):
    """An engine that verifies against seven tenths of the target and three of the draft: about .12 from the target."""
    engine = probe_engine("mixes", parts=Parts(engine_class=MixesDraftIn))
    subject = DeclaredLossy(engine, reason="mixes the draft in", distance=distance)
    return run_checks(subject, ids=["lossy.declared-distance"], seed=3).results[0]


@pytest.fixture(scope="module")
def without_a_claim():
    return judged(None)


def test_half_of_the_distance_is_certified_from_a_few_thousand_tokens(without_a_claim):
    """Enough is proven to say how lossy it is; the rest would take four times the tokens and more."""
    figures = without_a_claim.figures

    assert without_a_claim.outcome is Outcome.PASSED
    assert 0.5 * figures["observed_tv"] < figures["certified_tv"] < 0.13
    assert figures["num_tokens"] < 8_000


def test_the_pass_line_says_what_was_certified_where(without_a_claim):
    """A distance means something at the temperature it was measured at."""
    assert "certified total variation" in without_a_claim.worth
    assert f"at temperature {without_a_claim.figures['temperature']:g}" in without_a_claim.worth


def test_a_claim_that_looks_untrue_is_followed_until_it_falls():
    """A claim of .07 is above half of what shows and below all of it: it takes more tokens, and is refuted."""
    result = judged(0.07)

    assert result.outcome is Outcome.FAILED
    assert result.figures["certified_tv"] > 0.07


def test_a_claim_that_holds_stops_as_early_as_no_claim(without_a_claim):
    """Three tenths of the draft can be no further away than three tenths."""
    result = judged(0.3)

    assert result.outcome is Outcome.PASSED
    assert result.figures["num_tokens"] == without_a_claim.figures["num_tokens"]
