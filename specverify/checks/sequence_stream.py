"""Thousands of sampled tokens, each held against the exact law it should have been drawn from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from specverify.checks import evidence, noise, samples, wording
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.checks.samples import Scorer
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.scenario import Purpose, Scenario, default_scenarios, scenarios_of
from specverify.core.types import Trace
from specverify.stats.combine import average_log_e
from specverify.stats.design import samples_to_detect
from specverify.stats.pit import NUM_BINS, PitDetail, PitStream

# Sampling goes on until any error of this total variation, present in every token, would have shown.
DETECTABLE_TV = 0.06
# The engine rounds: errors below this many noise floors of its dtype are not called bugs. Below _NEGLIGIBLE no number
# of tokens drawn here can tell rounding from nothing: then the sharper processes that allow none of it are used.
_FLOORS = 2.0
_NEGLIGIBLE = 1e-3
# An option that moves the target's laws by less, on average, was not tested.
_OPTION_MATTERS = 1e-3
_ROUNDS = 3
_EXPLAINED_AT = 3.0  # log of the e-value from which a slot or an order of the tokens is worth naming


@dataclass
class _Part:
    """One scenario: its stream, and what it exercised."""

    scenario: Scenario
    stream: PitStream
    rounds: Iterator[tuple[Trace, ...]]
    impossible: list[tuple[Trace, int]] = field(default_factory=list)
    option_effect: float = 0.0


@check(
    "lossless.sequence-stream",
    claim="Every emitted token follows the target's law given the text before it, with every sampling parameter.",
    kind=Kind.STATISTICAL,
    needs={Capability.GENERATE},
    exercised_by=(Exercised("scored-tokens"),),
    catches=("sampling-skipped-at-verify", "sampling-filter-only-on-bonus", "lossy-mixture"),
    source="arXiv 2211.17192, appendix A.1, conditionally on every prefix",
    runs_alone=True,
)
def sequence_stream(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """A randomised probability transform turns each token into a uniform number if it follows its law.

    Uniform whatever the context, so prompts and scenarios go into one stream. Several orders of the tokens, each slot
    of the verify call apart, and bets on known shapes of error are averaged into one e-value, which may be watched at
    any time. It goes on until the stated total variation would have been caught. One token that the target forbids is
    a proof, unless it sits on the edge of a filter, where rounding decides.
    """
    scorer = Scorer(subject)
    num_slots = evidence.num_draft_tokens(subject) + 2
    wanted = _num_tokens(context, num_slots)
    parts = _parts(subject, scorer, context, wanted)
    if not parts:
        raise Inconclusive("nobody knows the target's laws: load a probe checkpoint, or declare SCORE")
    pooled = PitStream(parts[0].stream.vocab_size, num_slots=num_slots)
    tolerance = _FLOORS * noise.floor(noise.LAW_FLOOR, subject)
    tolerance = tolerance if tolerance >= _NEGLIGIBLE else 0.0
    rng = context.streams.generator("sequence-stream", "transform")
    alarm = -math.log(context.alpha)
    while pooled.num_tokens < wanted:
        for part in parts:
            context.progress("sampled tokens", pooled.num_tokens, wanted)
            traces = next(part.rounds)
            _count(context, traces)
            scored = scorer.score(traces, num_draft_tokens=num_slots - 2)
            samples.add_to_stream(part.stream, scored, rng)
            samples.add_to_stream(pooled, scored, rng)
            part.impossible += scored.impossible
            part.option_effect = part.option_effect or samples.option_effect(scorer, part.scenario, traces)
            log_e = _log_e(pooled, parts, tolerance)
            if part.impossible or log_e >= alarm:
                yield _finding(subject, part, parts, pooled, log_e, tolerance, scorer, context)
                return
    _require_activity(subject, parts, context)
    _say_worth(context, parts, pooled, tolerance, scorer)


def _parts(subject: Any, scorer: Scorer, context: CheckContext, wanted: int) -> list[_Part]:
    defaults: Sequence[Scenario] = ()
    if scorer.has_oracle:
        defaults = default_scenarios(evidence.standard_prompts(subject, context), (subject.checkpoint.eos_token_id,))
    found = []
    scenarios = [
        scenario
        for scenario in scenarios_of(subject, Purpose.STREAM, default=defaults)
        if scorer.can_score(scenario) and samples.is_possible(subject, scenario)
    ]
    for scenario in scenarios:
        # Rounds small enough that every scenario gets its share, and that a gross error is seen early.
        most = max(1, math.ceil(wanted / (_ROUNDS * len(scenarios) * scenario.max_new_tokens)))
        vocab_size = _vocab_size(subject, scorer, scenario)
        stream = PitStream(vocab_size, num_slots=evidence.num_draft_tokens(subject) + 2)
        rounds = samples.rounds(subject, scenario, context, name="sequence-stream", most=most)
        found.append(_Part(scenario, stream, rounds))
    return found


def _vocab_size(subject: Any, scorer: Scorer, scenario: Scenario) -> int:
    if scorer.has_oracle:
        return int(subject.checkpoint.vocab_size)
    return int(np.asarray(subject.score(scenario.prompts[0], (scenario.prompts[0][0],))).shape[-1])


def _num_tokens(context: CheckContext, num_slots: int) -> int:
    """Tokens until the stated total variation shows; more or less of them with the effort asked for."""
    wanted = DETECTABLE_TV / math.sqrt(context.effort)
    return samples_to_detect(context.alpha, min(wanted, 0.9), NUM_BINS, num_averaged=12 * (num_slots + 1))


def _count(context: CheckContext, traces: Sequence[Trace]) -> None:
    for trace in traces:
        context.exercised("scored-tokens", len(trace.token_ids))
        drafted = sum(step.num_draft_tokens for step in trace.steps) or trace.num_proposed or 0
        accepted = sum(step.num_accepted for step in trace.steps) or trace.num_accepted or 0
        context.exercised("drafted-tokens", drafted)
        context.exercised("accepted-tokens", accepted)


def _log_e(pooled: PitStream, parts: Sequence[_Part], tolerance: float) -> float:
    """Half of the evidence is the pooled stream, half the scenarios one by one."""
    if tolerance:
        apart = average_log_e([part.stream.log_e_within(tolerance) for part in parts])
        return float(average_log_e([pooled.log_e_within(tolerance), float(apart)]))
    apart = average_log_e([part.stream.log_e_of_possible for part in parts])
    return float(average_log_e([pooled.log_e_of_possible, float(apart)]))


def _require_activity(subject: Any, parts: Sequence[_Part], context: CheckContext) -> None:
    idle = [part.scenario.name for part in parts if part.option_effect < _OPTION_MATTERS]
    if idle:
        raise Inconclusive(f"the option of these scenarios changed nothing: {', '.join(idle)}")
    drafted, accepted = context.counters["drafted-tokens"], context.counters["accepted-tokens"]
    if Capability.TRACE in subject.capabilities and not drafted:
        raise Inconclusive(f"{context.counters['scored-tokens']:,} tokens follow their laws, but nothing was drafted")
    if drafted and (accepted == 0 or accepted == drafted) and getattr(subject, "proposer", "") not in ("self", "anti"):
        raise Inconclusive(f"{drafted:,} tokens were drafted and {'none' if not accepted else 'all'} accepted")


def _say_worth(
    context: CheckContext, parts: Sequence[_Part], pooled: PitStream, tolerance: float, scorer: Scorer
) -> None:
    share = context.alpha / 2.0
    pooled_tv = tolerance + pooled.detectable_tv(share)
    apart_tv = tolerance + max(part.stream.detectable_tv(share / len(parts)) for part in parts)
    context.figures.update(
        num_tokens=pooled.num_tokens,
        detectable_tv=pooled_tv,
        detectable_tv_of_one_scenario=apart_tv,
        log_e=_log_e(pooled, parts, tolerance),
        tolerance=tolerance,
    )
    line = f"{pooled.num_tokens:,} tokens in {len(parts)} scenarios, {context.counters['drafted-tokens']:,} drafted, "
    line += f"{context.counters['accepted-tokens']:,} accepted; would have caught total variation {pooled_tv:.3f}"
    line += f" in all tokens, {apart_tv:.2f} in one scenario" if len(parts) > 1 else ""
    if tolerance:
        line += f"; differences up to {tolerance:.1g} from {scorer.source} are taken for rounding"
    context.worth(line)


def _finding(
    subject: Any, part: _Part, parts: Sequence[_Part], pooled: PitStream, log_e: float, tolerance: float,
    scorer: Scorer, context: CheckContext,
) -> Finding:  # fmt: skip
    if part.impossible:
        return _impossible_finding(part, pooled, scorer)
    worst = max(parts, key=lambda one: _own_log_e(one.stream, tolerance))
    detail = worst.stream.detail()
    certified = max(worst.stream.certified_tv(context.alpha), pooled.certified_tv(context.alpha))
    slots = {slot: value for (key, slot), value in detail.by_key.items() if slot is not None and value > _EXPLAINED_AT}
    context.figures.update(log_e=log_e, num_tokens=pooled.num_tokens, certified_tv=certified)
    rows = [
        ("scenario", "tokens", "log e-value"),
        *((p.scenario.name, f"{p.stream.num_tokens:,}", f"{_own_log_e(p.stream, tolerance):.1f}") for p in parts),
        ("together", f"{pooled.num_tokens:,}", f"{log_e:.1f}"),
        ("alarm from", "", f"{-math.log(context.alpha):.1f}"),
    ]
    return Finding(
        headline=f"After {pooled.num_tokens:,} tokens they are not the target's any more; worst in scenario "
        f"{worst.scenario.name!r}.",
        table=Table(rows=rows),
        not_noise=f"Not luck: a lossless engine raises this alarm once in {_one_in(context.alpha)} runs. "
        f"The tokens prove a total variation of at least {certified:.3g} per token."
        + (f" Rounding explains {tolerance:.1g}." if tolerance else ""),
        where=(
            f"Laws from {scorer.source}.",
            *(_slot_lines(slots) if Capability.TRACE in subject.capabilities else ()),
            *_bet_line(detail),
        ),
        likely_cause=_cause(detail),
        details={"log_e": log_e, "certified_tv": certified, "num_tokens": pooled.num_tokens},
    )


def _own_log_e(stream: PitStream, tolerance: float) -> float:
    return stream.log_e_within(tolerance) if tolerance else stream.log_e_of_possible


def _one_in(alpha: float) -> str:
    return f"10^{-math.log10(alpha):.0f}"


def _slot_lines(slots: dict[int, float]) -> Iterator[str]:
    """Which places of a verify call show it; prefill is slot 0."""
    if slots:
        named = ", ".join(
            "from prefill" if slot == 0 else f"token {slot - 1} of its verify call" for slot in sorted(slots)
        )
        yield f"It shows in tokens that are: {named}."


def _bet_line(detail: PitDetail) -> Iterator[str]:
    name, slot, log_e = detail.best_bet
    if log_e > _EXPLAINED_AT:
        place = "" if slot is None else f" at slot {slot}"
        yield f"The best single bet{place}: {name} (log e-value {log_e:.1f})."


def _cause(detail: PitDetail) -> str:
    """What the best bet is on, only where that bet holds nearly all the evidence there is."""
    name, _, log_e = detail.best_bet
    best_key = max(detail.by_key.values())
    if name == "draft" and log_e > best_key - _EXPLAINED_AT and log_e > _EXPLAINED_AT:
        return "lossy: tokens lean towards the draft law. If that is intended, declare lossy_by_design."
    if name == "previous-row" and log_e > best_key + _EXPLAINED_AT:
        return "the law of the position before is used: a row is off by one."
    return ""


def _impossible_finding(part: _Part, pooled: PitStream, scorer: Scorer) -> Finding:
    trace, index = min(part.impossible, key=lambda item: item[1])
    text = trace.token_ids[max(0, index - 5) : index]
    slot = int(samples.slots_of(trace, 1_000_000)[index])
    place = "it came from prefill" if slot == 0 else f"it was token {slot - 1} of its verify call"
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
            f"New token {index}; {place}. Laws from {scorer.source}.",
            f"{len(part.impossible)} such tokens among {pooled.num_tokens:,}.",
        ),
        likely_cause=f"{part.scenario.option} is not applied there." if part.scenario.option in _FILTERS else "",
        details={"impossible": len(part.impossible), "num_tokens": pooled.num_tokens},
    )


_FILTERS = ("top_k", "top_p", "min_p")
