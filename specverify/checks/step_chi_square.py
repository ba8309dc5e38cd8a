"""Pearson's chi-square on a planned number of ordinary calls, against the target's law of whole continuations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from specverify.checks.registry import CheckContext, Exercised, check
from specverify.checks.step_enumerate import judged
from specverify.checks.step_explain import law_finding, likely_cause
from specverify.checks.step_sample import Caller
from specverify.checks.step_scenarios import adapted, chi_square_scenario
from specverify.checks.step_subject import Joint, Scenario
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind
from specverify.laws.sequence import sequence_law
from specverify.stats.chi_square import ChiSquareDesign, counted, design_for_law

# The error that the sample is planned to show; the number of calls grows with one over its square.
DETECTABLE_TV = 0.1
# Calls where the target allows a single continuation: only impossible tokens can show then.
_CALLS_IF_CERTAIN = 1000


@check(
    "lossless.step-chi-square",
    claim="Continuations begun by a verify step and completed from the target must follow the target's law.",
    needs={Capability.VERIFY},
    kind=Kind.STATISTICAL,
    exercised_by=Exercised("rejections"),
    catches=(
        "verify-ratio-inverted", "verify-always-accepts", "verify-uniform-is-zero", "verify-first-draft-unchecked",
        "verify-residual-inverted", "verify-residual-of-wrong-row", "verify-residual-not-clipped",
        "verify-target-rows-shifted", "verify-bonus-of-last-row", "verify-softmax-twice", "verify-greedy-for-all",
    ),
    source="Bousquet 2002, theorem 2.3, for the threshold; arXiv 2211.17192, appendix A.1, for the claim",
)  # fmt: skip
def step_chi_square(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """A fixed sample: planned before it is drawn, from the alarm budget and the error that it has to show.

    Every call's tokens are completed with tokens from the target up to one more than the draft, and the counts of
    whole continuations are compared with the target's law. Bins are pooled by expectation alone, impossible
    continuations are counted apart, and the threshold is a theorem rather than an asymptotic p-value.
    """
    scenario = adapted(chi_square_scenario(), subject)
    law = sequence_law(scenario.target, scenario.num_draft_tokens + 1)
    generator = context.streams.generator("lossless.step-chi-square")
    caller = Caller(subject, scenario, generator)
    design: ChiSquareDesign | None = None
    outcomes = list(law)
    num_samples = _CALLS_IF_CERTAIN
    if len(law) > 1:
        design, outcomes = design_for_law(law, context.alpha, DETECTABLE_TV / np.sqrt(context.effort))
        num_samples = design.num_samples
    joint: Joint = {}
    drawn = []
    for number, (drafted, emitted, count) in enumerate(caller.outcomes(num_samples)):
        if number % 512 == 0:
            context.progress("chi-square calls", number, num_samples)
        joint[drafted, emitted, count] = joint.get((drafted, emitted, count), 0.0) + 1.0 / num_samples
        if scenario.is_rejection(drafted, emitted):
            context.exercised("rejections")
        drawn.append(_completed(emitted, scenario, generator))
    counts, num_outside = counted(outcomes, drawn)
    if design is None:
        if num_outside:
            yield _finding(scenario, joint, num_samples, f"{num_outside} calls emitted what the target forbids.")
            return
        context.worth(f"{num_samples:,} calls, all with the only continuation that the target allows")
        return
    result = design.judge(counts, num_outside=num_outside)
    context.figures.update(
        statistic=result.statistic, threshold=result.threshold, degrees_of_freedom=result.df,
        num_impossible=result.num_impossible, asymptotic_p_value=result.asymptotic_p_value, num_samples=num_samples,
        pooled_mass=design.pooled_mass, detectable_tv=design.detectable_tv,
    )  # fmt: skip
    if result.is_alarm:
        impossible = f"; {result.num_impossible} continuations are impossible" if result.num_impossible else ""
        yield _finding(
            scenario, joint, num_samples,
            f"Not noise. Chi-square {result.statistic:.0f} on {result.df} degrees of freedom, where a lossless "
            f"function stays below {result.threshold:.0f} but for one run in {1 / context.alpha:.0e}{impossible}.",
        )  # fmt: skip
        return
    context.worth(
        f"{num_samples:,} calls, chi-square {result.statistic:.1f} of {result.threshold:.0f} allowed on {result.df} "
        f"degrees of freedom; would have caught total variation {design.detectable_tv:.2g}"
    )


def _finding(scenario: Scenario, joint: Joint, num_samples: int, not_noise: str) -> Finding:
    result = judged(scenario, joint, num_samples=num_samples)
    cause = likely_cause([result], result, tolerance=1.0)
    return law_finding(result, not_noise=not_noise, likely_cause=cause, num_samples=num_samples)


def _completed(emitted: tuple[int, ...], scenario: Scenario, generator: np.random.Generator) -> tuple[int, ...]:
    """What was emitted with tokens from the target behind it. Impossible tokens stay as they are."""
    horizon = scenario.num_draft_tokens + 1
    tokens = emitted[:horizon]
    if any(not 0 <= token < scenario.vocab_size for token in tokens):
        return tokens
    while len(tokens) < horizon:
        row = scenario.target(tokens)
        tokens += (int(generator.choice(len(row), p=row)),)
    return tokens
