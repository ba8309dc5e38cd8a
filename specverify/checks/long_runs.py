"""Runs on long texts, made once: blocks, pages and tables of positions end where no standard run ever gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from specverify.checks import ambient, evidence
from specverify.checks.evidence import GREEDY, SAMPLED, Run
from specverify.checks.registry import CheckContext
from specverify.core.capabilities import Capability
from specverify.core.types import Request, SamplingParams

# Prompt length and new tokens. Together they pass 64, 96, 128 and 256, each in company of a text of another length.
_LONG = ((200, 80), (90, 60), (30, 80))
# Rejections, many in a row, with a draft that reaches across the end of a page: of 128 rows (or 16, or 64), and of 256.
_SEAMS = ((122, 12), (125, 40), (250, 12))
# Left free at the end of the model's positions, for drafts.
_SPARE_POSITIONS = 16


def long_runs(subject: Any, context: CheckContext) -> tuple[Run, ...]:
    """Runs on long texts with speculation on, or none.

    Greedy and sampled with the self drafter, without laws and rows; and greedy with the drafter that is always
    rejected, with rows where the engine shows them. Of an engine that takes no standard drafters one sampled run with
    its own. None of recorded traces, of slow engines, and where nobody says that so many positions are there.
    """
    if evidence.is_recorded(subject) or getattr(subject, "is_slow", False):
        return ()
    if num_positions(subject) < sum(_LONG[0]) + _SPARE_POSITIONS:
        return ()
    if Capability.SCRIPTED_PROPOSER not in subject.capabilities:
        return (_run(subject, context, "own", SAMPLED, _LONG if _takes_batches(subject) else _LONG[1:2]),)
    return (
        _run(subject, context, "self", GREEDY, _LONG),
        _run(subject, context, "self", SAMPLED, _LONG),
        _run(subject, context, "anti", GREEDY, _SEAMS, shows_rows=True),
    )


def standard_then_long(subject: Any, context: CheckContext) -> Iterator[tuple[Run, ...]]:
    """Standard greedy runs with speculation on, then sampled ones, then long ones: made when asked for, since most bugs
    show before.
    """
    yield evidence.greedy_runs(subject, context)
    yield evidence.sampled_runs(subject, context)
    yield long_runs(subject, context)


def num_positions(subject: Any) -> int:
    """How long a text may get: what the engine says, or else its checkpoint; 0 where nobody says."""
    checkpoint = getattr(subject, "checkpoint", None)
    return int(getattr(subject, "max_positions", 0) or getattr(checkpoint, "max_positions", 0))


def repeated_words(subject: Any, context: CheckContext, length: int, shift: int = 0) -> tuple[int, ...]:
    """A prompt of this length: the first token of the standard prompts, then their words over and over."""
    prompts = evidence.standard_prompts(subject, context)
    words = [token for prompt in prompts for token in prompt[1:]] or [prompts[0][0]]
    return (prompts[0][0], *(words[(shift + index) % len(words)] for index in range(length - 1)))


def _takes_batches(subject: Any) -> bool:
    return Capability.BATCH in subject.capabilities


def _run(
    subject: Any,
    context: CheckContext,
    drafter: str,
    sampling: SamplingParams,
    lengths: Sequence[tuple[int, int]],
    *,
    shows_rows: bool = False,
) -> Run:
    key = f"long/{drafter}/{sampling.temperature:g}"

    def make() -> Run:
        engine = evidence.with_drafter(subject, drafter)
        engine = engine if shows_rows else evidence.quiet(engine)
        is_seeded = Capability.SEED in subject.capabilities and not sampling.is_greedy
        requests = [
            Request(
                repeated_words(subject, context, length, shift=number),
                num_new,
                sampling,
                seed=context.streams.integer("long", number) % 2**31 if is_seeded else None,
                request_id=f"long/{length}",
            )
            for number, (length, num_new) in enumerate(lengths)
        ]
        calls = [requests] if _takes_batches(subject) else [[request] for request in requests]
        with ambient.repeatable(subject, context, key):
            traces = [trace for call in calls for trace in evidence.generate(engine, call, speculate=True)]
        return Run(drafter, sampling, tuple(traces), engine)

    return evidence.once(context, key, make)
