"""Turns of a conversation: what is asked, and when nothing can be said."""

from __future__ import annotations

import itertools
from dataclasses import replace

from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.faults import engine
from specverify.faults.engine_parts import probe_engine
from tests.checks.engine_handmade import ScriptedEngine, result_of

CHECK = "kv.next-turn-right"
FAULTS = {fault.name: fault for fault in engine.FAULTS}


class Listening:
    """An engine that notes its calls; without capabilities that are taken away."""

    def __init__(self, subject, *missing):
        self._subject = subject
        self.capabilities = frozenset(subject.capabilities) - set(missing)
        self.calls = []

    def __getattr__(self, name):
        return getattr(self._subject, name)

    def quiet(self):
        return self

    def generate(self, requests, *, speculate):
        traces = self._subject.generate(requests, speculate=speculate)
        self.calls.append((speculate, list(traces)))
        return traces


def test_every_turn_holds_the_turn_before_and_its_answer():
    """With speculation, with, without and with it again; some answers end at an end token."""
    subject = Listening(probe_engine("usual", every_option=False))

    assert Outcome.PASSED is result_of(CHECK, subject).outcome

    turns = subject.calls[-4:]
    assert [speculate for speculate, _ in turns] == [True, True, False, True]
    for (_, before), (_, after) in itertools.pairwise(turns):
        for one, two in zip(before, after, strict=True):
            text = (*one.request.prompt_token_ids, *one.token_ids)
            assert text == two.request.prompt_token_ids[: len(text)]
    assert {"eos", "length"} == {trace.finish_reason for _, turn in turns for trace in turn}


def test_an_engine_without_batches_and_end_tokens_is_judged_too():
    """One call for each request, and answers that end at their limit."""
    subject = Listening(FAULTS["prefix-cache-keeps-rejected"].make(), Capability.BATCH, Capability.STOP)

    assert Outcome.FAILED is result_of(CHECK, subject).outcome
    assert all(len(traces) == 1 and not traces[0].request.eos_token_ids for _, traces in subject.calls[-6:])


def test_an_engine_that_is_wrong_already_is_not_judged():
    """What is wrong without any earlier call is no matter of the cache between calls."""
    result = result_of(CHECK, FAULTS["kv-not-rolled-back"].make())

    assert Outcome.INCONCLUSIVE is result.outcome
    assert "already" in result.reason


def test_an_engine_that_is_wrong_in_the_first_turn_is_not_judged():
    """Nothing was left by an earlier call that this prompt goes on from."""
    usual = probe_engine("usual", every_option=False)

    def answer(requests, speculate):
        traces = usual.generate(requests, speculate=speculate)
        is_conversation = requests[0].request_id.startswith("conversation")
        return [replace(trace, token_ids=(4, 4)) for trace in traces] if is_conversation else traces

    can = (Capability.GENERATE, Capability.LOAD_CHECKPOINT)
    subject = ScriptedEngine(answer, capabilities=can, checkpoint=usual.checkpoint, dtype="float64")

    assert "first turn" in result_of(CHECK, subject).reason
