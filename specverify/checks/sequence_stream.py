"""Thousands of sampled tokens, each held against the exact law it should have been drawn from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from specverify.checks import evidence, noise, places, power, samples
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.checks.samples import Scorer
from specverify.checks.slots import num_slots_of
from specverify.checks.stream_findings import StreamPart, impossible_finding, log_e_of, stream_finding
from specverify.checks.stream_scenarios import scenario_without_drafts, stream_scenarios
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind
from specverify.core.scenario import Scenario
from specverify.core.types import Trace
from specverify.stats.design import samples_to_detect
from specverify.stats.pit import NUM_BINS, PitStream

# Sampling goes on until any error of this total variation, present in every token, would have shown.
DETECTABLE_TV = 0.06
# The engine rounds: errors below this many noise floors of its dtype are not called bugs. Below _NEGLIGIBLE no number
# of tokens drawn here can tell rounding from nothing: then the sharper processes that allow none of it are used.
_FLOORS = 2.0
_NEGLIGIBLE = 1e-3
# An option that moves the target's laws by less, on average, was not tested.
_OPTION_MATTERS = 1e-3
_ROUNDS = 3
# After an alarm, this share of the planned tokens is drawn in all, so that a distance can be certified.
_TO_CERTIFY = 0.5


@check(
    "lossless.sequence-stream",
    claim="Every emitted token follows the target's law given the text before it, with every sampling parameter.",
    kind=Kind.STATISTICAL,
    needs={Capability.GENERATE},
    exercised_by=(Exercised("scored-tokens"),),
    catches=(
        "lossy-mixture",
        "sampling-skipped-at-verify",
        "sampling-filter-only-on-bonus",
        "seed-final-token-greedy",
        "seed-unseeded-final-greedy",
        "batch-filters-lost-without-draft",
    ),
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
    num_draft_tokens = evidence.num_draft_tokens(subject)
    num_slots = num_slots_of(num_draft_tokens)
    wanted = _num_tokens(context, num_slots)
    parts = _parts(subject, scorer, context, wanted)
    pooled = PitStream(parts[0].stream.vocab_size, num_slots=num_slots)
    tolerance = _FLOORS * noise.floor(noise.LAW_FLOOR, subject)
    tolerance = tolerance if tolerance >= _NEGLIGIBLE else 0.0
    rng = context.streams.generator("sequence-stream", "transform")
    alarm = -math.log(context.alpha)
    wanted = min(wanted, _bearable(parts, wanted, context))
    is_wrong = False
    while pooled.num_tokens < (_TO_CERTIFY * wanted if is_wrong else wanted):
        for part in parts:
            context.progress("sampled tokens", pooled.num_tokens, wanted)
            traces = next(part.rounds)
            _count(context, traces)
            scored = part.scorer.score(traces, num_draft_tokens=num_draft_tokens)
            samples.add_to_stream(part.stream, scored, rng)
            samples.add_to_stream(pooled, scored, rng)
            part.impossible += scored.impossible
            part.kept += [scored] if scored.draft_laws is not None and not part.scenario.option else []
            part.option_effect = part.option_effect or samples.option_effect(scorer, part.scenario, traces)
            if part.impossible and not is_wrong:
                yield impossible_finding(part, pooled, scorer)
                return
            # The alarm stands once it was raised; some more tokens then tell how large the distance is.
            is_wrong = is_wrong or log_e_of(pooled, parts, tolerance) >= alarm
    if is_wrong:
        yield stream_finding(subject, parts, pooled, tolerance, scorer, context)
        return
    _require_activity(subject, parts, context)
    _say_worth(subject, context, parts, pooled, tolerance, scorer)


def _parts(subject: Any, scorer: Scorer, context: CheckContext, wanted: int) -> list[StreamPart]:
    scenarios = [(scenario, subject, scorer) for scenario in stream_scenarios(subject, scorer, context)]
    without = scenario_without_drafts(subject, [scenario for scenario, *_ in scenarios])
    if without is not None:
        drafter = subject.with_proposer("sometimes-empty")
        scenarios.append((without, drafter, Scorer(drafter)))
    # Rounds small enough that every scenario gets its share, and that a gross error is seen early.
    num_rounds = max(1, round(_ROUNDS * min(context.effort, 1.0)))
    found = []
    for index, (scenario, engine, own_scorer) in enumerate(scenarios):
        most = max(1, math.ceil(wanted / (num_rounds * len(scenarios) * scenario.max_new_tokens)))
        vocab_size = _vocab_size(subject, scorer, scenario)
        stream = PitStream(vocab_size, num_slots=num_slots_of(evidence.num_draft_tokens(subject)))
        rounds = samples.rounds(engine, scenario, context, name="sequence-stream", most=most, first_kind=index)
        found.append(StreamPart(scenario, stream, rounds, own_scorer))
    return found


def _vocab_size(subject: Any, scorer: Scorer, scenario: Scenario) -> int:
    if scorer.has_oracle:
        return int(subject.checkpoint.vocab_size)
    return int(np.asarray(subject.score(scenario.prompts[0], (scenario.prompts[0][0],))).shape[-1])


def _num_tokens(context: CheckContext, num_slots: int) -> int:
    """Tokens until the stated total variation shows; more or less of them with the effort asked for."""
    wanted = DETECTABLE_TV / math.sqrt(context.effort)
    return samples_to_detect(context.alpha, min(wanted, 0.9), NUM_BINS, num_averaged=12 * (num_slots + 1))


def _bearable(parts: Sequence[StreamPart], wanted: int, context: CheckContext) -> int:
    """Tokens that a slow engine's scenarios allow in all; what they are worth is said."""
    allowed = [(part.scenario.num_requests, part.scenario.max_new_tokens) for part in parts]
    if any(num_requests is None for num_requests, _ in allowed):
        return wanted
    return math.ceil(context.effort * sum((num_requests or 0) * tokens for num_requests, tokens in allowed))


