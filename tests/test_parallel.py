"""Several cores find what one finds, and a process that dies costs its own checks only."""

from __future__ import annotations

import pytest

from specverify.core.outcomes import Outcome
from specverify.parallel import run_on_cores
from tests.fakes import FakeSubject, crashes, fails, fake_check, kills_the_process, passes

CHECKS = [
    fake_check(passes, "fake.first"),
    fake_check(fails, "fake.second", runs_alone=True),
    fake_check(crashes, "fake.third"),
]


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order_whatever_the_number_of_jobs(jobs):
    """Subjects in order, checks in order."""
    report = run_on_cores([FakeSubject("a"), FakeSubject("b")], CHECKS, jobs=jobs, alpha=1e-9)

    assert [(result.subject, result.check_id) for result in report.results] == [
        (subject, check) for subject in "ab" for check in ("fake.first", "fake.second", "fake.third")
    ]
    assert [result.outcome for result in report.results[:3]] == [Outcome.PASSED, Outcome.FAILED, Outcome.CRASHED]


def test_an_engine_that_kills_its_process_loses_only_what_it_never_reached():
    """Results before the death stand; the check that died is named, those after it say so."""
    checks = [
        fake_check(passes, "fake.before"),
        fake_check(kills_the_process, "fake.killer"),
        fake_check(passes, "fake.later"),
        fake_check(passes, "fake.elsewhere", runs_alone=True),
    ]

    report = run_on_cores([FakeSubject()], checks, jobs=2, alpha=1e-9)

    outcomes = {result.check_id: result for result in report.results}
    assert outcomes["fake.before"].outcome is Outcome.PASSED
    assert outcomes["fake.elsewhere"].outcome is Outcome.PASSED
    assert "SIGKILL" in outcomes["fake.killer"].reason
    assert "during fake.killer, before this check was run" in outcomes["fake.later"].reason
    assert report.exit_status == 4
