"""Engines that are lossy by design: how lossy they are, and whether they own up to it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from specverify.checks import evidence, samples
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.scenario import Purpose, Scenario
from specverify.stats.design import samples_to_detect
from specverify.stats.pit import NUM_BINS, PitStream

# Tokens drawn so that a distance of this size would be noticed.
NOTICEABLE_TV = 0.04


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

    It is the largest total variation per token, on average, that the data refute to be as small or smaller. If the
    subject claims a largest distance (lossy_distance), that claim is judged. If no distance shows, nothing is decided:
    either the option never bit, or it need not be declared.
    """
    scorer = samples.Scorer(subject)
    sampling = evidence.SAMPLED
    scenario = Scenario(
        "lossy", Purpose.STREAM, sampling, evidence.standard_prompts(subject, context), evidence.new_tokens(subject)
    )
    if not scorer.can_score(scenario):
        raise Inconclusive("nobody knows the target's laws: load a probe checkpoint, or declare SCORE")
    num_slots = evidence.num_draft_tokens(subject) + 2
    claimed = getattr(subject, "lossy_distance", None)
    stream: PitStream | None = None
    wanted = samples_to_detect(context.alpha, NOTICEABLE_TV / math.sqrt(context.effort), NUM_BINS, num_averaged=60)
    rng = context.streams.generator("lossy", "transform")
    for traces in samples.rounds(subject, scenario, context, name="lossy", most=32):
        scored = scorer.score(traces, num_draft_tokens=num_slots - 2)
        stream = stream or PitStream(scored.laws.shape[1], num_slots=num_slots)
        samples.add_to_stream(stream, scored, rng)
        context.exercised("scored-tokens", len(scored.tokens))
        context.progress("sampled tokens", stream.num_tokens, wanted)
        certified = stream.certified_tv(context.alpha)
        # The certified distance may be read at any time: a claim that is refuted stays refuted.
        if stream.num_tokens >= wanted or (claimed is not None and certified > claimed):
            break
    assert stream is not None
    context.figures.update(certified_tv=certified, claimed_tv=claimed, num_tokens=stream.num_tokens)
    if claimed is not None and certified > claimed:
        yield _finding(subject, stream, certified, float(claimed), context)
        return
    if certified == 0.0:
        raise Inconclusive(
            f"declared lossy ({_reason(subject)}), but {stream.num_tokens:,} tokens show no distance from the "
            "target: did the lossy option ever bite?"
        )
    limit = f", at most {claimed:g} by its own word" if claimed is not None else ""
    context.worth(
        f"lossy by design ({_reason(subject)}): certified total variation {certified:.3g} per token{limit}, "
        f"{stream.num_tokens:,} tokens"
    )


def _reason(subject: Any) -> str:
    """Why it is lossy: what it declares, or the option that makes it so although nobody excused it."""
    return str(getattr(subject, "lossy_by_design", "") or getattr(subject, "lossy_option", ""))


def _finding(subject: Any, stream: PitStream, certified: float, claimed: float, context: CheckContext) -> Finding:
    return Finding(
        headline=f"It says it is lossy by at most {claimed:g}, and it is lossy by at least {certified:.3g}.",
        table=Table(
            rows=(
                ("total variation per token", "declared", f"{claimed:.3g}"),
                ("", "certified", f"{certified:.3g}"),
            )
        ),
        not_noise=f"{stream.num_tokens:,} tokens prove it; a smaller distance would look like this once in "
        f"10^{-math.log10(context.alpha):.0f} runs.",
        where=(f"Declared reason: {_reason(subject)}.",),
        details={"certified_tv": certified, "claimed_tv": claimed},
    )
