"""What a stream of sampled tokens says once it no longer follows the target's laws."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from specverify.checks import evidence, places, wording
from specverify.checks.registry import CheckContext
from specverify.checks.samples import ScoredTokens, Scorer
from specverify.checks.slots import num_slots_of
from specverify.checks.stream_cause import stream_cause
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Table
from specverify.core.scenario import Scenario
from specverify.core.types import Trace
from specverify.stats.combine import average_log_e
from specverify.stats.pit import PitDetail, PitStream

_EXPLAINED_AT = 3.0  # log of the e-value from which a slot or an order of the tokens is worth naming


@dataclass
class StreamPart:
    """One scenario: its stream, and what it exercised. scorer: knows the laws of the engine that draws the tokens."""

    scenario: Scenario
    stream: PitStream
    rounds: Iterator[tuple[Trace, ...]]
    scorer: Scorer
    impossible: list[tuple[Trace, int]] = field(default_factory=list)
    kept: list[ScoredTokens] = field(default_factory=list)
    option_effect: float = 0.0


def log_e_of(pooled: PitStream, parts: Sequence[StreamPart], tolerance: float) -> float:
    """Half of the evidence is the pooled stream, half the scenarios one by one."""
    if tolerance:
        apart = average_log_e([part.stream.log_e_within(tolerance) for part in parts])
        return float(average_log_e([pooled.log_e_within(tolerance), float(apart)]))
    apart = average_log_e([part.stream.log_e_of_possible for part in parts])
    return float(average_log_e([pooled.log_e_of_possible, float(apart)]))


def stream_finding(
    subject: Any,
    parts: Sequence[StreamPart],
    pooled: PitStream,
    tolerance: float,
    scorer: Scorer,
    context: CheckContext,
) -> Finding:
    log_e = log_e_of(pooled, parts, tolerance)
    worst = max(parts, key=lambda one: _own_log_e(one.stream, tolerance))
    detail = worst.stream.detail()
    certified = max(worst.stream.certified_tv(context.alpha), pooled.certified_tv(context.alpha))
    slots = {slot: value for (key, slot), value in detail.by_key.items() if slot is not None and value > _EXPLAINED_AT}
    context.figures.update(log_e=log_e, num_tokens=pooled.num_tokens, certified_tv=certified)
    rows = [
        ("scenario", "tokens", "log e-value"),
        *(
            (part.scenario.name, f"{part.stream.num_tokens:,}", f"{_own_log_e(part.stream, tolerance):.1f}")
            for part in parts
            if part.stream.num_tokens
        ),
        ("together", f"{pooled.num_tokens:,}", f"{log_e:.1f}"),
        ("alarm from", "", f"{-math.log(context.alpha):.1f}"),
    ]
    return Finding(
        headline=f"After {pooled.num_tokens:,} tokens they are not the target's any more; worst in scenario "
        f"{worst.scenario.name!r}.",
        table=Table(rows=rows),
        not_noise=f"Not luck: a lossless engine raises this alarm once in {_one_in(context.alpha)} runs."
        + (f" The tokens prove a total variation of at least {certified:.3g} per token." if certified else "")
        + (f" Rounding explains {tolerance:.1g}." if tolerance else ""),
        where=(
            f"Laws from {scorer.source}.",
            *_slot_lines(slots, subject),
            *_bet_line(detail),
        ),
        likely_cause=_cause(subject, parts, detail, context),
        details={"log_e": log_e, "certified_tv": certified, "num_tokens": pooled.num_tokens},
    )


def _own_log_e(stream: PitStream, tolerance: float) -> float:
    return stream.log_e_within(tolerance) if tolerance else stream.log_e_of_possible


def _one_in(alpha: float) -> str:
    return f"10^{-math.log10(alpha):.0f}"


def _slot_lines(slots: dict[int, float], subject: Any) -> Iterator[str]:
    """Which places of a verify call show it, as slots_of numbers them."""
    if slots and Capability.TRACE in subject.capabilities:
        last = num_slots_of(evidence.num_draft_tokens(subject)) - 1
        names = {0: "from prefill", last: "of a step without a draft"}
        named = ", ".join(names.get(slot, f"token {slot - 1} of its verify call") for slot in sorted(slots))
        yield f"It shows in tokens that are: {named}."


def _bet_line(detail: PitDetail) -> Iterator[str]:
    name, slot, log_e = detail.best_bet
    if log_e > _EXPLAINED_AT:
        place = "" if slot is None else f" at slot {slot}"
        yield f"The best single bet{place}: {name} (log e-value {log_e:.1f})."


def _cause(subject: Any, parts: Sequence[StreamPart], detail: PitDetail, context: CheckContext) -> str:
    """What explains the plain tokens; else the best bet, if it holds all evidence."""
    blocks = [block for part in parts for block in part.kept]
    rng = context.streams.generator("sequence-stream", "mixture")
    cause = stream_cause(blocks, evidence.num_draft_tokens(subject), rng)
    if cause:
        return cause
    name, _, log_e = detail.best_bet
    best_key = max(detail.by_key.values())
    if name == "previous-row" and log_e > best_key + _EXPLAINED_AT:
        return "the law of the position before is used: a row is off by one."
    return ""


def impossible_finding(part: StreamPart, pooled: PitStream, scorer: Scorer) -> Finding:
    trace, index = min(part.impossible, key=lambda item: item[1])
    text = trace.token_ids[max(0, index - 5) : index]
    return Finding(
        headline=f"Scenario {part.scenario.name!r}: token {trace.token_ids[index]} was emitted, "
        "which the target forbids there.",
        table=Table(
            rows=(
                ("prompt ends", *wording.token_text(trace.request.prompt_token_ids[-5:])),
                ("text before", *wording.token_text(text)),
                ("emitted", str(trace.token_ids[index]), "probability 0"),
            )
        ),
        not_noise="A proof, not a statistic: its probability is 0, and it is not at the edge of a filter where "
        "rounding could let it in.",
        where=(
            f"New token {index}; it {places.place_text(trace, index)}. Laws from {scorer.source}.",
            f"{len(part.impossible)} such tokens among {pooled.num_tokens:,}.",
        ),
        likely_cause=f"{part.scenario.option} is not applied there, unless scenarios without it fail as well."
        if part.scenario.option in _FILTERS
        else "",
        details={"impossible": len(part.impossible), "num_tokens": pooled.num_tokens},
    )


_FILTERS = ("top_k", "top_p", "min_p")
