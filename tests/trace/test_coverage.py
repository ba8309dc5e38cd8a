"""Coverage counts what happened in the steps."""

from __future__ import annotations

from dataclasses import replace

from specverify.core.types import Step
from specverify.trace import coverage
from tests.trace.made import changed, trace


def test_counts_of_a_trace_made_by_hand() -> None:
    """Two steps: one of two accepted; both accepted, cut by the limit."""
    assert coverage([trace()]) == {
        "steps": 2,
        "proposed": 4,
        "accepted": 3,
        "rejections": 1,
        "full-accepts": 1,
        "accepted-1": 1,
        "accepted-2": 1,
        "limit-inside-draft": 1,
    }


def test_cut_at_an_end_token_is_not_a_cut_at_the_limit() -> None:
    """The last token kept says which."""
    counts = coverage([changed(1, token_ids=(9,))])

    assert (counts["eos-inside-draft"], counts["limit-inside-draft"]) == (1, 0)


def test_empty_draft_is_neither_rejection_nor_full_accept() -> None:
    """Nothing was proposed, so nothing was accepted or rejected."""
    empty = replace(trace(), steps=(Step(0, 3, (), (1,), 0),))

    assert coverage([empty]) == {"steps": 1, "proposed": 0, "accepted": 0, "empty-drafts": 1}


def test_traces_add_up() -> None:
    """Coverage of several traces is the sum."""
    assert coverage([trace(), trace(2)])["steps"] == 4
