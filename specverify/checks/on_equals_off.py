"""Two black boxes: the engine with speculation on, and the same engine with it off."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from specverify.checks import evidence, places, power, samples
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.scenario import Purpose, Scenario
from specverify.core.types import SamplingParams
from specverify.stats.design import pair_detectable_tv
from specverify.stats.pair import TUPLE_FEATURES, PairBetting

Tokens = tuple[int, ...]

NUM_TOKENS = 3
# Pairs drawn at most; each is one short output with speculation and one without.
BATCHED_PAIRS = 2048
UNBATCHED_PAIRS = 256
_TOP_K = 3
# The first token comes from prefill, drafts or not.
_VERIFIED_TOKENS = NUM_TOKENS - 1
# Different outputs grow with the pairs to about this power, where they are many: 370 in 256 pairs, 824 in 824.
_NEW_OUTPUTS = 0.7
_UNLOCKS = {
    Capability.BATCH: f"{BATCHED_PAIRS:,} pairs in place of {UNBATCHED_PAIRS}",
    Capability.SAMPLING: f"top-k {_TOP_K} leaves fewer outputs to tell apart",
}
_SHOWN = 6


@check(
    "lossless.on-equals-off",
    claim="Nobody can tell outputs with speculation from outputs without it.",
    kind=Kind.STATISTICAL,
    needs={Capability.GENERATE},
    exercised_by=(Exercised("pairs"),),
    catches=("sampling-greedy-when-speculating", "accept-all"),
    source="the promise of every speculative engine; Shekhar and Ramdas, arXiv 2010.04542, for tests by betting",
    runs_alone=True,
)
def on_equals_off(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """For one prompt, pairs of short outputs: one with speculation on, one with it off.

    A gambler who learns from past pairs only bets on which of the two is which. If there is nothing to tell them by,
    no strategy makes money; the money made is the evidence. Needs neither laws nor scores.
    """
    scenario = _scenario(subject, context)
    betting = PairBetting(TUPLE_FEATURES)
    seen_on, seen_off, drafted, told = Counter[Tokens](), Counter[Tokens](), 0, False
    limit = int((BATCHED_PAIRS if Capability.BATCH in subject.capabilities else UNBATCHED_PAIRS) * context.effort)
    alarm = -math.log(context.alpha)
    with_speculation = samples.rounds(subject, scenario, context, name="on-equals-off/on")
    without = samples.rounds(subject, scenario, context, name="on-equals-off/off", speculate=False)
    while betting.num_pairs < limit:
        context.progress("pairs of outputs", betting.num_pairs, limit)
        on_traces, off_traces = next(with_speculation), next(without)
        on = [tuple(trace.token_ids) for trace in on_traces]
        off = [tuple(trace.token_ids) for trace in off_traces]
        betting.update(on, off)
        seen_on.update(on)
        seen_off.update(off)
        context.exercised("pairs", len(on))
        told |= any(map(places.tells_drafts, on_traces))
        drafted += sum(map(places.num_drafted, on_traces))
        if betting.log_e >= alarm:
            yield _finding(scenario, betting, seen_on, seen_off, alarm)
            return
    context.figures.update(log_e=betting.log_e, num_pairs=betting.num_pairs)
    if told and not drafted:
        raise Inconclusive(f"{betting.num_pairs:,} pairs look alike, but nothing was drafted")
    cells = len(seen_on.keys() | seen_off.keys())

    def detectable(num_pairs: int) -> float:
        num_values = max(2, round(cells * (num_pairs / betting.num_pairs) ** _NEW_OUTPUTS))
        return pair_detectable_tv(context.alpha, num_pairs, num_values, num_averaged=len(TUPLE_FEATURES))

    tv = power.require(
        context, betting.num_pairs, detectable,
        things=f"pairs of outputs ({cells:,} different ones)", unlocks=_UNLOCKS, subject=subject,
        num_tokens=_VERIFIED_TOKENS,
    )  # fmt: skip
    context.worth(
        f"{betting.num_pairs:,} pairs of {NUM_TOKENS} tokens; would have caught total variation {tv:.2g} of the outputs"
    )


def _scenario(subject: Any, context: CheckContext) -> Scenario:
    top_k = _TOP_K if Capability.SAMPLING in subject.capabilities else 0
    prompts = evidence.standard_prompts(subject, context)
    repetitive = [prompt for prompt in prompts if len(set(prompt)) < len(prompt)]
    prompt = (repetitive or list(prompts))[-1]
    return Scenario("pairs", Purpose.STREAM, SamplingParams(top_k=top_k), (prompt,), NUM_TOKENS)


def _finding(
    scenario: Scenario, betting: PairBetting, on: Counter[Tokens], off: Counter[Tokens], alarm: float
) -> Finding:
    total = betting.num_pairs
    worst = sorted(on.keys() | off.keys(), key=lambda key: -abs(on[key] - off[key]))[:_SHOWN]
    return Finding(
        headline=f"After {total:,} pairs of outputs it can be told which came with speculation.",
        table=Table(
            rows=[
                ("output", "on", "off"),
                *((" ".join(map(str, key)), str(on[key]), str(off[key])) for key in worst),
            ]
        ),
        not_noise=f"Not luck: log e-value {betting.log_e:.1f}; if on and off were alike it would reach {alarm:.1f} "
        f"once in 10^{alarm / math.log(10):.0f} runs.",
        where=(
            f"Prompt {list(scenario.prompts[0])}, {NUM_TOKENS} new tokens.",
            *_first_place(on, off, total),
        ),
        details={"log_e": betting.log_e, "num_pairs": total},
    )


def _first_place(seen_on: Counter[Tokens], seen_off: Counter[Tokens], total: int) -> Iterator[str]:
    """The first new token whose frequencies differ by more than luck (four standard deviations of both arms)."""
    for place in range(NUM_TOKENS):
        on, off = _at(seen_on, place), _at(seen_off, place)
        gaps = {token: (on[token] - off[token]) / math.sqrt(on[token] + off[token]) for token in on.keys() | off.keys()}
        token = max(gaps, key=lambda key: abs(gaps[key]))
        if abs(gaps[token]) > 4.0:
            yield (
                f"New token {place} is the first that differs: token {token} came {on[token] / total:.3f} of the time "
                f"with speculation, {off[token] / total:.3f} without."
            )
            return


def _at(outputs: Counter[Tokens], place: int) -> Counter[int]:
    counts: Counter[int] = Counter()
    for output, times in outputs.items():
        if len(output) > place:
            counts[output[place]] += times
    return counts
