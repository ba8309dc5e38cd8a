"""What a drafter computes step by step is what it computes afresh: no stale row, no state one place off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.checks import evidence, noise, own_sampling, places, samples, tree_shape, wording
from specverify.checks.draft_cause import WrongRow, likely_cause
from specverify.checks.places import Place
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.laws.sampling import law_from_logits

Array = NDArray[np.float64]

_SHOWN = 6
# Texts that the drafter is run on afresh: a probe pair takes hundreds a second, a real model seconds for one.
_MOST_TEXTS, _MOST_TEXTS_OF_MODEL = 200, 16


@dataclass(frozen=True, eq=False)
class _Row:
    """One draft token with what the drafter says of it afresh. given: the declared law; None: the token alone."""

    place: Place
    node: int
    wanted: Array
    given: Array | None

    @property
    def token(self) -> int:
        return self.place.step.draft_token_ids[self.node]


@check(
    "draft.law-as-computed-afresh",
    claim="The drafter's law of a draft token is the one it gives when it is run afresh on the text and the draft.",
    kind=Kind.EXACT,
    needs={Capability.TRACE, Capability.DRAFT_SCORE},
    exercised_by=(Exercised("judged-draft-tokens"), Exercised("rejections")),
    catches=(
        "head-keeps-own-states",
        "head-states-shifted",
        "head-state-of-neighbour",
        "head-state-of-padding",
        "head-state-before-accepted",
        "head-reads-last-state-for-taps",
        "head-taps-one-layer-early",
        "head-residual-missing",
        "head-drafts-from-placeholder",
        "head-positions-one-early",
        "draft-quantised-scale-missing",
        "draft-rotary-stretched",
        "draft-rotary-yarn",
        "tree-draft-siblings-visible",
        "tree-draft-positions-stay",
        "tree-draft-kv-rewound-as-suffix",
    ),
    source="vllm-project/vllm#14649: a drafter went on from its own hidden states of accepted tokens instead of the "
    "target's; NVIDIA/TensorRT-LLM#10343: acceptance fell, and no output was wrong",
)
def law_as_computed_afresh(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Rows of its cache, hidden states of the target and positions that are off show here, and in acceptance only.

    Plainly sampled steps: the declared law of each draft token that has no elder sibling. Greedy steps: the token is
    the likeliest one by the law computed afresh, near ties apart. Later siblings are the drafter's own business, so
    long as it says what it drew them from. Inconclusive where the laws show that the drafter samples in a way of its
    own, and it does not declare that (draft_sampling).
    """
    scorer = samples.Scorer(subject)
    seen = [p for p in places.all_places(evidence.own_runs(subject, context)) if p.step.draft_token_ids]
    seen = [p for p in seen if tree_shape.is_well_formed(p.step) and not p.trace.request.sampling.has_penalties]
    if not seen:
        raise Inconclusive("its own drafter drafted nothing")
    rows = list(_rows(_spread(seen, _most(subject, context)), subject, scorer))
    if not rows:
        raise Inconclusive("nothing to compare: no declared law in a plainly sampled step, and no greedy step")
    places.count_steps(context, seen)
    context.exercised("judged-draft-tokens", len(rows))
    laws = [row for row in rows if row.given is not None]
    allowed, tolerance = noise.row_allowance(subject), 2.0 * noise.log_prob_noise(subject, context)
    wrong = [
        row
        for row in laws
        if not noise.total_variation(row.given, row.wanted) <= allowed
        and not (row.given is not None and noise.is_point_mass_on_best(row.given, row.wanted, allowed))
    ]
    # Coarse dtypes let a token slip over an edge now and then: that is rounding.
    is_finding = bool(wrong) and (noise.dtype_of(subject) == "float64" or len(wrong) >= 0.02 * len(laws))
    undeclared = _undeclared_text(subject, laws, allowed) if is_finding else ""
    if is_finding and not undeclared:
        yield _law_finding(wrong, laws, allowed, seen, scorer)
    tokens = [row for row in rows if row.given is None]
    worse = [row for row in tokens if not noise.are_near_best(_log(row.wanted), (row.token,), tolerance)]
    if worse and (not wrong or not laws):
        yield _token_finding(worse, tokens, tolerance, seen)
    if undeclared:
        raise Inconclusive(undeclared)
    context.worth(f"{len(laws):,} declared laws and {len(tokens):,} greedy draft tokens, of {len(seen):,} steps")


def _undeclared_text(subject: Any, laws: Sequence[_Row], allowed: float) -> str:
    given = [row.given for row in laws if row.given is not None]
    return own_sampling.undeclared_text(subject, given, [row.wanted for row in laws], allowed)


def _most(subject: Any, context: CheckContext) -> int:
    is_tiny = Capability.LOAD_CHECKPOINT in subject.capabilities
    return round((_MOST_TEXTS if is_tiny else _MOST_TEXTS_OF_MODEL) * max(1.0, context.effort))


