"""Greedy decoding away from the beaten track: very short and long texts, up to the last position, and crowds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from specverify.checks import evidence, long_runs, noise
from specverify.checks.calls import generate_in_calls
from specverify.checks.divergence import Divergence, bugs_among, finding_of, first_divergence, with_margins
from specverify.checks.evidence import GREEDY, Run
from specverify.checks.registry import CheckContext, Exercised, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind
from specverify.core.types import Request

# Block and chunk sizes are powers of two, mostly up to 256: a long text goes past that, its prompt past half of it.
_LONG_PROMPT, _LONG_OUTPUT = 200, 80
# Rows that finish while at least 128 others go on; without speculation some at a time, in batches of another shape.
_CROWD, _PLAIN_BATCH = 200, 16
# Left free at the end of the model's positions, for drafts; but for one text that takes every position there is.
_SPARE_POSITIONS = 16
# Filling longer contexts costs more than it shows.
_MOST_POSITIONS = 1024


@dataclass(frozen=True)
class _Situation:
    """Requests, how many of them a call gets with speculation, and how many without.

    may_be_refused: whether an engine that speculates may rightly raise instead.
    """

    name: str
    requests: Sequence[Request]
    batch_size: int = 1
    plain_batch_size: int = 1
    may_be_refused: bool = False


@check(
    "greedy.unusual-requests",
    claim="At temperature 0 speculation changes no token of very short and very long texts, nor in a crowd.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE},
    exercised_by=(Exercised("tokens"),),
    catches=(
        "position-stops-at-256",
        "kv-one-token-prompt-not-rolled-back",
        "kv-chunked-prompt-overlaps",
        "batch-crowd-lanes-mixed",
        "limit-before-context-is-full",
    ),
    source="NVIDIA/TensorRT-LLM#8076, on long prompts only; huggingface/text-generation-inference#1411, in crowds only",
)
def unusual_requests(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Token for token, in situations that the standard prompts never meet; divergences are explained as in
    greedy.on-equals-off.

    Prompts of one and two tokens, unless the engine refuses them; a prompt and an output that together go past 256
    tokens, where the model has so many positions; one that together take exactly the positions there are, up to 1,024,
    unless the engine refuses it; 200 requests at once, which end at different times, where the engine takes batches of
    that size.
    """
    tolerance = 2.0 * noise.log_prob_noise(subject, context)
    situations = list(_situations(subject, context))
    found: list[Divergence] = []
    refused: list[str] = []
    for index, situation in enumerate(situations):
        context.progress(situation.name, index, len(situations))
        try:
            found += _divergences(subject, situation, context)
        except Exception:
            if not situation.may_be_refused:
                raise
            refused.append(situation.name)
    bugs = bugs_among(found, tolerance, context)
    if bugs:
        yield finding_of(bugs, tolerance, context)
    ties = len(found) - len(bugs)
    done = [one.name for one in situations if one.name not in refused]
    line = f"{context.counters['tokens']:,} tokens equal; {', '.join(done)}"
    line += f"; refused: {', '.join(refused)}" if refused else ""
    line += f"; {ties} near ties within {tolerance:.1g} explained{noise.assumed_text(subject)}" if ties else ""
    context.worth(line)


def _situations(subject: Any, context: CheckContext) -> Iterator[_Situation]:
    num_tokens = min(16, evidence.new_tokens(subject))

    def request(name: str, length: int, num_new: int = num_tokens, shift: int = 0) -> Request:
        text = long_runs.repeated_words(subject, context, length, shift)
        return Request(text, num_new, GREEDY, request_id=name)

    short = [request(f"prompt of {length}", length) for length in (1, 2)]
    if _takes(subject, short):
        yield _Situation("prompts of one and two tokens", short)
    if getattr(subject, "is_slow", False):
        return
    if long_runs.num_positions(subject) >= _LONG_PROMPT + _LONG_OUTPUT + _SPARE_POSITIONS:
        name = f"a prompt of {_LONG_PROMPT} tokens and {_LONG_OUTPUT} new ones"
        yield _Situation(name, [request(name, _LONG_PROMPT, _LONG_OUTPUT)])
    if 2 * num_tokens < long_runs.num_positions(subject) <= _MOST_POSITIONS:
        name = f"a text that takes all {long_runs.num_positions(subject)} positions"
        whole = request(name, long_runs.num_positions(subject) - num_tokens // 2, num_tokens // 2)
        yield _Situation(name, [whole], may_be_refused=True)
    if Capability.BATCH in subject.capabilities and _max_batch_size(subject) >= _CROWD:
        crowd = [request(f"crowd/{i}", 2 + i % 7, min(3 + i % 6, num_tokens), shift=i) for i in range(_CROWD)]
        yield _Situation(f"{_CROWD} requests at once", crowd, _CROWD, _PLAIN_BATCH)


def _max_batch_size(subject: Any) -> int:
    """What the engine says, or else the size it would like, or else any."""
    return int(getattr(subject, "max_batch_size", getattr(subject, "batch_size", _CROWD)))


def _takes(subject: Any, requests: Sequence[Request]) -> bool:
    """Whether plain decoding takes them: some engines refuse prompts this short, as they may."""
    try:
        for request in requests:
            evidence.generate(subject, [request], speculate=False)
    except Exception:
        return False
    return True


def _divergences(subject: Any, situation: _Situation, context: CheckContext) -> Iterator[Divergence]:
    """Where outputs with and without speculation part."""
    engine, requests = evidence.quiet(subject), situation.requests
    on = generate_in_calls(engine, requests, speculate=True, size=situation.batch_size)
    off = generate_in_calls(engine, requests, speculate=False, size=situation.plain_batch_size)
    run = Run("own", GREEDY, on, subject)
    for one, other in zip(on, off, strict=True):
        divergence = first_divergence(run, one, other)
        context.exercised("tokens", divergence.token_index if divergence else len(one.token_ids))
        if divergence is not None:
            yield with_margins(divergence, subject, context)
