"""Draft trees: what is accepted is one path, and a draft token's law depends on its own path alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.checks import evidence, noise, places, samples, tree_shape, wording
from specverify.checks.places import Place
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.types import SamplingParams, Trace
from specverify.laws.sampling import law_from_logits

Array = NDArray[np.float64]

_SHOWN = 6
# Every token of the output costs something each time it is there: a sibling that is counted shows at once.
_PENALISED = SamplingParams(frequency_penalty=1.0)
# Paths that are scored: a probe's oracle takes thousands a second, an engine's own scores may take a second each.
_MOST_PATHS, _MOST_PATHS_OF_ENGINE = 600, 40


@check(
    "tree.accepted-path",
    claim="What a step accepts of a draft tree is one path that starts at the committed text.",
    kind=Kind.EXACT,
    needs={Capability.TRACE, Capability.DRAFT_TREE},
    exercised_by=(Exercised("trees-with-an-accept"), Exercised("trees-with-siblings")),
    catches=("tree-path-across-branches",),
    source="Miao et al. 2023, SpecInfer, arXiv 2305.09781, algorithm 2: an accepted node leads to its own children",
)
def accepted_path(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """The first accepted draft token follows the text, every other one follows the one accepted before it.

    Draft tokens come after their parents, and as many are accepted as the step says.
    """
    seen = [place for place in places.all_places(evidence.own_runs(subject, context)) if place.step.parents]
    if not seen:
        raise Inconclusive("no step drafted a tree")
    places.count_steps(context, seen)
    count_trees(context, seen)
    wrong = [(place, reason) for place in seen if (reason := _path_fault(place))]
    if wrong:
        place = places.smallest([place for place, _ in wrong])
        step, reason = place.step, next(text for other, text in wrong if other is place)
        yield Finding(
            headline=f"Step {step.index}: {reason}.",
            table=Table(
                rows=(
                    tree_shape.drafts_row(step),
                    ("accepted numbers", *(str(node) for node in tree_shape.accepted_nodes(step))),
                    ("committed", *wording.token_text(step.token_ids)),
                )
            ),
            not_noise="Nodes are counted: the case is exact.",
            where=(f"Seen in: {place.describe()}; {wording.plural(len(wrong), 'step')} of {len(seen):,} wrong.",),
            details={"wrong_steps": len(wrong), "steps": len(seen)},
        )
    context.worth(f"{places.accept_length_line(context)}; {trees_line(context)}")


def count_trees(context: CheckContext, seen: Sequence[Place]) -> None:
    """Counts trees with siblings in them, those of which something was accepted, and paths that had to be moved."""
    for place in seen:
        step = place.step
        parents = tree_shape.parents_of(step)
        context.exercised("trees-with-siblings", int(len(set(parents)) < len(parents)))
        context.exercised("trees-with-an-accept", int(step.num_accepted > 0))
        context.exercised("scattered-paths", int(tree_shape.is_scattered(step)))


def trees_line(context: CheckContext) -> str:
    counts = context.counters
    return f"{counts['trees-with-siblings']} trees with siblings, {counts['scattered-paths']} scattered paths"


def _path_fault(place: Place) -> str:
    step, nodes = place.step, tree_shape.accepted_nodes(place.step)
    if not tree_shape.is_well_formed(step):
        return "a draft token does not come after its parent"
    if len(nodes) != step.num_accepted:
        return f"it accepted {step.num_accepted} draft tokens and names {len(nodes)}"
    above = tree_shape.ROOT
    for node in nodes:
        if not 0 <= node < step.num_draft_tokens:
            return f"it accepted draft token {node} of {step.num_draft_tokens}"
        parent = tree_shape.parents_of(step)[node]
        if parent != above:
            return f"draft token {node} follows {_name(parent)}, and was accepted behind {_name(above)}"
        above = node
    return ""


def _name(node: int) -> str:
    return "the committed text" if node == tree_shape.ROOT else f"draft token {node}"


@dataclass(frozen=True, eq=False)
class _Wrong:
    place: Place
    node: int
    gap: float
    given: Array
    wanted: Array


@check(
    "tree.nodes-see-ancestors-only",
    claim="The target's law behind a draft token of a tree is its law after that token's own path: no sibling is seen.",
    kind=Kind.EXACT,
    needs={Capability.TRACE, Capability.DRAFT_TREE, Capability.TARGET_PROBS},
    exercised_by=(Exercised("trees-with-siblings"), Exercised("judged-nodes")),
    catches=(
        "tree-siblings-visible",
        "tree-ancestor-hidden",
        "tree-positions-by-node",
        "tree-rows-of-parent",
        "tree-penalties-see-siblings",
    ),
    source="Miao et al. 2023, SpecInfer, arXiv 2305.09781, section 4.2: the topology-aware causal mask",
)
def nodes_see_ancestors_only(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Every row of the verify pass, of rejected draft tokens too, against the law after text and path.

    That law comes from the probe's float64 oracle, or from the engine's own scores of the path as plain text. Greedy
    rows say little and are left out. With the oracle there is a run with penalties, too: they must not count siblings.
    """
    scorer = samples.Scorer(subject)
    sampled = [run for run in evidence.own_runs(subject, context) if not run.sampling.is_greedy]
    if scorer.has_oracle and Capability.PENALTIES in subject.capabilities and not evidence.is_recorded(subject):
        sampled.append(evidence.own_run(subject, context, _PENALISED))
    seen = tree_shape.tree_places(list(places.all_places(sampled)))
    seen = [p for p in seen if p.step.target_probs is not None]
    seen = [p for p in seen if scorer.has_oracle or not p.trace.request.sampling.has_penalties]
    if not seen:
        raise Inconclusive("no sampled step with a draft tree records the target's laws")
    scorer.require_laws()
    judged, wrong = _judged_nodes(seen, scorer, context)
    places.count_steps(context, judged)
    count_trees(context, judged)
    if wrong:
        yield _mask_finding(wrong, judged, scorer, noise.row_allowance(subject))
    context.worth(f"{context.counters['judged-nodes']:,} draft tokens in {len(judged)} trees, by {scorer.source}")


