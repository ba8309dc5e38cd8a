"""Siblings in a draft tree: the law that each is declared to be drawn from knows those that were drawn before it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.checks import tree_shape
from specverify.checks.draft import drafting_places
from specverify.checks.places import Place
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.stats.combine import average_log_e

Array = NDArray[np.float64]

# Log odds by which repeats may be more or less frequent than declared; the mean of the bets is itself an e-value.
_TILTS = (-math.inf, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0)


@check(
    "draft.siblings-follow-law",
    claim="A draft token of a tree repeats an earlier sibling as often as its declared law says: with or without.",
    kind=Kind.STATISTICAL,
    needs={Capability.TRACE, Capability.DRAFT_PROBS, Capability.DRAFT_TREE},
    exercised_by=Exercised("judged-siblings"),
    catches=("tree-drawn-without-declared-with", "tree-likeliest-declared-as-drawn"),
    source="Jeon et al. 2024, arXiv 2402.14160, section 3.1: siblings drawn without replacement need residuals that "
    "know it; SafeAILab/EAGLE#50, where sampling lost quality and greedy decoding did not",
)
def siblings_follow_law(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Drawn with replacement, a sibling repeats an earlier one with the probability that its law has there.

    Drawn without, never: then its declared law must have nothing there. Each later sibling is one bet on a repeat at
    its declared chance, at several odds; draft.declared-law-sampled judges the laws otherwise.
    """
    seen = [p for p in tree_shape.tree_places(drafting_places(subject, context)) if p.step.draft_probs is not None]
    if not seen:
        raise Inconclusive("no step with a draft tree declares a draft law")
    chances, repeats = _repeats(seen)
    context.exercised("judged-siblings", len(chances))
    expected, found = float(chances.sum()), int(repeats.sum())
    is_possible = chances > 0.0
    log_e = math.inf if (repeats & ~is_possible).any() else _log_e(chances[is_possible], repeats[is_possible])
    context.figures.update(log_e=log_e, expected_repeats=expected, repeats=found, num_siblings=len(chances))
    alarm = -math.log(context.alpha)
    if log_e >= alarm:
        yield _repeat_finding(seen, chances, repeats, log_e, alarm)
        return
    how = "with replacement" if expected > 0.5 else "without replacement, which the laws say"
    context.worth(f"{len(chances):,} later siblings, {found} repeats where {expected:.1f} are due: drawn {how}")


def _repeats(seen: Sequence[Place]) -> tuple[Array, NDArray[np.bool_]]:
    """Of every draft token with an elder sibling: declared chance that it repeats one, and whether it does."""
    chances, repeats = [], []
    for place in seen:
        laws = np.asarray(place.step.draft_probs, dtype=np.float64)
        for node, token in enumerate(place.step.draft_token_ids):
            elder = sorted(set(tree_shape.tokens_of(place.step, tree_shape.elder_siblings(place.step, node))))
            if elder:
                chances.append(float(laws[node, elder].sum() / laws[node].sum()))
                repeats.append(token in elder)
    return np.minimum(np.asarray(chances), 1.0), np.asarray(repeats, dtype=bool)


def _log_e(chances: Array, repeats: NDArray[np.bool_]) -> float:
    """Average over tilts of the likelihood ratio of tilted chances to the declared ones."""
    evidences = []
    for tilt in _TILTS:
        tilted = chances * math.exp(tilt) / (1.0 - chances + chances * math.exp(tilt))
        with np.errstate(divide="ignore", invalid="ignore"):
            bets = np.where(repeats, np.log(tilted / chances), np.log((1.0 - tilted) / (1.0 - chances)))
        # A repeat that was certain tells nothing.
        evidences.append(float(np.where(chances >= 1.0, np.where(repeats, 0.0, math.inf), bets).sum()))
    return float(average_log_e(evidences))


def _all_likeliest(seen: Sequence[Place]) -> bool:
    """Whether every eldest sibling is the likeliest token of its law, where chance would hardly have it so."""
    rows = [
        (np.asarray(place.step.draft_probs, dtype=np.float64)[node], token)
        for place in seen
        for node, token in enumerate(place.step.draft_token_ids)
        if not tree_shape.elder_siblings(place.step, node)
    ]
    return all(row.argmax() == token for row, token in rows) and sum(math.log(row.max()) for row, _ in rows) < -20.0


def _repeat_finding(
    seen: Sequence[Place], chances: Array, repeats: NDArray[np.bool_], log_e: float, alarm: float
) -> Finding:
    expected, found = float(chances.sum()), int(repeats.sum())
    cause = ""
    if _all_likeliest(seen):
        cause = "siblings are the likeliest tokens of the declared law, in order; they are not drawn at all."
    elif found == 0:
        cause = "siblings are drawn without replacement, and laws with replacement are declared for them."
    elif expected == 0.0:
        cause = "siblings are drawn with replacement, and laws without it are declared for them."
    return Finding(
        headline=f"{len(chances):,} draft tokens with elder siblings repeat one {found} times; "
        f"{expected:.1f} repeats are due.",
        table=Table(
            rows=(
                ("", "observed", "declared"),
                ("repeats of an elder sibling", f"{found}", f"{expected:.1f}"),
                ("share of later siblings", f"{found / len(chances):.3f}", f"{expected / len(chances):.3f}"),
            )
        ),
        not_noise=f"Not luck: log e-value {log_e:.1f}, alarm from {alarm:.1f}."
        if math.isfinite(log_e)
        else "A proof, not a statistic: a token was drawn whose declared probability is 0.",
        where=(
            f"{len(seen):,} trees of the sampled runs.",
            "The tree verifier subtracts the declared laws: its output is then not the target's.",
        ),
        likely_cause=cause,
        details={"repeats": found, "expected": expected, "siblings": len(chances)},
    )
