"""Whole short outputs against the target's joint law: an e-value over all joint cells, and a planned chi-square."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from specverify.checks import noise, power, samples
from specverify.checks.joint_sample import NUM_TOKENS, JointSample, Tokens, joint_sample
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.types import Trace
from specverify.stats.chi_square import ChiSquareResult
from specverify.stats.design import detectable_tv
from specverify.stats.dirichlet import DirichletEValue

_SHOWN = 5
# The first token comes from prefill, drafts or not.
_VERIFIED_TOKENS = NUM_TOKENS - 1


@check(
    "lossless.sequence-joint",
    claim="The tokens of an output follow the target's law jointly, not only one by one.",
    kind=Kind.STATISTICAL,
    needs={Capability.GENERATE, Capability.LOAD_CHECKPOINT, Capability.SAMPLING},
    exercised_by=(Exercised("sampled-outputs"),),
    catches=("verify-row-off-by-one", "target-law-softmaxed-twice"),
    source="arXiv 2211.17192, appendix A.1; tests on the first token alone pass broken engines, it comes from prefill",
)
def sequence_joint(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """One prompt, three new tokens, thousands of times; every output is a cell of its own.

    The e-value is a mixture of Dirichlet laws around the target's joint law, at scales from gross to tiny errors.
    An output that the target cannot produce is a proof.
    """
    sample = joint_sample(subject, context)
    impossible = _impossible_outputs(sample, subject, context)
    if impossible is not None:
        yield impossible
        return
    process = DirichletEValue(sample.law)
    process.update(sample.counts)
    alarm = -math.log(context.alpha)
    context.figures.update(log_e=process.log_e, num_outputs=len(sample.outputs))
    if process.log_e >= alarm:
        yield _joint_finding(sample, process.log_e, alarm)
        return
    _require_activity(sample)
    tv = power.require(
        context, len(sample.outputs), lambda count: detectable_tv(context.alpha, count, len(sample.outcomes)),
        things=f"outputs of {NUM_TOKENS} tokens", num_tokens=_VERIFIED_TOKENS,
    )  # fmt: skip
    context.figures["detectable_tv"] = tv
    context.worth(
        f"{len(sample.outputs):,} outputs of {NUM_TOKENS} tokens, {len(sample.outcomes)} joint cells; "
        f"would have caught total variation {tv:.3f}"
    )


@check(
    "lossless.sequence-chi-square",
    claim="Outputs pass a chi-square test against the target's joint law, planned before the first was drawn.",
    kind=Kind.STATISTICAL,
    needs={Capability.GENERATE, Capability.LOAD_CHECKPOINT, Capability.SAMPLING},
    exercised_by=(Exercised("sampled-outputs"),),
    catches=("verify-row-off-by-one", "accept-all", "lossy-mixture"),
    source="Pearson 1900; Bousquet 2002 for a threshold whose false-alarm rate is proven, not asymptotic",
)
def sequence_chi_square(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """A fixed number of outputs, computed from the alarm budget and the total variation to be caught.

    Outputs are pooled by expectation alone, before any is drawn; those the target cannot produce are counted apart.
    """
    sample = joint_sample(subject, context)
    impossible = _impossible_outputs(sample, subject, context)
    if impossible is not None:
        yield impossible
        return
    planned = sample.design
    result = planned.judge(sample.counts)
    context.figures.update(
        chi_square=result.statistic,
        threshold=result.threshold,
        degrees_of_freedom=result.df,
        asymptotic_p_value=result.asymptotic_p_value,
        num_outputs=len(sample.outputs),
        detectable_tv=planned.detectable_tv,
    )
    if result.is_alarm:
        yield _chi_square_finding(sample, result, context)
        return
    _require_activity(sample)
    power.require(
        context, len(sample.outputs),
        lambda count: planned.detectable_tv * math.sqrt(len(sample.outputs) / count),
        things=f"outputs of {NUM_TOKENS} tokens", num_tokens=_VERIFIED_TOKENS,
    )  # fmt: skip
    context.worth(
        f"{len(sample.outputs):,} outputs, {result.df + 1} bins; chi-square {result.statistic:.1f}, allowed "
        f"{result.threshold:.1f}; would have caught total variation {planned.detectable_tv:.2g}"
    )


def _require_activity(sample: JointSample) -> None:
    if sample.activity["told"] and not sample.activity["drafted"]:
        raise Inconclusive(f"{len(sample.outputs):,} outputs follow the target's law, but nothing was drafted")


def _impossible_outputs(sample: JointSample, subject: Any, context: CheckContext) -> Finding | None:
    """Outputs of probability zero that no rounding at the filter's edge explains.

    Raises Inconclusive where outputs are neither in the law nor impossible: rounding decides whether the filter lets
    them through.
    """
    context.exercised("sampled-outputs", len(sample.outputs))
    context.exercised("drafted-tokens", sample.activity["drafted"])
    context.exercised("accepted-tokens", sample.activity["accepted"])
    scorer, request, seen = samples.Scorer(subject), sample.scenario.request(0), Counter(sample.outputs)
    impossible = [
        output
        for output in seen.keys() - set(sample.outcomes)
        if len(output) < NUM_TOKENS or scorer.score([Trace(request, output)], num_draft_tokens=1).impossible
    ]
    if impossible:
        impossible.sort(key=sample.outputs.index)
        worst = max(impossible, key=lambda output: seen[output])
        return Finding(
            headline=f"Output {list(worst)} came, which the target cannot produce.",
            table=Table(rows=[("output", "times seen"), *((str(list(o)), str(seen[o])) for o in impossible[:_SHOWN])]),
            not_noise="A proof, not a statistic: its probability is 0.",
            where=(f"Prompt {list(sample.scenario.prompts[0])}, top-k {sample.scenario.sampling.top_k}.",),
            details={"impossible": len(impossible)},
        )
    if sample.num_outside:
        raise Inconclusive(
            f"{sample.num_outside} outputs lie on the edge of the top-k filter, where rounding decides; "
            "lossless.sequence-stream allows for that"
        )
    return None


def _joint_finding(sample: JointSample, log_e: float, alarm: float) -> Finding:
    share = sample.counts / max(1.0, sample.counts.sum())
    return _finding(
        sample,
        f" do not follow the target's joint law; total variation about {noise.total_variation(share, sample.law):.3g}.",
        f"Not luck: log e-value {log_e:.1f}; a lossless engine reaches {alarm:.1f} once in "
        f"10^{alarm / math.log(10):.0f} runs.",
        {"log_e": log_e, "num_outputs": len(sample.outputs)},
    )


def _chi_square_finding(sample: JointSample, result: ChiSquareResult, context: CheckContext) -> Finding:
    return _finding(
        sample,
        f": chi-square {result.statistic:.0f} on {result.df} degrees of freedom, allowed {result.threshold:.0f}.",
        f"Not luck: the allowed value is reached with a chance of at most {context.alpha:.0e}, proven for "
        f"this sample size. The asymptotic p-value is {result.asymptotic_p_value:.0e}.",
        {"chi_square": result.statistic, "threshold": result.threshold},
    )


def _finding(sample: JointSample, what: str, not_noise: str, details: Mapping[str, float]) -> Finding:
    return Finding(
        headline=f"{len(sample.outputs):,} outputs of {NUM_TOKENS} tokens{what}",
        table=_table(sample),
        not_noise=not_noise,
        where=(
            f"Prompt {list(sample.scenario.prompts[0])}, top-k {sample.scenario.sampling.top_k}.",
            *_by_place(sample),
        ),
        details=details,
    )


def _table(sample: JointSample) -> Table:
    """The outputs that miss or exceed their expectation most, in standard deviations."""
    gaps = (sample.counts - sample.expected) / np.sqrt(np.maximum(sample.expected, 1e-12))
    worst = sorted(range(len(gaps)), key=lambda index: -abs(gaps[index]))[:_SHOWN]
    rows = [("output", "seen", "expected", "deviations")]
    for index in worst:
        output = " ".join(map(str, sample.outcomes[index]))
        rows.append((output, f"{sample.counts[index]:.0f}", f"{sample.expected[index]:.0f}", f"{gaps[index]:+.1f}"))
    return Table(rows=rows)


def _by_place(sample: JointSample) -> Iterator[str]:
    """At which new token it goes wrong first: the law of token i given those before it, averaged over what came."""
    seen = Counter(sample.outputs)
    for place in range(NUM_TOKENS):
        distance = 0.0
        following: dict[Tokens, Counter[int]] = {}
        for output, times in seen.items():
            if len(output) > place:
                following.setdefault(output[:place], Counter())[output[place]] += times
        noise_level = 0.0
        for prefix, tokens in following.items():
            times = sum(tokens.values())
            law = sample.target(prefix)
            observed = np.zeros_like(law)
            for token, count in tokens.items():
                if 0 <= token < len(observed):
                    observed[token] = count / times
            distance += times / len(sample.outputs) * noise.total_variation(observed, law)
            support = int((law > 0.0).sum())
            noise_level += times / len(sample.outputs) * math.sqrt(support / (2.0 * math.pi * times))
        verdict = "wrong" if distance > 4.0 * noise_level else "as it should be"
        source = "from prefill" if place == 0 else "from verification"
        yield f"New token {place} ({source}): off by {distance:.3f}, luck explains {noise_level:.3f}: {verdict}."