def _judged_nodes(
    seen: Sequence[Place], scorer: samples.Scorer, context: CheckContext
) -> tuple[list[Place], list[_Wrong]]:
    """Steps whose leaves were scored, as many as is bearable, and the draft tokens whose row is another law."""
    allowed = noise.row_allowance(scorer.subject)
    # Evenly from all runs, and never more than can be borne.
    left = round((_MOST_PATHS if scorer.has_oracle else _MOST_PATHS_OF_ENGINE) * max(1.0, context.effort))
    chosen: list[tuple[Place, int]] = []
    every = max(1, -(-sum(len(tree_shape.leaves(place.step)) for place in seen) // left))
    for place in seen[::every]:
        chosen += [(place, leaf) for leaf in tree_shape.leaves(place.step)]
    wrong: list[_Wrong] = []
    known: set[tuple[int, int]] = set()
    for (place, leaf), rows in zip(chosen, _laws_along(chosen, scorer), strict=True):
        given = np.asarray(place.step.target_probs, dtype=np.float64)
        for node, wanted in zip((tree_shape.ROOT, *tree_shape.node_path(place.step, leaf)), rows, strict=True):
            if (id(place), node) in known:
                continue
            known.add((id(place), node))
            gap = noise.total_variation(given[node + 1], wanted)
            if not gap <= allowed:
                wrong.append(_Wrong(place, node, gap, given[node + 1], wanted))
    context.exercised("judged-nodes", sum(node != tree_shape.ROOT for _, node in known))
    return list(dict.fromkeys(place for place, _ in chosen)), wrong


def _laws_along(chosen: Sequence[tuple[Place, int]], scorer: samples.Scorer) -> Iterator[Array]:
    """For each leaf the target's laws after the text and after every draft token of its path, [path + 1, vocab]."""
    traces = []
    for place, leaf in chosen:
        request, start = place.trace.request, place.step.start_position
        text = places.committed_token_ids(place.trace)[len(request.prompt_token_ids) : start]
        path = tree_shape.tokens_of(place.step, tree_shape.node_path(place.step, leaf))
        # One more token, whose own law is the last one wanted: scores are those before a token.
        traces.append(Trace(request, (*text, *path, 0)))
    for (place, leaf), trace, logits in zip(chosen, traces, scorer.logits(traces), strict=True):
        length = len(tree_shape.node_path(place.step, leaf)) + 1
        yield samples.laws_of(np.asarray(logits), trace, trace.request.sampling)[-length:]


def _mask_finding(wrong: Sequence[_Wrong], judged: Sequence[Place], scorer: samples.Scorer, allowed: float) -> Finding:
    first = min(wrong, key=lambda one: (one.place.step.start_position, one.place.step.index, one.node))
    step = first.place.step
    shown = sorted(np.argsort(-np.maximum(first.given, first.wanted), kind="stable")[:_SHOWN].tolist())
    path = tree_shape.tokens_of(step, tree_shape.node_path(step, first.node))
    steps = len({id(one.place) for one in wrong})
    return Finding(
        headline=f"Step {step.index}: the law behind {_name(first.node)} of the tree is not the "
        "target's law after its path.",
        table=Table(
            rows=(
                tree_shape.drafts_row(step),
                ("path", *(wording.token_text(path) or ["none"])),
                ("token", *map(str, shown)),
                ("target law", *(wording.probability_text(float(first.wanted[token])) for token in shown)),
                ("in the step", *(wording.probability_text(float(first.given[token])) for token in shown)),
            )
        ),
        not_noise=f"Total variation {first.gap:.3g}, rounding explains {allowed:.0e}; by {scorer.source}.",
        where=(
            f"Seen in: {first.place.describe()}; {wording.plural(steps, 'step')} of {len(judged)} wrong.",
            f"{wording.plural(len(wrong), 'row')} wrong, {_first_children_text(wrong)}.",
        ),
        likely_cause=_mask_cause(wrong, scorer, allowed),
        details={"gap": first.gap, "wrong_rows": len(wrong), "wrong_steps": steps},
    )


def _first_children_text(wrong: Sequence[_Wrong]) -> str:
    later = sum(one.node > 0 for one in wrong)
    return f"{later} of them behind a draft token that is not the first"


def _mask_cause(wrong: Sequence[_Wrong], scorer: samples.Scorer, allowed: float) -> str:
    """The mask or the positions that give every wrong row, by the oracle; nothing where none does."""
    if not scorer.has_oracle:
        return ""
    if all(one.place.trace.request.sampling.has_penalties for one in wrong):
        return "penalties at a draft token count draft tokens that are not on its path: without penalties all is right."
    wrong = [one for one in wrong if not one.place.trace.request.sampling.has_penalties]
    sample = wrong[:: max(1, len(wrong) // 8)]
    for sentence, by_node, sees_all in (
        ("a draft token sees every draft token before it, siblings included.", False, True),
        ("positions count draft tokens in their order, not by depth.", True, False),
        ("the tree is computed as if it were a chain: mask and positions alike.", True, True),
    ):
        gaps = [_gap_under(one, scorer.checkpoint.target_oracle, by_node=by_node, sees_all=sees_all) for one in sample]
        if max(gaps) <= allowed:
            return sentence
    return ""


def _gap_under(one: _Wrong, oracle: Any, *, by_node: bool, sees_all: bool) -> float:
    """Distance of a wrong row from the law that this mask and these positions give."""
    step, start = one.place.step, one.place.step.start_position
    text = (*places.committed_token_ids(one.place.trace)[:start], *step.draft_token_ids)
    depths = range(1, step.num_draft_tokens + 1) if by_node else tree_shape.node_depths(step)
    positions = (*range(start), *(start + depth - 1 for depth in depths))
    mask = np.tri(len(text), dtype=bool)
    if not sees_all:
        mask[start:, start:] = False
        for node in range(step.num_draft_tokens):
            mask[start + node, [start + other for other in tree_shape.node_path(step, node)]] = True
    logits = oracle.logits(text, positions=np.asarray(positions), mask=mask)[start + one.node]
    return noise.total_variation(one.given, law_from_logits(logits, one.place.trace.request.sampling))
