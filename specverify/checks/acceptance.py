"""Acceptance is the only visible sign of a draft side that is wrong: it must be what the two laws imply."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.checks import accept_rules, evidence, places, power, samples
from specverify.checks.draft_rows import oracle_rows, stale_draft_law
from specverify.checks.places import Place
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.stats.design import detectable_tv
from specverify.stats.dirichlet import DirichletEValue

Array = NDArray[np.float64]

_NO_LAWS = "neither the traces nor a probe checkpoint tell both laws"
_BINS = 10


@dataclass(frozen=True, eq=False)
class _Judged:
    """One step with the laws it is judged by."""

    place: Place
    draft_probs: Array | None
    target_probs: Array


@check(
    "acceptance.matches-laws",
    claim="Draft tokens are accepted as often as draft and target law imply, and the draft law is the draft model's.",
    kind=Kind.STATISTICAL,
    needs={Capability.TRACE},
    exercised_by=(Exercised("judged-steps"),),
    catches=(
        "draft-kv-row-stale",
        "draft-kv-rollback-one-short",
        "accept-all",
        "accept-uniform-zero",
        "draft-id-map-lost",
        "draft-quantised-scale-missing",
        "draft-rotary-stretched",
        "draft-rotary-yarn",
        "tree-siblings-tried-against-target",
        "typical-acceptance-undeclared",
    ),
    source="arXiv 2211.17192, theorem 3.5: acceptance is the sum of min(draft, target); mlc-ai/mlc-llm#2939",
)
def matches_laws(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Two claims about the same steps.

    Where the drafter is the probe's draft model and declares its laws, each row declared in plain sampling must be the
    draft model's law after the true text, by the float64 oracle. Stale rows and wrong positions of the draft side show
    here. And the number of accepted tokens must follow one of the lossless rules (token by token, point mass, block),
    given both laws: an e-value for each rule, and only what refutes all of them counts. Inconclusive where the drafter
    samples in a way of its own, and does not declare that (draft_sampling).
    """
    scorer = samples.Scorer(subject)
    if not (scorer.has_oracle or Capability.TARGET_PROBS in subject.capabilities or evidence.is_recorded(subject)):
        raise Inconclusive(_NO_LAWS)  # before thousands of tokens are generated for nothing
    seen = [p for p in places.all_places(evidence.drafting_runs(subject, context)) if p.step.num_draft_tokens]
    if not seen:
        raise Inconclusive("nothing was drafted in the sampled runs")
    places.count_steps(context, seen)
    judged = _with_laws(seen, scorer)
    if not judged:
        raise Inconclusive(_NO_LAWS)
    context.exercised("judged-steps", len(judged))
    stale = stale_draft_law(seen, scorer, subject)
    if isinstance(stale, Finding):
        yield stale
        return
    rng = context.streams.generator("acceptance", "transform")
    evidences = _evidence_by_rule(judged, rng)
    alarm = -math.log(context.alpha)
    context.figures["log_e_by_rule"] = evidences
    if min(evidences.values()) >= alarm:
        yield _rate_finding(judged, evidences, alarm)
        return
    if stale is not None:
        raise Inconclusive(stale)
    rule = min(evidences, key=lambda name: evidences[name])
    observed, expected = _mean_accepted(judged, rule)
    efficiency = _efficiency(judged)
    tv = power.require(
        context, len(judged), lambda steps: detectable_tv(context.alpha, steps, _BINS),
        things="steps with a draft", how=power.more_drafts(subject), subject=subject,
    )  # fmt: skip
    context.figures.update(rule=rule, mean_accepted=observed, expected_accepted=expected, efficiency=efficiency)
    context.worth(
        f"{len(judged):,} steps accept {observed:.2f} draft tokens on average, the {rule} rule implies {expected:.2f}; "
        f"would have caught total variation {tv:.2g} of the number accepted"
        + (f"; sum of min(draft, target) at the first place {efficiency:.3f}" if efficiency is not None else "")
    )