def _count(context: CheckContext, traces: Sequence[Trace]) -> None:
    for trace in traces:
        context.exercised("scored-tokens", len(trace.token_ids))
        context.exercised("drafted-tokens", places.num_drafted(trace))
        context.exercised("accepted-tokens", places.num_accepted(trace))


def _require_activity(subject: Any, parts: Sequence[StreamPart], context: CheckContext) -> None:
    idle = [part.scenario.name for part in parts if part.option_effect < _OPTION_MATTERS]
    if idle:
        raise Inconclusive(f"the option of these scenarios changed nothing: {', '.join(idle)}")
    drafted, accepted = context.counters["drafted-tokens"], context.counters["accepted-tokens"]
    if Capability.TRACE in subject.capabilities and not drafted:
        raise Inconclusive(f"{context.counters['scored-tokens']:,} tokens follow their laws, but nothing was drafted")
    if drafted and (accepted == 0 or accepted == drafted) and getattr(subject, "proposer", "") not in ("self", "anti"):
        raise Inconclusive(f"{drafted:,} tokens were drafted and {'none' if not accepted else 'all'} accepted")


def _say_worth(
    subject: Any,
    context: CheckContext,
    parts: Sequence[StreamPart],
    pooled: PitStream,
    tolerance: float,
    scorer: Scorer,
) -> None:
    share = context.alpha / 2.0
    pooled_tv = tolerance + pooled.detectable_tv(share)
    apart_tv = tolerance + max(part.stream.detectable_tv(share / len(parts)) for part in parts)
    power.require(
        context, pooled.num_tokens, lambda count: tolerance + pooled.detectable_tv(share, count),
        things="tokens", subject=subject,
    )  # fmt: skip
    context.figures.update(
        num_tokens=pooled.num_tokens,
        detectable_tv=pooled_tv,
        detectable_tv_of_one_scenario=apart_tv,
        log_e=log_e_of(pooled, parts, tolerance),
        tolerance=tolerance,
    )
    line = f"{pooled.num_tokens:,} tokens in {len(parts)} scenarios, {context.counters['drafted-tokens']:,} drafted, "
    line += f"{context.counters['accepted-tokens']:,} accepted; would have caught {pooled.detectable_text(pooled_tv)}"
    line += f", in all tokens ({apart_tv:.2f} in one scenario)" if len(parts) > 1 else ", in all tokens"
    line += "; a fault that no such order shows may be larger"
    if not pooled.knows_drafts:
        line += f", and without draft laws a wrong residual may hide: {_draft_laws_advice(subject, scorer)}"
    if tolerance:
        line += f"; differences up to {tolerance:.1g} from {scorer.source} are taken for rounding"
        line += noise.assumed_text(subject)
    context.worth(line)


def _draft_laws_advice(subject: Any, scorer: Scorer) -> str:
    advice = "record them (DRAFT_PROBS) if the drafter has any"
    if scorer.has_oracle and not hasattr(subject, "proposer"):
        advice += ', or say proposer = "draft-model" if the probe\'s draft model drafts'
    return advice
