"""Engines that fall back to plain decoding, as some document: nothing is wrong with them, and little is shown."""

from __future__ import annotations

import pytest

from specverify.catalogue import all_checks
from specverify.core.outcomes import Outcome
from specverify.faults import engine
from specverify.faults.engine_parts import probe_engine
from specverify.reference.engine import ReferenceEngine
from specverify.reference.subject import Parts
from specverify.runner import run_checks
from tests.checks.engine_handmade import result_of

CHECK = "activity.drafts-and-rejections"
FAULTS = {fault.name: fault for fault in engine.FAULTS}
# Long samples of statistical checks; benchmarks/false_alarms.md runs those on correct engines.
LONG = ("lossless.", "acceptance.", "draft.", "random.")


class PlainWhenSampled(ReferenceEngine):
    """Drafts nothing for sampled requests."""

    def num_to_propose(self, running):
        return super().num_to_propose(running) if running.request.sampling.is_greedy else 0


class PlainUnderLoad(ReferenceEngine):
    """Drafts nothing while more than four requests run."""

    def drop_finished(self, batch, speculate):
        left = super().drop_finished(batch, speculate)
        self.num_running = left.num_rows
        return left

    def num_to_propose(self, running):
        return super().num_to_propose(running) if self.num_running <= 4 else 0


FALLBACKS = [(PlainWhenSampled, "in another run (greedy, self drafter)"), (PlainUnderLoad, "alone")]


@pytest.mark.parametrize(("part", "where"), FALLBACKS, ids=["sampled", "load"])
def test_an_engine_that_falls_back_is_inconclusive(part, where):
    """It drafts elsewhere: the reason says where."""
    result = result_of(CHECK, probe_engine("falls back", parts=Parts(engine_class=part), every_option=False))

    assert Outcome.INCONCLUSIVE is result.outcome
    assert where in result.reason


def test_an_engine_that_drafts_nowhere_fails():
    """Not for one request alone either."""
    assert Outcome.FAILED is result_of(CHECK, FAULTS["speculation-silently-off"].make()).outcome


@pytest.mark.parametrize("part", [part for part, _ in FALLBACKS], ids=["sampled", "load"])
def test_no_check_blames_an_engine_that_falls_back(part):
    """Its tokens are right; where nothing was drafted, nothing is decided."""
    subject = probe_engine("falls back", parts=Parts(engine_class=part), every_option=False)
    ids = [check.id for check in all_checks() if not check.id.startswith(LONG)]

    report = run_checks(subject, ids=ids, effort=0.05)

    wrong = (Outcome.FAILED, Outcome.CRASHED)
    assert [result.check_id for result in report.results if result.outcome in wrong] == []
