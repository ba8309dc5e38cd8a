"""Traces and engines made by hand: every number in them is chosen by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from specverify.checks.registry import CheckContext, registered
from specverify.core.capabilities import Capability
from specverify.core.outcomes import CheckResult
from specverify.core.randomness import Streams
from specverify.core.types import Request, SamplingParams, Step, Trace
from specverify.runner import run_checks

GREEDY = SamplingParams(temperature=0.0)
PROMPT = (1, 5, 6, 7)


class Recorded:
    """A recorded subject: traces and nothing to run."""

    def __init__(self, traces: Iterable[Trace], *, capabilities: Iterable[Capability], **attributes: Any) -> None:
        self.name = "recorded"
        self.traces = tuple(traces)
        self.capabilities = frozenset(capabilities)
        self.__dict__.update(attributes)


class ScriptedEngine:
    """An engine whose answers are a function of (requests, speculate)."""

    def __init__(
        self,
        answer: Callable[[Sequence[Request], bool], Sequence[Trace]],
        *,
        capabilities: Iterable[Capability] = (Capability.GENERATE,),
        **attributes: Any,
    ) -> None:
        self.name = "scripted"
        self._answer = answer
        self.capabilities = frozenset(capabilities)
        self.__dict__.update(attributes)

    def generate(self, requests: Sequence[Request], *, speculate: bool) -> Sequence[Trace]:
        return self._answer(requests, speculate)


def honest_trace(
    accepted: Sequence[int],
    *,
    num_draft_tokens: int = 3,
    prompt: tuple[int, ...] = PROMPT,
    request_id: str = "0",
    sampling: SamplingParams = GREEDY,
) -> Trace:
    """A trace in which step i accepts accepted[i] of its draft tokens; every record is as it must be.

    Committed token at position n is n % 23 + 4; a rejected draft token is that plus one.
    """
    position = len(prompt) + 1
    first = position
    steps = []
    draft_rows = 0
    for index, num_accepted in enumerate(accepted):
        right = [text_token(position + i) for i in range(num_draft_tokens + 1)]
        draft = tuple(
            token if i < num_accepted else wrong_token(position + i) for i, token in enumerate(right[:num_draft_tokens])
        )
        last_position = position + num_draft_tokens - 1
        steps.append(
            Step(
                index=index,
                start_position=position,
                draft_token_ids=draft,
                token_ids=tuple(right[: num_accepted + 1]),
                num_accepted=num_accepted,
                target_kv_length_after=position + num_accepted,
                draft_kv_length_after=min(position + num_accepted, last_position),
                target_positions=tuple(range(position - 1, last_position + 1)),
                draft_positions=tuple(range(draft_rows, last_position)),
            )
        )
        draft_rows = min(position + num_accepted, last_position)
        position += num_accepted + 1
    new_tokens = tuple(text_token(p) for p in range(first - 1, position))
    request = Request(prompt, max_new_tokens=len(new_tokens), sampling=sampling, request_id=request_id)
    return Trace(request, new_tokens, tuple(steps), draft_kv_lag=1)


def text_token(position: int) -> int:
    return position % 23 + 4


def wrong_token(position: int) -> int:
    return text_token(position) + 1


def edited(trace: Trace, index: int, **changes: Any) -> Trace:
    """The trace with some fields of one step changed."""
    steps = list(trace.steps)
    steps[index] = replace(steps[index], **changes)
    return replace(trace, steps=tuple(steps))


def result_of(check_id: str, subject: Any) -> CheckResult:
    """How one check ends on one subject."""
    (result,) = run_checks(subject, ids=[check_id]).results
    return result


def context_for(alpha: float = 1e-9) -> CheckContext:
    return CheckContext(alpha=alpha, streams=Streams(0))


def claim_of(check_id: str) -> str:
    return registered()[check_id].claim
