"""The accept test draws numbers of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.checks import accept_rules, power
from specverify.checks.draft import drafting_places
from specverify.checks.places import Place
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.stats.combine import average_log_e
from specverify.stats.design import detectable_tv
from specverify.stats.dirichlet import DirichletEValue

Array = NDArray[np.float64]

_GRID = 5  # cells a side of the joint histogram of two uniforms
# Equal uniforms of two requests: in float32 three such pairs meet by chance far less often than once in 10^9 runs.
_LEAST_REPEATS = 3
_ALL_INSIDE = 0.999


@check(
    "random.draft-and-accept-independent",
    claim="The accept test uses randomness of its own, not the one that drew the draft token.",
    kind=Kind.STATISTICAL,
    needs={Capability.TRACE, Capability.DRAFT_PROBS, Capability.TARGET_PROBS},
    exercised_by=(Exercised("judged-pairs"),),
    catches=("random-accept-reuses-draft",),
    source="flashinfer-ai/flashinfer#424: one uniform where independent ones are required",
)
def draft_and_accept_independent(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Two numbers per accept test, each uniform, must be independent: where the draft token lies in its law, and the
    accept test's uniform (recorded, or rebuilt from decision and acceptance probability).

    Rebuilt uniforms assume an accept rule; the known ones are tried, and only what refutes all of them counts.
    """
    seen = [
        place
        for place in drafting_places(subject, context)
        if place.step.draft_probs is not None and place.step.target_probs is not None
    ]
    if not seen:
        raise Inconclusive("no step records both laws of a draft token")
    rng = context.streams.generator("draft", "independence")
    alarm = -math.log(context.alpha)
    yield from _repeated_uniforms(seen)
    best: tuple[str, float, Array] | None = None
    for name, accepts in _accept_uniforms(seen, rng):
        joint, marginal = _joint_evidence(seen, accepts, rng)
        if marginal >= alarm:
            continue  # not the rule in use; acceptance.matches-laws says so if none is
        if best is None or joint[0] < best[1]:
            best = (name, joint[0], joint[1])
    if best is None:
        raise Inconclusive("acceptance follows none of the known rules; see acceptance.matches-laws first")
    name, log_e, cells = best
    num_pairs = int(cells.sum())
    context.exercised("judged-pairs", num_pairs)
    context.figures.update(log_e=log_e, num_pairs=num_pairs, uniforms=name)
    if log_e >= alarm:
        share_inside = _share_inside(seen) if name == "recorded" else 0.0
        yield _dependence_finding(name, log_e, alarm, cells, share_inside)
        return
    tv = power.require(
        context, num_pairs, lambda count: detectable_tv(context.alpha, count, _GRID * _GRID, num_averaged=2),
        things="accept tests", how=power.more_drafts(subject), subject=subject,
    )  # fmt: skip
    context.worth(
        f"{num_pairs:,} accept tests, uniforms {name}; would have caught total variation {tv:.2g} of the pairs"
    )


def _accept_uniforms(seen: Sequence[Place], rng: np.random.Generator) -> Iterator[tuple[str, dict[int, Array]]]:
    """By name of the rule: for each place (by index) the uniforms of its accept tests, as far as they are known."""
    recorded = {
        index: np.asarray(place.step.uniforms, dtype=np.float64)[: place.step.num_draft_tokens]
        for index, place in enumerate(seen)
        if place.step.uniforms is not None
    }
    if recorded:
        yield "recorded", recorded
        return
    if any(place.step.parents is not None for place in seen):
        return  # which candidates were tried, and against what, depends on the rule
    for name in ("token-wise", "point-mass"):
        rebuilt = {}
        for index, place in enumerate(seen):
            chances = accept_rules.token_chances(place.step, point_mass=name == "point-mass")
            reached = min(place.step.num_accepted + 1, place.step.num_draft_tokens)
            values = np.empty(reached)
            for i in range(reached):
                chance, random = float(chances[i]), rng.random()
                accepted = i < place.step.num_accepted
                values[i] = random * chance if accepted else chance + random * (1.0 - chance)
            rebuilt[index] = values
        yield f"rebuilt for the {name} rule", rebuilt