def _spread(seen: Sequence[Place], most: int) -> list[tuple[Place, int]]:
    """Leaves of evenly chosen steps, in no more number than can be scored: (step, leaf)."""
    leaves = [(place, leaf) for place in seen for leaf in tree_shape.leaves(place.step)]
    every = max(1, -(-len(leaves) // most))
    return leaves[::every]


def _rows(chosen: Sequence[tuple[Place, int]], subject: Any, scorer: samples.Scorer) -> Iterator[_Row]:
    known: set[tuple[int, int]] = set()
    for place, leaf in chosen:
        step, is_greedy = place.step, place.run.sampling.is_greedy
        if not is_greedy and (step.draft_probs is None or place.trace.request.sampling != evidence.SAMPLED):
            continue
        path = tree_shape.node_path(step, leaf)
        laws = _afresh(place, tree_shape.tokens_of(step, path)[:-1], subject, scorer)
        for node, wanted in zip(path, laws, strict=True):
            if (id(place), node) not in known and not tree_shape.elder_siblings(step, node):
                known.add((id(place), node))
                given = None if is_greedy else np.asarray(step.draft_probs, dtype=np.float64)[node]
                yield _Row(place, node, wanted, given)


def _afresh(place: Place, draft: tuple[int, ...], subject: Any, scorer: samples.Scorer) -> Array:
    """The drafter's laws [draft + 1, vocab], by the probe's oracle where the drafter is its draft model."""
    text = places.committed_token_ids(place.trace)[: place.step.start_position]
    if scorer.has_draft_oracle:
        logits = scorer.checkpoint.draft_oracle.logits(np.asarray((*text, *draft)))[len(text) - 1 :]
    else:
        logits = subject.draft_scores(text, draft)
    is_greedy = place.run.sampling.is_greedy
    sampling = evidence.SAMPLED if is_greedy else own_sampling.draft_sampling(subject, evidence.SAMPLED)
    return law_from_logits(np.asarray(logits, dtype=np.float64), sampling)


def _log(law: Array) -> Array:
    with np.errstate(divide="ignore"):
        result: Array = np.log(law)
    return result


def _first(wrong: Sequence[_Row]) -> _Row:
    return min(wrong, key=lambda row: (row.place.step.start_position, row.place.step.index, row.node))


def _where(first: _Row, wrong: Sequence[_Row], judged: Sequence[_Row], seen: Sequence[Place]) -> tuple[str, ...]:
    depths = sorted({tree_shape.node_depths(row.place.step)[row.node] for row in wrong})
    return (
        f"Seen in: {first.place.describe()}; {len(wrong):,} of {len(judged):,} draft tokens, at depth "
        f"{' and '.join(map(str, depths))}.",
        places.where_it_begins(list(dict.fromkeys(row.place for row in wrong)), seen),
        "The output is right all the same: only acceptance suffers, so nothing else shows it.",
    )


def _law_finding(
    wrong: Sequence[_Row], laws: Sequence[_Row], allowed: float, seen: Sequence[Place], scorer: samples.Scorer
) -> Finding:
    first = _first(wrong)
    chains = [
        WrongRow(row.place, row.node, row.given)
        for row in wrong
        if row.given is not None and row.place.step.parents is None and scorer.has_draft_oracle
    ]
    judged = [row.place for row in laws]
    cause = likely_cause(chains, judged, scorer.checkpoint.draft_oracle, allowed) if chains else ""
    assert first.given is not None
    shown = sorted(np.argsort(-np.maximum(first.given, first.wanted), kind="stable")[:_SHOWN].tolist())
    gap = noise.total_variation(first.given, first.wanted)
    return Finding(
        headline=f"Step {first.place.step.index}: the declared law of draft token {first.node} is not the drafter's.",
        table=Table(
            rows=(
                tree_shape.drafts_row(first.place.step),
                ("token", *map(str, shown)),
                ("afresh", *(wording.probability_text(float(first.wanted[token])) for token in shown)),
                ("declared", *(wording.probability_text(float(first.given[token])) for token in shown)),
            )
        ),
        not_noise=f"Total variation {gap:.3g}, rounding explains {allowed:.0e}.",
        where=_where(first, wrong, laws, seen),
        likely_cause=cause,
        details={"wrong_rows": len(wrong), "rows": len(laws), "total_variation": gap},
    )


def _token_finding(worse: Sequence[_Row], tokens: Sequence[_Row], tolerance: float, seen: Sequence[Place]) -> Finding:
    first = _first(worse)
    best = int(first.wanted.argmax())
    gap = float(_log(first.wanted)[best] - _log(first.wanted)[first.token])
    return Finding(
        headline=f"Step {first.place.step.index}: greedy draft token {first.node} is {first.token}; computed afresh, "
        f"the drafter's best is {best}.",
        table=Table(
            rows=(
                tree_shape.drafts_row(first.place.step),
                ("token", str(best), str(first.token)),
                ("afresh", *(wording.probability_text(float(first.wanted[token])) for token in (best, first.token))),
            )
        ),
        not_noise=f"Not a near tie: {gap:.3g} apart in log-probability, rounding explains {tolerance:.1g}.",
        where=_where(first, worse, tokens, seen),
        details={"wrong_tokens": len(worse), "tokens": len(tokens)},
    )
