"""The law of a verify step against the target's: enumerated where its randomness can be controlled, else sampled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np

from specverify.checks import step_halves
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.checks.step_enumerate import StepResult, enumerate_step, enumerate_steps
from specverify.checks.step_explain import law_finding, likely_cause
from specverify.checks.step_lattice import lattice_report
from specverify.checks.step_precision import Precision, is_wrong, measured_precision
from specverify.checks.step_sample import SampledStep, require_power, sample_step
from specverify.checks.step_scenarios import scenarios_for
from specverify.checks.step_subject import Scenario, VerifySubject
from specverify.checks.step_temperature import at_another_temperature
from specverify.core.capabilities import Capability
from specverify.core.errors import SubjectCrashed
from specverify.core.outcomes import Finding, Kind
from specverify.exact.errors import NotEnumerable
from specverify.exact.lattice import LatticeReport
from specverify.laws.residual import acceptance_efficiency

# Where not all cases can be enumerated together, as many as fit into this time are, one by one.
_ONE_BY_ONE_SECONDS = 20.0
# Cases sampled after the one that was refuted.
_MORE_CASES = 4


@dataclass
class _Evidence:
    """What the cases of one function gave. finer: see step_halves. crash: what ended them early; those before count.

    note: something to say of a function that passes.
    """

    exact: list[StepResult] = field(default_factory=list)
    finer: list[StepResult] = field(default_factory=list)
    sampled: list[SampledStep] = field(default_factory=list)
    reason: str = ""
    lattice: LatticeReport | None = None
    crash: SubjectCrashed | None = None
    note: str = ""


_Pair = tuple[StepResult, StepResult | None]
"""A case, and the same one with finer random numbers where there is one."""


@check(
    "lossless.step-law",
    claim="A verify step must emit tokens with the target model's probabilities, whatever was drafted.",
    needs={Capability.VERIFY},
    kind=Kind.STATISTICAL,
    exercised_by=(Exercised("cases-with-a-rejection"), Exercised("cases-with-all-accepted")),
    catches=(
        "verify-ratio-inverted", "verify-accept-row-early", "verify-always-accepts",
        "verify-resamples-from-target", "verify-residual-not-clipped",
        "verify-residual-inverted", "verify-residual-argmax", "verify-residual-of-wrong-row",
        "verify-rejected-token-excluded", "verify-uniform-reused", "verify-residual-floor", "verify-bonus-of-last-row",
        "verify-bonus-argmax", "verify-target-rows-shifted", "verify-draft-rows-shifted", "verify-draft-temperature",
        "verify-top-p-on-target-only", "verify-accepts-slightly-more", "verify-target-in-bfloat16",
        "verify-target-in-float16", "verify-block-stops-at-first", "verify-mixes-draft-into-target",
        "verify-kept-after-rejection", "verify-uniform-shared-by-positions", "verify-uniform-is-zero",
        "verify-softmax-twice", "verify-greedy-for-all", "verify-rows-mixed-up", "verify-counts-every-flag",
        "verify-first-draft-unchecked", "verify-noise-reused", "verify-point-mass-keeps-draft",
        "verify-tree-siblings-against-target", "verify-tree-siblings-not-renormalised",
        "verify-tree-drawn-siblings-removed", "verify-uniform-in-bfloat16",
        "verify-uniform-cast-to-bfloat16", "verify-top-k-by-default", "verify-uniform-buffer-of-four",
        "verify-greedy-without-drafts", "verify-epsilon-in-ratio", "verify-bonus-behind-a-hole", "verify-ids-in-bytes",
        "verify-rows-of-one-length", "verify-temperature-twice", "verify-logits-as-log-probs",
    ),
    source="arXiv 2211.17192, appendix A.1; the criterion for any method: completed with tokens from the target, what "
    "a step emits must follow the target's sequence law",
)  # fmt: skip
def step_law(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """For every prefix that a step emits, the next token it emits must follow the target's law after that prefix.

    That holds for every lossless method (token-wise, block, point mass, several candidates, sampling and comparing)
    and for no other. The strongest mode that the function allows is used: all drafts and all its randomness
    enumerated, which gives its law exactly; else ordinary calls, judged by an e-process that may be continued at
    will. A function that is not told the draft law must be lossless for each draft by itself. Half precision is allowed
    for laws, not for random numbers: what the rounding of those costs is told apart, exactly.
    """
    evidence = _gather(subject, context)
    precision = measured_precision(subject, evidence.finer or evidence.exact, halves_are_fine=bool(evidence.finer))
    _count_exercised(evidence, context)
    # The longer cases are not compared once the shorter ones have shown what half precision does.
    pairs: list[_Pair] = list(zip(evidence.exact, evidence.finer or repeat(None), strict=False))
    wrong = [pair for pair in pairs if is_wrong(pair[0], precision) or step_halves.is_lost(*pair)]
    wrong_sampled = [sampled for sampled in evidence.sampled if sampled.is_refuted]
    context.figures.update(_figures(evidence, precision))
    if wrong or wrong_sampled:
        yield _finding(evidence, wrong, wrong_sampled, precision)
        return
    if evidence.crash is not None:
        raise evidence.crash
    require_power(context, [] if evidence.exact else evidence.sampled)
    context.worth(_worth(evidence, precision, batch_refusal=subject.batch_refusal))


def _gather(subject: VerifySubject, context: CheckContext) -> _Evidence:
    """Every case, each in the strongest mode: enumerated, on a lattice of uniforms, or sampled."""
    evidence = _Evidence()
    scenarios = list(scenarios_for(subject))
    context.progress("enumerating verify steps", 0, len(scenarios))
    left: list[Scenario] = []
    try:
        evidence.exact = enumerate_steps(subject, scenarios)
    except NotEnumerable as error:
        evidence.reason = str(error)
        evidence.exact, left, evidence.crash = _one_by_one(subject, scenarios, context)
    except SubjectCrashed as crash:
        evidence.exact, _, evidence.crash = _one_by_one(subject, scenarios, context)
        evidence.crash = evidence.crash or crash
    evidence.finer = step_halves.with_finer_draws(subject, evidence.exact)
    if evidence.exact and not (evidence.reason or evidence.crash):
        tempered, evidence.note = at_another_temperature(subject)
        evidence.exact += tempered
    if evidence.crash is not None:
        return evidence
    context.shared["step-not-enumerable"] = evidence.reason
    if evidence.reason and subject.takes_all_uniforms and subject.takes_draft_law and not subject.decides_only:
        evidence.lattice = lattice_report(subject)
        if not evidence.lattice.failures:
            left = []
    num_after = 0
    for number, scenario in enumerate(left if evidence.reason else ()):
        context.progress("sampling verify steps", number, len(left))
        streams = context.streams.generator("lossless.step-law", number)
        alpha = context.alpha / max(1, len(left))
        try:
            evidence.sampled.append(sample_step(subject, scenario, streams, alpha=alpha, effort=context.effort))
        except SubjectCrashed as crash:
            evidence.crash = crash
            break
        # One case decides; some more tell which mistake it is.
        num_after += int(any(sampled.is_refuted for sampled in evidence.sampled))
        if num_after > _MORE_CASES:
            break
    if not (evidence.exact or evidence.sampled or evidence.lattice or evidence.crash):
        raise Inconclusive("no case could be run")
    return evidence


def _one_by_one(
    subject: VerifySubject, scenarios: list[Scenario], context: CheckContext
) -> tuple[list[StepResult], list[Scenario], SubjectCrashed | None]:
    """What can be enumerated alone, and what is left: everything from the first case that cannot, or that crashes."""
    exact: list[StepResult] = []
    started = time.monotonic()
    for number, scenario in enumerate(scenarios):
        context.progress("enumerating verify steps", number, len(scenarios))
        try:
            seconds_left = _ONE_BY_ONE_SECONDS - (time.monotonic() - started)
            if seconds_left > 0.0:
                exact.append(enumerate_step(subject, scenario, max_seconds=seconds_left))
                continue
        except NotEnumerable:
            pass
        except SubjectCrashed as crash:
            return exact, scenarios[number:], crash
        return exact, scenarios[number:], None
    return exact, [], None


def _count_exercised(evidence: _Evidence, context: CheckContext) -> None:
    if evidence.lattice is not None and not evidence.lattice.failures:
        # The lattice's laws reject and accept every draft somewhere.
        context.exercised("cases-with-a-rejection")
        context.exercised("cases-with-all-accepted")
    for result in [*evidence.exact, *(sampled.result for sampled in evidence.sampled)]:
        rejections = [result.scenario.is_rejection(drafted, emitted) for drafted, emitted, _ in result.joint]
        if any(rejections):
            context.exercised("cases-with-a-rejection")
        if not all(rejections):
            context.exercised("cases-with-all-accepted")


def _finding(
    evidence: _Evidence, wrong: list[_Pair], wrong_sampled: list[SampledStep], precision: Precision
) -> Finding:
    total = len(evidence.finer or evidence.exact) + len(evidence.sampled)
    others = f"Wrong in {len(wrong) + len(wrong_sampled)} of the {total} cases tried."
    if evidence.crash is not None:
        others += f" Then it crashed: {evidence.crash}."
    if wrong:
        first, finer = wrong[0]
        not_noise, cause = step_halves.reasons(first, finer, evidence.finer or evidence.exact, precision)
        return law_finding(first, not_noise=not_noise, likely_cause=cause, others=others)
    sampled = wrong_sampled[0]
    not_noise = (
        f"Not noise. Evidence against losslessness e^{sampled.log_e:.0f}, where a lossless function passes "
        f"e^{sampled.log_limit:.0f} less than once in {np.exp(sampled.log_limit):.0e} runs. Its law could not be "
        f"enumerated: {evidence.reason}."
    )
    cause = likely_cause([one.result for one in evidence.sampled], sampled.result, tolerance=precision.tolerance)
    return law_finding(
        sampled.result, not_noise=not_noise, likely_cause=cause, others=others,
        num_samples=sampled.result.num_samples, prefix=sampled.suspect,
    )  # fmt: skip


def _worth(evidence: _Evidence, precision: Precision, *, batch_refusal: str) -> str:
    parts, why = [], f"Its law could not be enumerated: {evidence.reason}"
    if evidence.exact:
        largest = max(result.distance.tv for result in evidence.exact)
        runs = sum(result.num_runs for result in evidence.exact)
        parts.append(
            f"exact law in {len(evidence.exact)} cases, {runs:,} runs; total variation at most {largest:.1g}, "
            f"allowed {precision.tolerance:.0e} ({precision.reason})"
        )
    if evidence.sampled:
        calls = sum(sampled.result.num_samples for sampled in evidence.sampled)
        worst = max(sampled.detectable_tv for sampled in evidence.sampled)
        parts.append(
            f"not refuted in {len(evidence.sampled)} cases, {calls:,} calls; would have caught total variation "
            f"{worst:.2g}. {why}"
        )
    if evidence.lattice is not None and not evidence.lattice.failures:
        parts.append(f"every count right on a lattice of uniforms, {evidence.lattice.num_calls:,} calls. {why}")
    if batch_refusal:
        parts.append(f"batches were not judged: a call on two rows ends in {batch_refusal}")
    notes = [note for note in (evidence.note, _acceptance_note(evidence.exact)) if note]
    return "; ".join([*parts, *notes])


def _acceptance_note(results: list[StepResult]) -> str:
    """Says where a lossless rule accepts less than it could: correct, but slower than need be."""
    ratios = []
    for scenario, joint in ((result.scenario, result.joint) for result in results):
        if scenario.is_told and scenario.is_chain and scenario.num_drawn:
            accepted = sum(chance for (drafted, emitted, _), chance in joint.items() if emitted[:1] == drafted[:1])
            ratios.append((accepted, float(acceptance_efficiency(scenario.draft(()), scenario.target(())))))
    got, possible = min(ratios, key=lambda pair: pair[0] - pair[1], default=(1.0, 1.0))
    if got > possible - 1e-3:
        return ""
    return f"accepts a first draft token with {got:.3f} where {possible:.3f} is possible: lossless, but slower"


def _figures(evidence: _Evidence, precision: Precision) -> dict[str, Any]:
    exact = "enumeration" if evidence.exact and evidence.lattice is None else "lattice"
    return {
        "mode": "e-process" if evidence.sampled else exact,
        "not_enumerable": evidence.reason,
        "tolerance": precision.tolerance,
        "cases": [
            {"name": result.scenario.name, "size": result.scenario.size, "total_variation": result.distance.tv,
             "runs": result.num_runs}
            for result in evidence.exact
        ] + [
            {"name": sampled.result.scenario.name, "size": sampled.result.scenario.size, "log_e": sampled.log_e,
             "log_limit": sampled.log_limit, "calls": sampled.result.num_samples,
             "detectable_total_variation": sampled.detectable_tv}
            for sampled in evidence.sampled
        ],
    }  # fmt: skip
