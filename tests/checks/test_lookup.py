"""Drafts that are looked up: every choice that an engine may make, and what no choice explains."""

from __future__ import annotations

import pytest

from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.core.types import Request, Step, Trace
from specverify.faults import engine
from specverify.faults.engine_parts import probe_engine
from tests.checks.engine_handmade import GREEDY, Recorded, result_of

CHECK = "draft.lookup-continues-text"
FAULTS = {fault.name: fault for fault in engine.FAULTS}


def result_for(text, draft):
    """How the check ends on one step that drafts these tokens behind this text."""
    step = Step(0, len(text), tuple(draft), (4,), 0)
    trace = Trace(Request(tuple(text[:-1]), 8, GREEDY), (text[-1], 4), (step,))
    return result_of(CHECK, Recorded([trace], capabilities=(Capability.TRACE, Capability.PROMPT_LOOKUP)))


@pytest.mark.parametrize(
    ("text", "draft"),
    [
        ((1, 5, 6, 7, 5), (6, 7)),
        ((1, 5, 6, 7, 5, 8, 5), (6, 7)),
        ((1, 5, 6, 7, 5, 8, 5), (8, 5)),
        ((1, 5, 6, 7, 5), (6,)),
        ((1, 5, 6, 5), (6, 5, 6, 5)),
        ((1, 5, 5), (5, 5, 5)),
    ],
    ids=["first", "longer way back", "latest", "short", "goes round", "one token again and again"],
)
def test_every_choice_of_an_occurrence_passes(text, draft):
    """First or latest, short or long, and beyond the text's own end."""
    assert Outcome.PASSED is result_for(text, draft).outcome


@pytest.mark.parametrize(
    ("text", "draft"), [((1, 5, 6, 7, 5), (7, 5)), ((1, 5, 6, 7, 5), (6, 8)), ((1, 5, 6, 7, 8), (5,))]
)
def test_what_followed_nowhere_fails(text, draft):
    """One token too late, another token, and an end that is new."""
    assert Outcome.FAILED is result_for(text, draft).outcome


@pytest.mark.parametrize(
    ("fault", "cause"),
    [("lookup-one-too-late", "one token too late"), ("lookup-lags-a-step", "lacks the tokens of the last step")],
)
def test_the_cause_is_recognised(fault, cause):
    """It explains every wrong draft of the runs."""
    (finding,) = result_of(CHECK, FAULTS[fault].make()).findings

    assert cause in finding.likely_cause


def test_only_an_engine_that_says_so_looks_up():
    """The drafts of a model follow no such rule."""
    assert Outcome.UNSUPPORTED is result_of(CHECK, probe_engine("usual", every_option=False)).outcome
