"""Requests without a seed: rows of a batch that draw alike, and what is no proof of it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.core.types import Trace
from specverify.faults import engine
from specverify.faults.engine_parts import probe_engine
from specverify.reference.subject import Parts
from tests.checks.engine_handmade import ScriptedEngine, result_of

CHECK = "random.rows-draw-apart"
FAULTS = {fault.name: fault for fault in engine.FAULTS}
CAPABILITIES = (Capability.GENERATE, Capability.BATCH, Capability.SAMPLING)
VOCABULARY = 20


def drawing(choose, *, capabilities=CAPABILITIES, nats=3.0, **statements):
    """An engine whose text is choose(call, row, place); each token has a log-probability of -nats."""
    calls = []

    def answer(requests, speculate):
        calls.append(len(calls))
        return [
            Trace(r, tuple(choose(calls[-1], row, i) for i in range(r.max_new_tokens)), speculated=True, **statements)
            for row, r in enumerate(requests)
        ]

    def score(prompt, tokens):
        return np.full((len(tokens), VOCABULARY), -nats)

    return ScriptedEngine(answer, capabilities=capabilities, score=score)


def number(*key):
    return random.Random(repr(key)).randrange(VOCABULARY)


def test_rows_that_draw_for_themselves_pass():
    """The pass line says that accept tests were not seen."""
    result = result_of(CHECK, drawing(number))

    assert Outcome.PASSED is result.outcome
    assert "accept tests not judged" in result.worth


def test_rows_of_one_text_a_call_fail():
    """Every call has a text of its own: no law need be known."""
    (finding,) = result_of(CHECK, drawing(lambda call, row, i: number(call, i))).findings

    assert finding.headline.startswith("63 of 63 rows")
    assert "the same random numbers" in finding.likely_cause


def test_a_few_tokens_that_rows_share_fail():
    """Every second row takes three of eight tokens from a source of the call."""
    subject = drawing(lambda call, row, i: number(call, i) if i % 3 == 1 and row % 2 else number(call, row, i))

    assert Outcome.FAILED is result_of(CHECK, subject).outcome


def test_rows_with_texts_of_their_own_in_every_call_pass():
    """Rows may follow laws of their own."""
    subject = drawing(lambda call, row, i: number(row, i) if i % 3 else number(call, row, i))

    assert Outcome.PASSED is result_of(CHECK, subject).outcome


@pytest.mark.parametrize(("more", "nats", "outcome"), [
    ((), 3.0, Outcome.INCONCLUSIVE),
    ((Capability.SCORE,), 0.001, Outcome.INCONCLUSIVE),
    ((Capability.SCORE,), 3.0, Outcome.FAILED),
])  # fmt: skip
def test_one_text_throughout_is_a_bug_only_where_it_is_known_to_be_unlikely(more, nats, outcome):
    """The law may leave no choice."""
    subject = drawing(lambda call, row, i: i, capabilities=(*CAPABILITIES, *more), nats=nats)

    assert outcome is result_of(CHECK, subject).outcome


@pytest.mark.parametrize(("choose", "statements", "reason"), [
    (lambda call, row, i: number(row, i), {}, "calls repeat each other"),
    (number, {"num_proposed": 0}, "nothing was drafted"),
])  # fmt: skip
def test_what_decides_nothing_is_inconclusive(choose, statements, reason):
    """Calls that start alike are the matter of seed.repeats."""
    result = result_of(CHECK, drawing(choose, **statements))

    assert Outcome.INCONCLUSIVE is result.outcome
    assert reason in result.reason


def test_tiny_batches_ask_for_more_effort():
    """Two rows make one bet a group of calls."""
    subject = drawing(number)
    subject.batch_size = 2

    result = result_of(CHECK, subject)

    assert Outcome.INCONCLUSIVE is result.outcome
    assert "--effort" in result.reason


@pytest.mark.parametrize("name", ["random-rows-share-accept-uniform", "random-one-default-seed"])
def test_faults_of_the_reference_engine_fail(name):
    """The first one changes no text: it is seen in the accept tests."""
    (finding,) = result_of(CHECK, FAULTS[name].make()).findings

    assert ("one uniform" if "accept" in name else "the same random numbers") in finding.likely_cause


class LearningDrafter:
    """Drafts well in every second call and poorly in the others, the same for all rows."""

    def start(self, batch, capacity):
        self.num_calls = getattr(self, "num_calls", 0) + 1
        super().start(batch, capacity)

    def draft_law(self, *args):
        law = super().draft_law(*args)
        return law if self.num_calls % 2 else 0.1 * law + 0.9 / law.shape[-1]


def test_a_drafter_that_changes_from_call_to_call_is_no_shared_noise():
    """All rows of a call accept more, or less: as their chances say."""
    subject = probe_engine("learning", parts=Parts(proposer_mixin=LearningDrafter), every_option=False)

    result = result_of(CHECK, subject)

    assert Outcome.PASSED is result.outcome
    assert result.figures["log_e"] < 3.0
