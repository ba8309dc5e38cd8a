"""Where sampled rows end: counted, whatever was drawn."""

from __future__ import annotations

import pytest

from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.core.types import Trace
from specverify.faults import engine
from tests.checks.engine_handmade import ScriptedEngine, result_of

CHECK = "tokens.sampled-rows-end"
CAPABILITIES = (Capability.GENERATE, Capability.BATCH, Capability.STOP)
FAULTS = {fault.name: fault for fault in engine.FAULTS}


def ending(spoil, **attributes):
    """An engine that counts on from its prompt and ends where it must; sampled outputs are spoiled afterwards."""

    def answer(requests, speculate):
        traces = []
        for index, request in enumerate(requests):
            start = len(request.prompt_token_ids) + index
            tokens = [(start + i) % 20 + 4 for i in range(request.max_new_tokens)]
            ends = [i + 1 for i, token in enumerate(tokens) if token in request.eos_token_ids]
            kept = tokens[: ends[0] if ends else None]
            is_spoiled = not request.sampling.is_greedy
            traces.append(Trace(request, tuple(spoil(kept, request) if is_spoiled else kept), speculated=speculate))
        return traces

    return ScriptedEngine(answer, capabilities=CAPABILITIES, **attributes)


@pytest.mark.parametrize(
    ("spoil", "outcome"),
    [
        (lambda tokens, request: tokens, Outcome.PASSED),
        (lambda tokens, request: [*tokens, 5], Outcome.FAILED),
        (lambda tokens, request: tokens[:-1] if len(tokens) > 1 else tokens, Outcome.FAILED),
        (lambda tokens, request: tokens if request.eos_token_ids else [], Outcome.FAILED),
    ],
    ids=["right", "one too many", "one too few", "empty where no end token is named"],
)
def test_an_output_ends_at_its_end_token_or_its_limit(spoil, outcome):
    """Neither later nor sooner."""
    assert outcome is result_of(CHECK, ending(spoil)).outcome


def test_the_checkpoints_own_end_token_may_end_an_output():
    """Some engines end there although the request does not name it."""

    class Checkpoint:
        eos_token_id = 3

    def ends_itself(tokens, request):
        return [*tokens[:-1], 3] if request.max_new_tokens in (2, 3) else tokens

    assert Outcome.PASSED is result_of(CHECK, ending(ends_itself, checkpoint=Checkpoint())).outcome


@pytest.mark.parametrize(
    ("fault", "cause"),
    [("limit-overshot-when-sampled", "whole accepted block"), ("eos-first-token-missed", "first token")],
)
def test_the_cause_is_recognised(fault, cause):
    """It explains every row that is wrong."""
    (finding,) = result_of(CHECK, FAULTS[fault].make()).findings

    assert cause in finding.likely_cause