def _with_laws(seen: Sequence[Place], scorer: samples.Scorer) -> list[_Judged]:
    """Laws as recorded; else by the oracle, where the drafter is the probe's draft model or declares no law at all."""
    needs_target = [p for p in seen if p.step.target_probs is None]
    if needs_target and not scorer.has_oracle:
        seen = [p for p in seen if p.step.target_probs is not None]
    seen = [p for p in seen if p.step.target_probs is not None or p.step.parents is None]
    knows_draft = Capability.DRAFT_PROBS in scorer.subject.capabilities or not scorer.has_draft_oracle
    targets = oracle_rows(seen, scorer.checkpoint.target_oracle, final=True) if needs_target and seen else None
    drafts = None if knows_draft else _draft_rows(seen, scorer)
    judged = []
    for index, place in enumerate(seen):
        target = place.step.target_probs if targets is None else targets[index]
        draft = place.step.draft_probs if drafts is None else drafts[index]
        judged.append(_Judged(place, None if draft is None else np.asarray(draft, np.float64), np.asarray(target)))
    return judged


def _draft_rows(seen: Sequence[Place], scorer: samples.Scorer) -> list[Array]:
    return oracle_rows(seen, scorer.checkpoint.draft_oracle, final=False, subject=scorer.subject)


def _evidence_by_rule(judged: Sequence[_Judged], rng: np.random.Generator) -> dict[str, float]:
    """Log e-value against each rule that could be in use in every step."""
    uniforms: dict[str, list[float]] = {}
    for item in judged:
        for name, law in _laws(item).items():
            accepted = item.place.step.num_accepted
            uniforms.setdefault(name, []).append(float(law[:accepted].sum() + rng.random() * law[accepted]))
    complete = {name: values for name, values in uniforms.items() if len(values) == len(judged)}
    evidences = {}
    for name, values in complete.items():
        process = DirichletEValue(np.full(_BINS, 1.0 / _BINS))
        process.update_outcomes(np.clip((np.asarray(values) * _BINS).astype(int), 0, _BINS - 1))
        # More tokens accepted than the law allows at all is a proof, wherever its uniform falls.
        impossible = any(_laws(item)[name][item.place.step.num_accepted] <= 0.0 for item in judged)
        evidences[name] = math.inf if impossible else process.log_e
    return evidences


def _laws(item: _Judged) -> Mapping[str, Array]:
    return accept_rules.accepted_laws(item.place.step, item.draft_probs, item.target_probs)


def _mean_accepted(judged: Sequence[_Judged], rule: str) -> tuple[float, float]:
    observed = float(np.mean([item.place.step.num_accepted for item in judged]))
    expected = float(np.mean([float(law @ np.arange(len(law))) for item in judged for law in [_laws(item)[rule]]]))
    return observed, expected


def _efficiency(judged: Sequence[_Judged]) -> float | None:
    """Mean over steps of the sum of min(draft, target) at the first place; None without draft laws."""
    sums = [
        float(np.minimum(item.draft_probs[0], item.target_probs[0]).sum())
        for item in judged
        if item.draft_probs is not None
    ]
    return float(np.mean(sums)) if sums else None


def _rate_finding(judged: Sequence[_Judged], evidences: Mapping[str, float], alarm: float) -> Finding:
    rows = [("rule", "accepted a step", "log e-value against it")]
    observed = 0.0
    for name, log_e in evidences.items():
        observed, expected = _mean_accepted(judged, name)
        rows.append((name, f"{expected:.3f}", "impossible" if math.isinf(log_e) else f"{log_e:.1f}"))
    rows.append(("observed", f"{observed:.3f}", f"alarm from {alarm:.1f}"))
    always = all(not item.place.step.is_rejection for item in judged)
    return Finding(
        headline=f"{len(judged):,} steps accept {observed:.2f} draft tokens on average; no lossless rule does so here.",
        table=Table(rows=rows),
        not_noise=f"Not luck: each rule alone is refuted; the right one would be once in "
        f"10^{alarm / math.log(10):.0f} runs.",
        where=("Acceptance implied by the recorded laws, draft token by draft token.",),
        likely_cause="every draft token is accepted, whatever the laws say." if always else "",
        details={"observed": observed},
    )
