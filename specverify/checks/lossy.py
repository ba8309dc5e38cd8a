"""Engines that are lossy by design: how lossy they are, and whether they own up to it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from specverify.checks import evidence, samples
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.checks.slots import num_slots_of
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.scenario import Purpose, Scenario
from specverify.core.types import SamplingParams, Trace
from specverify.stats.design import samples_to_detect
from specverify.stats.pit import NUM_BINS, PitStream

# Tokens drawn so that a distance of this size would be noticed; fewer by engines that decode one request at a time.
NOTICEABLE_TV = 0.04
UNBATCHED_TV = 0.08
# The distance that shows is half proven: to halve what is left unproven would take four times the tokens.
_PROVEN_SHARE = 0.5
# Cooler laws are peaked: what strays from them stands out, so that half the tokens certify a distance. Plain sampling
# is tried as well, for rules whose loss vanishes as the temperature falls.
_COOL = SamplingParams(temperature=0.3)


@dataclass
class _Part:
    """One sampling setting and its tokens. rounds: one generate call after another, without end."""

    scenario: Scenario
    rounds: Iterator[tuple[Trace, ...]]
    stream: PitStream | None = None

    @property
    def num_tokens(self) -> int:
        return 0 if self.stream is None else self.stream.num_tokens

    def add_round(self, scorer: samples.Scorer, num_draft_tokens: int, rng: np.random.Generator) -> PitStream:
        scored = scorer.score(next(self.rounds), num_draft_tokens=num_draft_tokens)
        self.stream = self.stream or PitStream(scored.laws.shape[1], num_slots=num_slots_of(num_draft_tokens))
        samples.add_to_stream(self.stream, scored, rng)
        return self.stream


@check(
    "lossy.declared-distance",
    claim="An engine that declares itself lossy is no lossier than it says.",
    kind=Kind.STATISTICAL,
    needs={Capability.GENERATE, Capability.LOSSY_BY_DESIGN},
    exercised_by=(Exercised("scored-tokens"),),
    catches=("lossy-distance-understated",),
    source="Saha and Ramdas, arXiv 2408.14015, for a certified total variation; typical acceptance, relaxed thresholds",
)
def declared_distance(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Lossy is allowed where it is said. The distance that the tokens prove is reported.

    It is the largest total variation per token, on average, that the data refute to be as small or smaller, at the
    more telling of two temperatures. If the subject claims a largest distance (lossy_distance), that claim is judged.
    If no distance shows, nothing is decided: either the option never bit, or it need not be declared.
    """
    scorer = samples.Scorer(subject)
    parts = _parts(subject, scorer, context)
    claimed = getattr(subject, "lossy_distance", None)
    # Each setting spends its share of the budget: what it certifies then stays certified, whenever it is read.
    alpha = context.alpha / len(parts)
    noticeable = NOTICEABLE_TV if Capability.BATCH in subject.capabilities else UNBATCHED_TV
    most = samples_to_detect(alpha, min(0.9, noticeable / math.sqrt(context.effort)), NUM_BINS, num_averaged=60)
    rng = context.streams.generator("lossy", "transform")
    certified, observed, best, is_refuted = 0.0, 0.0, parts[0], False
    while (num_tokens := sum(part.num_tokens for part in parts)) < most * len(parts):
        context.progress("sampled tokens", num_tokens, most * len(parts))
        # In turn until one setting certifies a distance; from then on that one alone.
        part = best if certified else min(parts, key=lambda part: part.num_tokens)
        stream = part.add_round(scorer, evidence.num_draft_tokens(subject), rng)
        now = stream.certified_tv(alpha)
        if now > 0.0 or part is best:
            certified, observed, best = now, stream.observed_tv, part
        is_refuted = claimed is not None and certified > claimed
        # A claim that does not look true is followed to the end.
        looks_true = claimed is None or observed <= claimed
        if is_refuted or (looks_true and certified > _PROVEN_SHARE * observed):
            break
    assert best.stream is not None
    context.exercised("scored-tokens", num_tokens := sum(part.num_tokens for part in parts))
    context.figures.update(
        certified_tv=certified, observed_tv=observed, claimed_tv=claimed, num_tokens=num_tokens,
        temperature=best.scenario.sampling.temperature,
    )  # fmt: skip
    if is_refuted:
        yield _finding(subject, best, certified, alpha)
        return
    if certified == 0.0:
        tv = max(part.stream.detectable_tv(alpha) for part in parts if part.stream is not None)
        raise Inconclusive(
            f"declared lossy ({_reason(subject)}), but {num_tokens:,} tokens show no distance from the target, where "
            f"{tv:.2g} between bins of ordered tokens, in each token, would have shown: did the lossy option ever bite?"
        )
    limit = f", at most {claimed:g} by its own word" if claimed is not None else ""
    context.worth(
        f"lossy by design ({_reason(subject)}): certified total variation {certified:.3g} per token at temperature "
        f"{best.scenario.sampling.temperature:g} (about {observed:.2g} seen){limit}, {num_tokens:,} tokens"
    )


def _parts(subject: Any, scorer: samples.Scorer, context: CheckContext) -> list[_Part]:
    prompts, length = evidence.standard_prompts(subject, context), evidence.new_tokens(subject)
    settings = [evidence.SAMPLED] + [_COOL] * (Capability.SAMPLING in subject.capabilities)
    scenarios = [
        Scenario(f"temperature {sampling.temperature:g}", Purpose.STREAM, sampling, prompts, length)
        for sampling in settings
    ]
    scorer.require_laws()
    return [_Part(one, samples.rounds(subject, one, context, name="lossy", most=32)) for one in scenarios]


def _reason(subject: Any) -> str:
    """Why it is lossy: what it declares, or the option that makes it so although nobody excused it."""
    return str(getattr(subject, "lossy_by_design", "") or getattr(subject, "lossy_option", ""))


def _finding(subject: Any, part: _Part, certified: float, alpha: float) -> Finding:
    claimed = float(subject.lossy_distance)
    return Finding(
        headline=f"It says it is lossy by at most {claimed:g}, and it is lossy by at least {certified:.3g}.",
        table=Table(
            rows=(
                ("total variation per token", "declared", f"{claimed:.3g}"),
                ("", "certified", f"{certified:.3g}"),
            )
        ),
        not_noise=f"{part.num_tokens:,} tokens prove it; a smaller distance would look like this once in "
        f"10^{-math.log10(alpha):.0f} runs.",
        where=(f"Sampled at {part.scenario.name}.", f"Declared reason: {_reason(subject)}."),
        details={"certified_tv": certified, "claimed_tv": claimed},
    )
