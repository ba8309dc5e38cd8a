"""Unusual requests: what is a bug, what cannot be told, and what an engine may refuse."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.core.types import Request, Trace
from tests.checks.engine_handmade import ScriptedEngine, result_of

CHECK = "greedy.unusual-requests"
BATCHES = (Capability.GENERATE, Capability.BATCH)


def tokens_of(request: Request) -> tuple[int, ...]:
    return tuple((len(request.prompt_token_ids) + index) % 20 + 4 for index in range(request.max_new_tokens))


def answering(change):
    """An engine whose speculative tokens are change(request, tokens)."""

    def answer(requests: Sequence[Request], speculate: bool) -> list[Trace]:
        texts = [tokens_of(request) for request in requests]
        changed = [change(request, text) for request, text in zip(requests, texts, strict=True)] if speculate else texts
        return [Trace(r, tuple(text), speculated=speculate) for r, text in zip(requests, changed, strict=True)]

    return answer


def score(prompt: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
    """Scores under which the right token is far ahead, and its successor a near tie."""
    rows = np.full((len(tokens), 32), -20.0)
    for index in range(len(tokens)):
        right = (len(prompt) + index) % 20 + 4
        rows[index, right], rows[index, right + 1] = -0.7, -0.7 - 1e-7
    return rows


def scored(answer, **attributes):
    return ScriptedEngine(answer, capabilities=(*BATCHES, Capability.SCORE), score=score, **attributes)


def test_equal_tokens_pass_and_every_request_has_an_id_of_its_own() -> None:
    sizes: list[int] = []

    def answer(requests: Sequence[Request], speculate: bool) -> list[Trace]:
        sizes.append(len(requests))
        assert len({request.request_id for request in requests}) == len(requests)
        return [Trace(request, tokens_of(request), speculated=speculate) for request in requests]

    result = result_of(CHECK, ScriptedEngine(answer, capabilities=BATCHES, max_positions=512))

    assert result.outcome is Outcome.PASSED
    assert max(sizes) == 200
    assert "200 tokens" in result.worth


@pytest.mark.parametrize("change", [lambda r, t: t[:1], lambda r, t: (), lambda r, t: (*t, 5, 6)])
def test_an_output_that_ends_elsewhere_fails(change) -> None:
    assert result_of(CHECK, ScriptedEngine(answering(change), capabilities=BATCHES)).outcome is Outcome.FAILED
    assert result_of(CHECK, scored(answering(change))).outcome is Outcome.FAILED


def test_many_other_tokens_fail_without_scores_and_few_are_inconclusive() -> None:
    everywhere = answering(lambda request, tokens: [token + 2 for token in tokens])
    once = answering(lambda r, tokens: [tokens[0] + 2, *tokens[1:]] if r.request_id == "crowd/7" else tokens)

    assert result_of(CHECK, ScriptedEngine(everywhere, capabilities=BATCHES)).outcome is Outcome.FAILED
    assert result_of(CHECK, ScriptedEngine(once, capabilities=BATCHES)).outcome is Outcome.INCONCLUSIVE
    assert result_of(CHECK, scored(once)).outcome is Outcome.FAILED


def test_near_ties_are_explained_and_counted() -> None:
    near = answering(lambda r, tokens: [tokens[0] + 1, *tokens[1:]] if r.request_id == "crowd/7" else tokens)

    result = result_of(CHECK, scored(near, dtype="float32"))

    assert result.outcome is Outcome.PASSED
    assert "1 near ties" in result.worth


def test_what_an_engine_says_of_its_limits_is_kept() -> None:
    def answer(requests: Sequence[Request], speculate: bool) -> list[Trace]:
        assert len(requests) <= 8
        for request in requests:
            if len(request.prompt_token_ids) < 3:
                raise ValueError("a prompt needs three tokens")
            assert len(request.prompt_token_ids) + request.max_new_tokens <= 64
        return [Trace(request, tokens_of(request), speculated=speculate) for request in requests]

    result = result_of(CHECK, ScriptedEngine(answer, capabilities=BATCHES, batch_size=8, max_positions=64))

    assert result.outcome is Outcome.PASSED
    assert result.worth.endswith("; a text that takes all 64 positions")  # nothing else unusual is left to ask for


def test_the_last_position_may_be_refused_and_is_not_lost_silently() -> None:
    """An engine that needs room for drafts may say so; one that gives fewer tokens is wrong."""
    longest = 256

    def is_full(request: Request) -> bool:
        return len(request.prompt_token_ids) + request.max_new_tokens == longest

    def refusing(requests: Sequence[Request], speculate: bool) -> list[Trace]:
        if speculate and is_full(requests[0]):
            raise ValueError("no room for drafts")
        return [Trace(request, tokens_of(request), speculated=speculate) for request in requests]

    cut_short = answering(lambda request, tokens: tokens[:-2] if is_full(request) else tokens)
    refused, short, whole = (
        result_of(CHECK, ScriptedEngine(answer, capabilities=BATCHES, max_positions=longest))
        for answer in (refusing, cut_short, answering(lambda request, tokens: tokens))
    )

    assert refused.outcome is whole.outcome is Outcome.PASSED
    assert "refused: a text that takes all 256 positions" in refused.worth
    assert short.outcome is Outcome.FAILED


def test_prompts_of_one_token_only() -> None:
    engine = ScriptedEngine(answering(lambda request, tokens: tokens), prompts=((1,), (5,)))

    assert result_of(CHECK, engine).outcome is Outcome.PASSED
