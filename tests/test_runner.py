"""The runner turns whatever a subject does into one of five outcomes, and loses nothing."""

from __future__ import annotations

import pytest

from specverify.checks.registry import CheckContext, Exercised
from specverify.core.capabilities import Capability
from specverify.core.errors import UsageError
from specverify.core.outcomes import Kind, Outcome
from specverify.runner import run_checks
from tests.fakes import (
    FakeSubject,
    cannot_decide,
    crashes,
    fails,
    fake_check,
    finds_then_crashes,
    interrupts,
    passes,
)


def only(judge, subject=None, **settings):
    (result,) = run_checks(subject or FakeSubject(), checks=[fake_check(judge, **settings)]).results
    return result


def test_a_check_without_findings_passes_and_says_what_it_was_worth():
    """A pass carries its worth."""
    result = only(passes)

    assert result.outcome is Outcome.PASSED
    assert result.worth == "three steps seen"


def test_a_finding_fails():
    """One finding is enough."""
    assert only(fails).outcome is Outcome.FAILED


def test_an_undecided_check_says_why():
    """INCONCLUSIVE carries the reason."""
    result = only(cannot_decide)

    assert (result.outcome, result.reason) == (Outcome.INCONCLUSIVE, "nothing was drafted")


def test_a_pass_that_exercised_nothing_is_inconclusive():
    """A check that never met its situation has not passed."""
    result = only(passes, exercised_by=(Exercised("rejections", at_least=2),))

    assert result.outcome is Outcome.INCONCLUSIVE
    assert "saw 0 rejections; a pass needs 2" in result.reason


def test_a_missing_capability_is_named():
    """UNSUPPORTED says which capability and what it means."""
    result = only(passes, needs=(Capability.KV_ROWS,))

    assert result.outcome is Outcome.UNSUPPORTED
    assert "KV_ROWS" in result.reason


def test_a_crash_names_the_exception():
    """CRASHED names the exception and where it was raised."""
    result = only(crashes)

    assert result.outcome is Outcome.CRASHED
    assert "ValueError" in result.reason
    assert "fakes.py" in result.reason


def test_a_finding_before_a_crash_survives_it():
    """What was found before the engine died is not lost."""
    result = only(finds_then_crashes)

    assert result.outcome is Outcome.FAILED
    assert result.findings[0].headline == "Found before the crash."


def test_a_declared_lossy_subject_is_not_failed_for_it():
    """Losslessness is not claimed of a mode that is lossy by design."""
    result = only(fails, FakeSubject(lossy_by_design="typical acceptance"), check_id="lossless.fake-law")

    assert result.outcome is Outcome.UNSUPPORTED
    assert "typical acceptance" in result.reason


def test_an_interrupt_keeps_the_results_so_far():
    """Ctrl-C ends the run, not the report."""
    checks = [fake_check(passes, "fake.first"), fake_check(interrupts, "fake.second"), fake_check(passes, "fake.third")]

    report = run_checks(FakeSubject(), checks=checks)

    assert [result.check_id for result in report.results] == ["fake.first"]
    assert report.interrupted
    assert report.exit_status == 3


def test_the_alarm_budget_is_split_over_statistical_checks_before_sampling():
    """Each statistical check of each subject gets the same share; exact ones cost nothing."""
    seen = []

    def spend(subject, context: CheckContext):
        seen.append(context.alpha)
        yield from ()

    checks = [
        fake_check(spend, "fake.one", kind=Kind.STATISTICAL),
        fake_check(spend, "fake.two", kind=Kind.STATISTICAL),
        fake_check(passes, "fake.exact"),
    ]
    run_checks([FakeSubject("a"), FakeSubject("b")], checks=checks, alpha=1e-9)

    assert seen == pytest.approx([2.5e-10] * 4, rel=1e-12)


def test_the_same_seed_gives_the_same_streams():
    """A rerun of one check alone draws what it drew in the whole run."""
    drawn = []

    def draw(subject, context: CheckContext):
        drawn.append(context.streams.generator("fake", 1).random())
        yield from ()

    run_checks(FakeSubject(), checks=[fake_check(passes, "fake.first"), fake_check(draw, "fake.second")], seed=7)
    run_checks(FakeSubject(), checks=[fake_check(draw, "fake.second")], seed=7)
    run_checks(FakeSubject(), checks=[fake_check(draw, "fake.second")], seed=8)

    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [([passes], 0), ([passes, fails], 1), ([passes, cannot_decide], 3), ([passes, crashes], 4), ([fails, crashes], 1)],
)
def test_exit_status(outcomes, status):
    """0 passed, 1 a finding, 3 undecided, 4 crashed; a finding wins."""
    checks = [fake_check(judge, f"fake.{name}") for judge, name in zip(outcomes, ("one", "two"), strict=False)]

    assert run_checks(FakeSubject(), checks=checks).exit_status == status


def test_known_failures_are_strict_about_ids():
    """A known failure that names no check is a slip, and is refused."""
    with pytest.raises(UsageError, match=r"no check is called 'kv\.no-such-check'"):
        run_checks(FakeSubject(), checks=[fake_check(passes)], known_failures={"kv.no-such-check": "issue 1"})
