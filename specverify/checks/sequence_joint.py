"""Whole short outputs against the target's joint law: an e-value over all joint cells, and a planned chi-square."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.checks import evidence, noise, samples
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.scenario import Purpose, Scenario
from specverify.core.types import SamplingParams, Trace
from specverify.laws.sequence import sequence_law
from specverify.laws.tree import Conditional
from specverify.stats.chi_square import ChiSquareDesign, ChiSquareResult, counted
from specverify.stats.design import detectable_tv
from specverify.stats.dirichlet import DirichletEValue

Tokens = tuple[int, ...]

# The first token comes from prefill; two more make a joint law of verified tokens, in one step or across two.
NUM_TOKENS = 3
# Few tokens a place keep the joint cells few, and most outcomes frequent.
_TOP_K = 3
_TOP_K_UNBATCHED = 2
# What the sample is planned to show: engines that decode one request at a time get a coarser plan.
BATCHED_TV = 0.15
UNBATCHED_TV = 0.2
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class JointSample:
    """Outputs of one request, drawn again and again. law: the target's, by output; outcomes: its keys in order."""

    scenario: Scenario
    target: Conditional
    outcomes: tuple[Tokens, ...]
    law: NDArray[np.float64]
    outputs: tuple[Tokens, ...]
    counts: NDArray[np.float64]
    num_outside: int
    design: ChiSquareDesign
    activity: Counter[str]

    @property
    def expected(self) -> NDArray[np.float64]:
        return self.law * len(self.outputs)


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
    _count(sample, context)
    impossible = _impossible(sample, subject)
    if impossible:
        yield _impossible_finding(sample, impossible)
        return
    process = DirichletEValue(sample.law)
    process.update(sample.counts)
    alarm = -math.log(context.alpha)
    context.figures.update(log_e=process.log_e, num_outputs=len(sample.outputs))
    if process.log_e >= alarm:
        yield _joint_finding(sample, process.log_e, alarm)
        return
    _require_activity(sample)
    tv = detectable_tv(context.alpha, len(sample.outputs), len(sample.outcomes))
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
    _count(sample, context)
    impossible = _impossible(sample, subject)
    if impossible:
        yield _impossible_finding(sample, impossible)
        return
    planned = sample.design
    result = planned.judge(sample.counts, num_outside=sample.num_outside)
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
    context.worth(
        f"{len(sample.outputs):,} outputs, {result.df + 1} bins; chi-square {result.statistic:.1f}, allowed "
        f"{result.threshold:.1f}; would have caught total variation {planned.detectable_tv:.2g}"
    )


def joint_sample(subject: Any, context: CheckContext) -> JointSample:
    """The outputs both checks (and lossless.on-equals-off) judge, drawn once."""
    return evidence.once(context, "samples/joint", lambda: _draw(subject, context))


def _draw(subject: Any, context: CheckContext) -> JointSample:
    is_batched = Capability.BATCH in subject.capabilities
    wanted = (BATCHED_TV if is_batched else UNBATCHED_TV) / math.sqrt(context.effort)
    rounding = noise.floor(noise.LAW_FLOOR, subject)
    if 4.0 * rounding > wanted:
        raise Inconclusive(
            f"the laws of a {noise.dtype_of(subject)} engine may be off by {rounding:g}, too much for a test that sees "
            f"{wanted:.2g}; lossless.sequence-stream allows for rounding"
        )
    sampling = SamplingParams(top_k=_TOP_K if is_batched else _TOP_K_UNBATCHED)
    prompt = _liveliest_prompt(subject, sampling, context)
    scenario = Scenario("joint", Purpose.STREAM, sampling, (prompt,), NUM_TOKENS)
    target: Conditional = subject.checkpoint.target_oracle.conditional(prompt, sampling)
    law = sequence_law(target, NUM_TOKENS)
    outcomes = tuple(law)
    probabilities = np.fromiter(law.values(), np.float64, len(law))
    design = ChiSquareDesign(probabilities, context.alpha, min(wanted, 0.9))
    outputs: list[Tokens] = []
    activity: Counter[str] = Counter()
    for traces in samples.rounds(subject, scenario, context, name="sequence-joint"):
        context.progress("short outputs", len(outputs), design.num_samples)
        room = design.num_samples - len(outputs)
        outputs += [tuple(trace.token_ids[:NUM_TOKENS]) for trace in traces[:room]]
        _count_activity(activity, traces)
        if len(outputs) >= design.num_samples:
            break
    counts, num_outside = counted(outcomes, outputs)
    return JointSample(scenario, target, outcomes, probabilities, tuple(outputs), counts, num_outside, design, activity)