def _joint_evidence(
    seen: Sequence[Place], accepts: dict[int, Array], rng: np.random.Generator
) -> tuple[tuple[float, Array], float]:
    """Log e-value and cells of the joint histogram (the more telling order of tokens), and of the accepts alone."""
    flat = np.full(_GRID * _GRID, 1.0 / (_GRID * _GRID))
    by_order: list[tuple[float, Array]] = []
    alone = DirichletEValue(flat)
    for by_id in (True, False):
        cells: Array = np.zeros((_GRID, _GRID))
        for index, values in accepts.items():
            drafts = _draft_places(seen[index], len(values), by_id, rng)
            rows = np.minimum((drafts * _GRID).astype(int), _GRID - 1)
            columns = np.minimum((values * _GRID).astype(int), _GRID - 1)
            np.add.at(cells, (rows, columns), 1.0)
        process = DirichletEValue(flat)
        process.update(cells.ravel())
        by_order.append((process.log_e, cells))
    values = np.concatenate(list(accepts.values())) if accepts else np.zeros(0)
    alone.update_outcomes(np.minimum((values * _GRID * _GRID).astype(int), _GRID * _GRID - 1))
    log_e = float(average_log_e([value for value, _ in by_order]))
    return (log_e, max(by_order, key=lambda item: item[0])[1]), alone.log_e


def _draft_places(place: Place, count: int, by_id: bool, rng: np.random.Generator) -> Array:
    """Where each draft token lies in its law, as a uniform number; ordered by id (as inverse CDFs do) or by law."""
    laws = np.asarray(place.step.draft_probs, dtype=np.float64)[:count]
    laws = laws / laws.sum(axis=1, keepdims=True)
    result: Array = np.empty(count)
    for i in range(count):
        token = place.step.draft_token_ids[i]
        before = laws[i, :token].sum() if by_id else laws[i][laws[i] > laws[i, token]].sum()
        result[i] = before + rng.random() * laws[i, token]
    return result


def _repeated_uniforms(seen: Sequence[Place]) -> Iterator[Finding]:
    """Accept tests that use the same numbers although they belong to other steps, or to requests with other seeds."""
    owners: dict[tuple[float, ...], list[Place]] = {}
    for place in seen:
        uniforms = place.step.uniforms
        if uniforms is not None and len(uniforms) >= 2:
            owners.setdefault(tuple(uniforms[:2]), []).append(place)
    repeated = [numbers for numbers, places in owners.items() if _should_differ(places)]
    if len(repeated) < _LEAST_REPEATS:
        return
    numbers = max(repeated, key=lambda key: len(owners[key]))
    yield Finding(
        headline=f"{len(repeated)} pairs of accept-test uniforms came again in {len(seen):,} steps.",
        table=Table(rows=(("uniforms", *(f"{u:.6f}" for u in numbers)), ("came", f"{len(owners[numbers])} times"))),
        not_noise="Two independent uniforms repeat once in 10^14 pairs.",
        where=(f"Seen in: {'; '.join(place.describe() for place in owners[numbers][:2])}.",),
        likely_cause="requests, or steps of one request, share their random stream.",
    )


def _should_differ(places: Sequence[Place]) -> bool:
    """Two steps of one trace, or of requests with different seeds: one seed may rightly repeat its numbers."""
    traces = [id(place.trace) for place in places]
    seeds = {place.trace.request.seed for place in places}
    return len(set(traces)) < len(traces) or len(seeds) > 1


def _share_inside(seen: Sequence[Place]) -> float:
    """Share of recorded uniforms that lie where an inverse CDF by token id would have drawn this very draft token."""
    inside = []
    for place in seen:
        laws = np.asarray(place.step.draft_probs, dtype=np.float64)
        for law, token, uniform in zip(laws, place.step.draft_token_ids, place.step.uniforms or (), strict=False):
            before = law[:token].sum() / law.sum()
            inside.append(before - 1e-6 <= uniform <= before + law[token] / law.sum() + 1e-6)
    return float(np.mean(inside)) if inside else 0.0


def _dependence_finding(name: str, log_e: float, alarm: float, cells: Array, share_inside: float) -> Finding:
    expected = cells.sum() / cells.size
    return Finding(
        headline=f"Where a draft token lies in its law tells what its accept test says ({int(cells.sum()):,} tests).",
        table=Table(
            rows=[
                ("draft token at", *(f"accept {column / _GRID:.1f}-" for column in range(_GRID))),
                *(
                    (f"{row / _GRID:.1f}-{(row + 1) / _GRID:.1f}", *(f"{count:.0f}" for count in cells[row]))
                    for row in range(_GRID)
                ),
                ("should be", f"{expected:.0f} each"),
            ]
        ),
        not_noise=f"Not luck: log e-value {log_e:.1f}; independent numbers reach {alarm:.1f} once in "
        f"10^{alarm / math.log(10):.0f} runs.",
        where=(f"Uniforms of the accept tests: {name}.",),
        likely_cause="the accept test uses the number by which the draft token was drawn."
        if share_inside > _ALL_INSIDE
        else "",
        details={"log_e": log_e, "share_inside": share_inside},
    )
