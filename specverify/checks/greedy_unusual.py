"""Greedy decoding away from the beaten track: very short and long texts, crowds, and calls that share a prefix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specverify.checks import evidence, noise, wording
from specverify.checks.evidence import GREEDY, Run
from specverify.checks.greedy import Divergence, finding_of, first_divergence, with_margins
from specverify.checks.registry import CheckContext, Exercised, check
from specverify.checks.samples import Scorer
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.types import Request

# Block and chunk sizes are powers of two, mostly up to 256: a long text goes past that, its prompt past half of it.
_LONG_PROMPT, _LONG_OUTPUT = 150, 130
# Rows that finish while at least 128 others go on.
_CROWD, _PART_OF_CROWD = 200, 16
_SHARED_PREFIX = 24
# Left free at the end of the model's positions, for drafts.
_SPARE_POSITIONS = 16


@dataclass(frozen=True)
class _Situation:
    """One or more generate calls in turn. apart: how many requests the calls without speculation take at a time."""

    name: str
    calls: Sequence[Sequence[Request]]
    apart: int = 1


@check(
    "greedy.unusual-requests",
    claim="At temperature 0 speculation changes no token of very short and long texts, in crowds, after other calls.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE},
    exercised_by=(Exercised("tokens"),),
    catches=(
        "position-stops-at-256",
        "kv-one-token-prompt-not-rolled-back",
        "kv-chunked-prompt-overlaps",
        "batch-crowd-lanes-mixed",
        "prefix-cache-by-length",
    ),
    source="NVIDIA/TensorRT-LLM#8076, on long prompts only; huggingface/text-generation-inference#1411, in crowds only",
)
def unusual_requests(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Token for token, in situations that the standard prompts never meet.

    Prompts of one and two tokens; a prompt and an output that together go past 256 tokens; 200 requests at once, which
    end at different times; calls in turn whose prompts share their beginning, their end or only their length.
    Divergences are explained as in greedy.on-equals-off. Where nobody knows the scores, a divergence proves nothing.

    A cache that outlives a call misleads plain decoding as well. So where the probe's oracle knows the target's law,
    the calls in turn are also held against it.
    """
    tolerance = 2.0 * noise.log_prob_noise(subject, context)
    situations = list(_situations(subject, context))
    runs: list[Run] = []
    for index, situation in enumerate(situations):
        context.progress(situation.name, index, len(situations))
        runs.append(_run(subject, situation))
        bugs = [
            divergence
            for divergence in _divergences(subject, situation, runs[-1], context)
            if not divergence.is_near_tie(tolerance) and divergence.on_margin is not None
        ]
        if bugs:
            worst = min(bugs, key=lambda item: item.token_index)
            found = finding_of(worst, bugs, tolerance, context)
            yield replace(found, where=(f"Situation: {situation.name}.", *found.where))
            return
        if len(situation.calls) > 1 and (departure := _departure(subject, situation, runs[-1], tolerance)):
            yield departure
            return
    names = ", ".join(situation.name for situation in situations)
    context.worth(f"{context.counters['tokens']:,} tokens equal; {names}")


def _situations(subject: Any, context: CheckContext) -> Iterator[_Situation]:
    prompts = evidence.standard_prompts(subject, context)
    words = [token for prompt in prompts for token in prompt[1:]]
    first = prompts[0][0]
    num_tokens = min(16, evidence.new_tokens(subject))

    def text(length: int, shift: int = 0) -> tuple[int, ...]:
        return (first, *(words[(shift + index) % len(words)] for index in range(length - 1)))

    def request(prompt: tuple[int, ...], length: int = num_tokens) -> Request:
        return Request(prompt, length, GREEDY)

    yield _Situation("prompts of one and two tokens", [[request(text(1))], [request(text(2))]])
    if getattr(subject, "is_slow", False):
        return
    room = int(getattr(getattr(subject, "checkpoint", None), "max_positions", 0)) - _SPARE_POSITIONS
    if room >= _LONG_PROMPT + _LONG_OUTPUT:
        name = f"a prompt of {_LONG_PROMPT} tokens and {_LONG_OUTPUT} new ones"
        yield _Situation(name, [[request(text(_LONG_PROMPT), _LONG_OUTPUT)]])
    if Capability.BATCH in subject.capabilities:
        crowd = [request(text(2 + index % 7, shift=index), 3 + index % 4) for index in range(_CROWD)]
        yield _Situation(f"{_CROWD} requests at once", [crowd], apart=_PART_OF_CROWD)
    begin, other = text(_SHARED_PREFIX), text(_SHARED_PREFIX, shift=7)
    ends = (text(4, shift=1)[1:], text(4, shift=5)[1:])
    in_turn = [begin + ends[0], begin + ends[1], other + ends[1], begin + ends[0]]
    yield _Situation("calls in turn, of prompts that share a part", [[request(prompt)] for prompt in in_turn])


def _run(subject: Any, situation: _Situation) -> Run:
    traces = [trace for call in situation.calls for trace in evidence.generate(subject, call, speculate=True)]
    return Run("own", GREEDY, tuple(traces), subject)


def _divergences(subject: Any, situation: _Situation, run: Run, context: CheckContext) -> Iterator[Divergence]:
    """Where outputs with and without speculation part."""
    requests = [request for call in situation.calls for request in call]
    parts = [requests[start : start + situation.apart] for start in range(0, len(requests), situation.apart)]
    off = [trace for part in parts for trace in evidence.generate(subject, part, speculate=False)]
    for one, other in zip(run.traces, off, strict=True):
        divergence = first_divergence(run, one, other)
        context.exercised("tokens", divergence.token_index if divergence else len(one.token_ids))
        if divergence is not None:
            yield with_margins(divergence, subject, context)


def _departure(subject: Any, situation: _Situation, run: Run, tolerance: float) -> Finding | None:
    """The first token that the target's law does not make the best one, or nearly."""
    scorer = Scorer(subject)
    traces = [trace for trace in run.traces if trace.token_ids]
    if not scorer.has_oracle or not traces:
        return None
    for number, (trace, logits) in enumerate(zip(traces, scorer.logits(traces), strict=True)):
        margins = logits.max(axis=-1) - logits[np.arange(len(logits)), list(trace.token_ids)]
        wrong = np.flatnonzero(margins > tolerance)
        if not len(wrong):
            continue
        index, best = int(wrong[0]), logits.argmax(axis=-1)
        shown = slice(max(0, index - 3), index + 5)
        prompt = trace.request.prompt_token_ids
        return Finding(
            headline=f"New token {index} of call {number + 1} is token {trace.token_ids[index]}; "
            f"the model's best one is token {best[index]}.",
            table=Table(
                rows=(
                    ("new token", *(str(i) for i in range(len(trace.token_ids))[shown])),
                    ("best after this text", *wording.token_text(best.tolist()[shown])),
                    ("the engine's", *wording.token_text(trace.token_ids[shown])),
                )
            ),
            not_noise=f"Not a near tie: it is {margins[index]:.3g} below the best one in log-probability; "
            f"rounding explains {tolerance:.1g}.",
            where=(
                f"Situation: {situation.name}.",
                f"Prompt {wording.prompt_text(prompt)}. Without speculation the tokens are the same.",
            ),
            likely_cause="something that an earlier call left (cache rows) is taken for this text's own: the first "
            "call is right."
            if number
            else "",
            details={"call": number + 1, "token_index": index, "margin": float(margins[index])},
        )
    return None
