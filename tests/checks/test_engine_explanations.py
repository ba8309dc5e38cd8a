"""What is a bug and what is an explanation: near ties, missing scores, unrepeatable engines, one-token supports."""

from __future__ import annotations

import numpy as np
import pytest
from engine_handmade import ScriptedEngine, result_of

from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.core.types import Trace

NUM_TOKENS = 12
VOCAB = 16
SCORED = (Capability.GENERATE, Capability.SCORE)


def text(request, *, changed=()):
    """Greedy tokens of a made-up model: the token at new position i is i + 2, but at the places that are changed."""
    tokens = [i + 2 for i in range(request.max_new_tokens)]
    for place, token in changed:
        tokens[place] = token
    return tuple(tokens)


def engine(*, changed=(), margin=1.0, scored=True, **attributes):
    """An engine whose speculation changes some tokens; its scores put token 1 `margin` below the right token."""

    def answer(requests, speculate):
        return [Trace(r, text(r, changed=changed if speculate else ()), speculated=speculate) for r in requests]

    made = ScriptedEngine(
        answer,
        capabilities=SCORED if scored else SCORED[:1],
        prompts=((1, 2, 3), (1, 4)),
        max_new_tokens=NUM_TOKENS,
        **attributes,
    )

    def score(prompt, tokens):
        first = len(prompt) - (3 if prompt[:3] == (1, 2, 3) else 2)
        rows = np.full((len(tokens), VOCAB), -20.0)
        for index in range(len(tokens)):
            rows[index, min(first + index + 2, VOCAB - 1)] = -0.7
            rows[index, 1] = -0.7 - margin
        return rows

    made.score = score
    return made


def test_equal_outputs_pass():
    """Nothing to explain."""
    assert result_of("greedy.on-equals-off", engine(dtype="float64")).outcome is Outcome.PASSED


def test_a_token_far_below_the_best_one_is_a_bug():
    """The margin is printed beside what rounding explains."""
    result = result_of("greedy.on-equals-off", engine(changed=[(5, 1)], margin=2.0, dtype="float32"))

    assert result.outcome is Outcome.FAILED
    assert "new token 5" in result.findings[0].headline
    assert "2 below the best one" in result.findings[0].not_noise


def test_a_near_tie_is_explained():
    """Both tokens are as good as the best one, within rounding: not a bug, and the pass line says so."""
    result = result_of("greedy.on-equals-off", engine(changed=[(5, 1)], margin=1e-5, dtype="float32"))

    assert result.outcome is Outcome.PASSED
    assert "near ties" in result.worth


def test_without_steps_nobody_knows_where_a_token_came_from():
    """The engine records no steps: neither prefill nor a draft may be named, nor rejections counted."""
    (finding,) = result_of("greedy.on-equals-off", engine(changed=[(5, 1)], margin=2.0, dtype="float32")).findings
    passed = result_of("greedy.on-equals-off", engine(dtype="float64"))

    assert "It came from a step that is not recorded." in finding.where
    assert "rejections not recorded" in passed.worth


def test_without_steps_nobody_knows_what_fell_inside_a_draft():
    limits = result_of("tokens.at-most-max-tokens", engine())

    assert limits.outcome is Outcome.PASSED
    assert "whether inside a draft is not recorded" in limits.worth


def test_end_tokens_without_steps_are_counted_and_no_more():
    def answer(requests, speculate):
        texts = {r: text(r) for r in requests}
        ends = {r: min((t.index(e) for e in r.eos_token_ids if e in t), default=len(t)) for r, t in texts.items()}
        return [Trace(r, texts[r][: ends[r] + 1], speculated=speculate) for r in requests]

    capabilities = (Capability.GENERATE, Capability.STOP)
    result = result_of("tokens.eos-ends-output", ScriptedEngine(answer, capabilities=capabilities, max_new_tokens=6))

    assert result.outcome is Outcome.PASSED, result
    assert "whether inside a draft is not recorded" in result.worth


def test_the_same_margin_is_a_bug_in_float64():
    """The noise floor follows the dtype."""
    result = result_of("greedy.on-equals-off", engine(changed=[(5, 1)], margin=1e-5, dtype="float64"))

    assert result.outcome is Outcome.FAILED


def test_without_scores_a_rare_divergence_is_inconclusive():
    """Nobody can tell a near tie from a bug, so nobody is blamed."""
    result = result_of("greedy.on-equals-off", engine(changed=[(NUM_TOKENS - 1, 1)], scored=False))

    assert result.outcome is Outcome.INCONCLUSIVE
    assert "SCORE" in result.reason


def test_an_output_that_ends_early_is_never_a_near_tie():
    """One output stops where the other goes on."""

    def answer(requests, speculate):
        return [Trace(r, text(r)[: 4 if speculate else None], speculated=speculate) for r in requests]

    result = result_of("greedy.on-equals-off", ScriptedEngine(answer, max_new_tokens=NUM_TOKENS))

    assert result.outcome is Outcome.FAILED
    assert "the end with speculation" in result.findings[0].headline


def test_plain_decoding_that_does_not_repeat_is_no_yardstick():
    """If off differs from off, on cannot be held against it."""
    calls = iter(range(1000))

    def answer(requests, speculate):
        turn = next(calls)
        return [Trace(r, tuple((turn + i) % 7 for i in range(NUM_TOKENS)), speculated=speculate) for r in requests]

    result = result_of("greedy.on-equals-off", ScriptedEngine(answer, max_new_tokens=NUM_TOKENS))

    assert result.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("surplus", [1, 3])
def test_an_overshot_limit_is_found(surplus):
    """One token more than asked for is one too many."""

    def answer(requests, speculate):
        return [Trace(r, tuple(range(r.max_new_tokens + surplus)), speculated=speculate) for r in requests]

    result = result_of("tokens.at-most-max-tokens", ScriptedEngine(answer))

    assert result.outcome is Outcome.FAILED
    assert f"gave {1 + surplus} tokens" in result.findings[0].headline


def test_an_end_token_may_stop_a_request_early():
    """Fewer tokens than asked for are right where the last one is an end token."""

    def answer(requests, speculate):
        return [Trace(r, (4, 2)[: r.max_new_tokens], speculated=speculate, finish_reason="eos") for r in requests]

    assert result_of("tokens.at-most-max-tokens", ScriptedEngine(answer)).outcome is Outcome.PASSED


def test_an_engine_that_reports_no_counts_leaves_activity_open():
    """Neither steps nor counts: nobody knows whether anything was drafted."""
    result = result_of("activity.drafts-and-rejections", engine())

    assert result.outcome is Outcome.INCONCLUSIVE
    assert "num_proposed" in result.reason


def test_counts_without_steps_are_enough_for_activity():
    """A black box that tells how much it drafted and accepted."""

    def answer(requests, speculate):
        return [Trace(r, text(r), speculated=speculate, num_proposed=9, num_accepted=4) for r in requests]

    made = ScriptedEngine(answer, max_new_tokens=NUM_TOKENS)

    assert result_of("activity.drafts-and-rejections", made).outcome is Outcome.PASSED


def test_an_adapter_that_loses_a_trace_is_told_so():
    """The engine crashed, as far as anybody can tell; it is no finding."""
    made = ScriptedEngine(lambda requests, speculate: [], max_new_tokens=NUM_TOKENS)

    result = result_of("greedy.on-equals-off", made)

    assert result.outcome is Outcome.CRASHED
    assert "one per request" in result.reason
