"""Settings that leave one token: what is a bug, what a near tie, and what an engine may mean by them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.core.types import Request, Trace
from tests.checks.engine_handmade import ScriptedEngine, result_of

CHECK = "lossless.one-token-left"
SAMPLING = (Capability.GENERATE, Capability.SAMPLING)


def engine(change, *, capabilities=SAMPLING, **attributes):
    """Speculative tokens are change(request, tokens), plain ones always the same."""
    seen: list[Request] = []

    def answer(requests: Sequence[Request], speculate: bool) -> list[Trace]:
        seen.extend(requests)
        texts = [tuple(range(4, 4 + request.max_new_tokens)) for request in requests]
        given = [change(request, text) if speculate else text for request, text in zip(requests, texts, strict=True)]
        return [Trace(r, tuple(text), speculated=speculate) for r, text in zip(requests, given, strict=True)]

    made = ScriptedEngine(answer, capabilities=capabilities, **attributes)
    made.seen = seen
    return made


def score(gap: float):
    """The token's successor comes this far behind it."""

    def scores(prompt: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
        rows = np.full((len(tokens), 32), -30.0)
        index = len(prompt) - 3
        for row in range(len(tokens)):
            rows[row, 4 + index + row] = -0.1
            rows[row, 5 + index + row] = -0.1 - gap
        return rows

    return scores


def only(temperature=None, top_k=None, token=5):
    def change(request: Request, text: tuple[int, ...]) -> tuple[int, ...]:
        sampling = request.sampling
        hit = (temperature is None or sampling.temperature == temperature) and (
            top_k is None or sampling.top_k == top_k
        )
        return (token, *text[1:]) if hit else text

    return change


def test_equal_tokens_pass_without_seeds_and_penalties_nobody_can_judge() -> None:
    subject = engine(lambda request, text: text)
    result = result_of(CHECK, subject)

    assert result.outcome is Outcome.PASSED
    assert all(request.seed is None and not request.sampling.has_penalties for request in subject.seen)
    assert "top-k 1" in result.worth


def test_another_token_is_a_finding_where_scores_say_that_it_is_no_tie() -> None:
    subject = engine(
        only(top_k=1),
        capabilities=(*SAMPLING, Capability.SCORE),
        score=score(2.0),
        prompts=((1, 2, 3),),
        dtype="float64",
    )

    result = result_of(CHECK, subject)
    assert result.outcome is Outcome.FAILED
    assert "request top-k 1/0" in " ".join(result.findings[0].where)


def test_near_the_best_logit_a_low_temperature_still_draws() -> None:
    near, far = (
        engine(
            only(temperature=0.01),
            capabilities=(*SAMPLING, Capability.SCORE),
            score=score(gap),
            prompts=((1, 2, 3),),
            dtype="float64",
        )
        for gap in (0.1, 1.0)
    )

    assert result_of(CHECK, near).outcome is Outcome.PASSED
    assert result_of(CHECK, far).outcome is Outcome.FAILED


def test_a_setting_under_which_plain_decoding_does_not_repeat_is_left_out() -> None:
    calls = iter(range(10_000))

    def answer(requests: Sequence[Request], speculate: bool) -> list[Trace]:
        shift = next(calls) % 2 if requests[0].sampling.top_p < 1.0 else 0
        return [Trace(r, tuple(range(4 + shift, 4 + shift + r.max_new_tokens)), speculated=speculate) for r in requests]

    result = result_of(CHECK, ScriptedEngine(answer, capabilities=SAMPLING))
    assert result.outcome is Outcome.PASSED
    assert "plain decoding does not repeat under top-p 0.000001" in result.worth


def test_a_setting_that_plain_decoding_refuses_is_left_out_and_one_that_speculation_refuses_is_not() -> None:
    def refusing(when_speculating: bool):
        def answer(requests: Sequence[Request], speculate: bool) -> list[Trace]:
            if requests[0].sampling.temperature > 2.0 and speculate >= when_speculating:
                raise ValueError("temperature must be at most 2")
            return [Trace(r, tuple(range(4, 4 + r.max_new_tokens)), speculated=speculate) for r in requests]

        return ScriptedEngine(answer, capabilities=SAMPLING, prompts=((1, 2, 3),))

    always, only_then = (result_of(CHECK, refusing(when)) for when in (False, True))
    assert always.outcome is Outcome.PASSED
    assert "plain decoding raises under top-k 1, hot" in always.worth
    assert only_then.outcome is Outcome.CRASHED