def _liveliest_prompt(subject: Any, sampling: SamplingParams, context: CheckContext) -> Tokens:
    """The prompt after which the target is least certain: peaked laws hide errors.

    Prompts after which the filter's edge is a matter of rounding come last: there the joint law is not one law.
    """
    edge = 4.0 * samples.Scorer(subject).edge

    def merit(prompt: Tokens) -> tuple[bool, float]:
        oracle = subject.checkpoint.target_oracle
        law = sequence_law(oracle.conditional(prompt, sampling), NUM_TOKENS)
        entropy = -sum(p * math.log(p) for p in law.values() if p > 0.0)
        texts = [(*prompt, *prefix) for prefix in {output[:place] for output in law for place in range(NUM_TOKENS)}]
        gaps = []
        for logits in oracle.batch_logits(texts):
            ranked = np.sort(logits[-1])[::-1]
            gaps.append(float(ranked[sampling.top_k - 1] - ranked[sampling.top_k]))
        return min(gaps) > edge, entropy

    repetitive = [prompt for prompt in evidence.standard_prompts(subject, context) if len(set(prompt)) < len(prompt)]
    return max(repetitive or evidence.standard_prompts(subject, context), key=merit)


def _count_activity(activity: Counter[str], traces: Sequence[Trace]) -> None:
    for trace in traces:
        drafted = sum(step.num_draft_tokens for step in trace.steps) or trace.num_proposed or 0
        accepted = sum(step.num_accepted for step in trace.steps) or trace.num_accepted or 0
        activity["drafted"] += drafted
        activity["accepted"] += accepted
        activity["told"] += bool(trace.steps) or trace.num_proposed is not None


def _count(sample: JointSample, context: CheckContext) -> None:
    context.exercised("sampled-outputs", len(sample.outputs))
    context.exercised("drafted-tokens", sample.activity["drafted"])
    context.exercised("accepted-tokens", sample.activity["accepted"])


def _require_activity(sample: JointSample) -> None:
    if sample.activity["told"] and not sample.activity["drafted"]:
        raise Inconclusive(f"{len(sample.outputs):,} outputs follow the target's law, but nothing was drafted")


def _impossible(sample: JointSample, subject: Any) -> list[Tokens]:
    """Outputs of probability zero that no rounding at the filter's edge explains."""
    known = set(sample.outcomes)
    strangers = [output for output in dict.fromkeys(sample.outputs) if output not in known]
    scorer = samples.Scorer(subject)
    request = sample.scenario.request(0)
    found = []
    for output in strangers:
        trace = Trace(request, output)
        if len(output) < NUM_TOKENS or scorer.score([trace], num_draft_tokens=1).impossible:
            found.append(output)
    return found


def _impossible_finding(sample: JointSample, impossible: Sequence[Tokens]) -> Finding:
    seen = Counter(sample.outputs)
    worst = max(impossible, key=lambda output: seen[output])
    return Finding(
        headline=f"Output {list(worst)} came, which the target cannot produce.",
        table=Table(rows=[("output", "times seen"), *((str(list(o)), str(seen[o])) for o in impossible[:_SHOWN])]),
        not_noise="A proof, not a statistic: its probability is 0.",
        where=(f"Prompt {list(sample.scenario.prompts[0])}, top-k {sample.scenario.sampling.top_k}.",),
        details={"impossible": len(impossible)},
    )


def _joint_finding(sample: JointSample, log_e: float, alarm: float) -> Finding:
    share = sample.counts / max(1.0, sample.counts.sum())
    return Finding(
        headline=f"{len(sample.outputs):,} outputs of {NUM_TOKENS} tokens do not follow the target's joint law; "
        f"total variation about {noise.total_variation(share, sample.law):.3g}.",
        table=_table(sample),
        not_noise=f"Not luck: log e-value {log_e:.1f}; a lossless engine reaches {alarm:.1f} once in "
        f"10^{alarm / math.log(10):.0f} runs.",
        where=(
            f"Prompt {list(sample.scenario.prompts[0])}, top-k {sample.scenario.sampling.top_k}.",
            *_by_place(sample),
        ),
        details={"log_e": log_e, "num_outputs": len(sample.outputs)},
    )


def _chi_square_finding(sample: JointSample, result: ChiSquareResult, context: CheckContext) -> Finding:
    return Finding(
        headline=f"{len(sample.outputs):,} outputs of {NUM_TOKENS} tokens: chi-square {result.statistic:.0f} on "
        f"{result.df} degrees of freedom, allowed {result.threshold:.0f}.",
        table=_table(sample),
        not_noise=f"Not luck: the allowed value is reached with a chance of at most {context.alpha:.0e}, proven for "
        f"this sample size. The asymptotic p-value is {result.asymptotic_p_value:.0e}.",
        where=(
            f"Prompt {list(sample.scenario.prompts[0])}, top-k {sample.scenario.sampling.top_k}.",
            *_by_place(sample),
        ),
        details={"chi_square": result.statistic, "threshold": result.threshold},
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
