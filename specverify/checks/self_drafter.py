"""The sharpest sign of a draft side gone wrong: a draft model that is the target itself gets something rejected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.checks import evidence, noise, own_sampling, places, wording
from specverify.checks.evidence import Run
from specverify.checks.long_runs import standard_then_long
from specverify.checks.places import Place
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.laws.sampling import law_from_logits

Array = NDArray[np.float64]

_MOST_REJECTIONS = 64


@check(
    "acceptance.self-drafter-accepts",
    claim="A draft model that is the target itself gets every draft token accepted.",
    kind=Kind.EXACT,
    needs={Capability.TRACE, Capability.SCRIPTED_PROPOSER},
    exercised_by=(Exercised("drafted-tokens"),),
    catches=(
        "draft-kv-missing-last-accepted",
        "position-draft-ahead",
        "draft-position-stops-at-96",
        "draft-placeholder-beyond-its-context",
    ),
    source="vllm-project/vllm#8783; the sharpest sign of a draft cache or draft positions gone wrong",
)
def self_drafter_accepts(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Greedy, draft model = target: draft and verification are the same numbers, so nothing may be rejected.

    The texts are the standard ones, and long ones in company. A rejection is excused only where the target's two best
    tokens are closer than rounding. With sampling, where both laws are recorded, the two must be equal row by row (a
    rule that accepts less than it could is lossless all the same, so sampled rejections are not counted). Inconclusive
    where the laws show that the drafter samples in a way of its own, and it does not declare that (draft_sampling).
    """
    tolerance, allowed = 2.0 * noise.log_prob_noise(subject, context), noise.row_allowance(subject)
    seen: list[Place] = []
    rejected: list[Place] = []
    apart: list[tuple[float, Place]] = []
    for runs in standard_then_long(subject, context):
        drafted = [p for p in places.all_places(_of_self_drafter(subject, runs)) if p.step.num_draft_tokens]
        seen += drafted
        rejections = [p for p in drafted if p.run.sampling.is_greedy and p.step.is_rejection and not _was_drawn(p)]
        apart += [(gap, place) for place in drafted if (gap := _law_gap(subject, place, allowed)) > allowed]
        # Each is looked at with the whole text before it: enough of them to see whether they are near ties.
        rejected += rejections[:: -(-len(rejections) // _MOST_REJECTIONS) or 1]
        bugs = [place for place in rejected if not _is_near_tie(subject, place, tolerance)]
        if bugs or apart:
            break
    if not seen:
        raise Inconclusive("the self drafter drafted nothing")
    places.count_steps(context, seen)
    if bugs:
        yield _rejection_finding(bugs, rejected, seen, tolerance)
    elif apart:
        undeclared = own_sampling.undeclared_text(subject, *_plain_rows(seen), allowed)
        if undeclared:
            raise Inconclusive(undeclared)
        yield _gap_finding(apart, seen, allowed)
    ties = f"; {len(rejected)} near ties explained" if rejected else ""
    context.worth(f"{context.counters['drafted-tokens']:,} draft tokens of the self drafter{ties}")


def _of_self_drafter(subject: Any, runs: Sequence[Run]) -> list[Run]:
    is_own = getattr(subject, "proposer", "") == "self"
    return [run for run in runs if run.drafter == "self" or (run.drafter == "recorded" and is_own)]


def _was_drawn(place: Place) -> bool:
    """Whether the drafter drew the rejected token, although the request is greedy, and declares that it did."""
    step, index = place.step, place.step.num_accepted
    if step.draft_probs is None:
        return False
    law = np.asarray(step.draft_probs, dtype=np.float64)[index]
    return bool(law[step.draft_token_ids[index]] < law.max())


def _both_laws(place: Place) -> tuple[Array, Array] | None:
    """The draft's and the target's rows [k, vocab] of one sampled step, where both are recorded."""
    step = place.step
    if place.run.sampling.is_greedy or step.draft_probs is None or step.target_probs is None:
        return None
    draft = np.asarray(step.draft_probs, dtype=np.float64)
    return draft, np.asarray(step.target_probs, dtype=np.float64)[: len(draft)]


def _plain_rows(seen: Sequence[Place]) -> tuple[list[Array], list[Array]]:
    """All such rows of plain sampling, draft's and target's."""
    pairs = [_both_laws(place) for place in seen if place.trace.request.sampling == evidence.SAMPLED]
    rows = [row for pair in pairs if pair is not None for row in zip(*pair, strict=True)]
    return [draft for draft, _ in rows], [target for _, target in rows]


def _law_gap(subject: Any, place: Place, allowed: float) -> float:
    """Largest total variation between the draft's and the target's row at one place.

    Greedy rows are not compared, nor those of a drafter that takes its likeliest token and declares that. A drafter
    that declares a way of sampling of its own is held to that, in plain sampling, where the target's row tells it.
    """
    laws = _both_laws(place)
    asked = place.trace.request.sampling
    sampling = own_sampling.draft_sampling(subject, asked)
    if laws is None or (sampling != asked and asked != evidence.SAMPLED):
        return 0.0
    draft, target = laws
    if sampling != asked:
        with np.errstate(divide="ignore"):
            target = law_from_logits(np.log(target), sampling)
    drawn = [not noise.is_point_mass_on_best(one, row, allowed) for one, row in zip(draft, target, strict=True)]
    return float((0.5 * np.abs(draft - target).sum(axis=1) * drawn).max())


def _is_near_tie(subject: Any, place: Place, tolerance: float) -> bool:
    """Whether draft token and replacement are both as good as the best one."""
    step, index = place.step, place.step.num_accepted
    prompt = place.trace.request.prompt_token_ids
    output = (*places.committed_token_ids(place.trace)[len(prompt) : step.start_position], *step.token_ids[:index])
    log_probs = noise.next_log_probs(subject, prompt, output)
    if log_probs is None or index >= len(step.token_ids):
        return noise.dtype_of(subject) not in ("float64", "float32")
    return noise.are_near_best(log_probs, (step.draft_token_ids[index], step.token_ids[index]), tolerance)


def _rejection_finding(
    bugs: Sequence[Place], rejected: Sequence[Place], seen: Sequence[Place], tolerance: float
) -> Finding:
    place = places.smallest(bugs)
    step = place.step
    drafted = sum(p.step.num_draft_tokens for p in seen if p.run.sampling.is_greedy)
    accepted = sum(p.step.num_accepted for p in seen if p.run.sampling.is_greedy)
    return Finding(
        headline=f"Step {step.index} rejected draft token {step.num_accepted}, although target and draft model are the "
        "same.",
        table=Table(
            rows=(
                ("draft", *wording.token_text(step.draft_token_ids)),
                ("committed", *wording.token_text(step.token_ids)),
                ("accepted in all", f"{accepted:,} of {drafted:,}", "should be all"),
            )
        ),
        not_noise=f"Not a near tie: rounding explains {tolerance:.1g} in log-probability, the two tokens are further "
        "apart.",
        where=(
            f"Seen in: {place.describe()}; {len(bugs)} of {len(rejected)} rejections are no near tie.",
            places.where_it_begins(bugs, [p for p in seen if p.run.sampling.is_greedy]),
        ),
        details={"accepted": accepted, "drafted": drafted},
    )


def _gap_finding(apart: Sequence[tuple[float, Place]], seen: Sequence[Place], allowed: float) -> Finding:
    place = places.smallest([place for _, place in apart])
    gap = next(gap for gap, other in apart if other is place)
    return Finding(
        headline=f"Step {place.step.index}: draft law and target law differ, although both are the same model.",
        table=Table(rows=(("total variation", f"{gap:.3g}", f"allowed {allowed:.1g}"),)),
        not_noise="Both are computed by the same weights on the same text.",
        where=(
            f"Seen in: {place.describe()}; {len(apart)} of {len(seen)} steps.",
            places.where_it_begins([p for _, p in apart], seen),
        ),
    )
