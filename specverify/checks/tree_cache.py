"""After a tree step the accepted path lies in the caches as if it had been a chain; positions go by depth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specverify.checks import evidence, kv_story, places, tree_shape, wording
from specverify.checks.places import Place
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.checks.tree import count_trees, trees_line
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table

Model = Literal["target", "draft"]
_REPORT = "NVIDIA/TensorRT-LLM#10343: a tree's cache was rewound by a number of rows, as if the path came first"


@check(
    "kv.tree-path-kept",
    claim="After a step with a draft tree the target's cache holds the accepted path, wherever in the tree it lay.",
    kind=Kind.EXACT,
    needs={Capability.TRACE, Capability.DRAFT_TREE, Capability.KV_ROWS},
    exercised_by=Exercised("scattered-paths"),
    catches=("tree-kv-rewound-as-suffix", "tree-kv-path-one-off", "tree-path-of-neighbour"),
    source=_REPORT,
)
def tree_path_kept(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Rows of steps whose path was not the first draft tokens in order, against a fresh prefill of the text.

    Where the path comes first, dropping what is behind it is right by luck: those steps count for nothing here.
    """
    yield from _wrong_paths(subject, context, "target")


@check(
    "kv.draft-tree-path-kept",
    claim="After a step with a draft tree the draft model's cache holds the accepted path as far as it was computed.",
    kind=Kind.EXACT,
    needs={Capability.TRACE, Capability.DRAFT_TREE, Capability.KV_ROWS, Capability.DRAFT_KV},
    exercised_by=Exercised("scattered-paths"),
    catches=("tree-draft-kv-rewound-as-suffix", "tree-draft-positions-stay"),
    source=_REPORT,
)
def draft_tree_path_kept(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """As kv.tree-path-kept, for the draft model: its faults change no law, only what is accepted."""
    yield from _wrong_paths(subject, context, "draft")


def _wrong_paths(subject: Any, context: CheckContext, model: Model) -> Iterator[Finding]:
    runs = evidence.own_runs(subject, context)
    seen = tree_shape.tree_places(list(places.all_places(runs)))
    if not seen:
        raise Inconclusive("no step drafted a tree")
    count_trees(context, seen)
    yield from kv_story.wrong_rows(subject, context, model, runs=runs, is_judged=_is_scattered)
    context.worth(trees_line(context))


def _is_scattered(place: Place) -> bool:
    return tree_shape.is_scattered(place.step)


@dataclass(frozen=True)
class _Wrong:
    place: Place
    model: Model
    observed: tuple[int, ...]
    wanted: tuple[int, ...]


@check(
    "positions.tree-by-depth",
    claim="Draft tokens of a tree are computed at the position that their depth gives: siblings share one.",
    kind=Kind.EXACT,
    needs={Capability.TRACE, Capability.DRAFT_TREE, Capability.POSITIONS},
    exercised_by=Exercised("trees-with-siblings"),
    catches=("tree-positions-by-node", "tree-draft-positions-stay"),
    source="1bit-MONSTER/1bit-MONSTER#111: alternatives for one position were computed at consecutive positions",
)
def tree_by_depth(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """A draft token of depth d, of a step that starts with n committed tokens, stands at position n + d - 1.

    The target computes the committed tokens that its cache lacks, then the draft tokens in their order. The draft model
    computes the committed tokens, then level by level whatever it needs: levels follow each other without a gap, each
    with all draft tokens that have children, and only the deepest may be left out.
    """
    seen = tree_shape.tree_places(list(places.all_places(evidence.own_runs(subject, context))))
    judged = [p for p in seen if p.step.target_positions is not None or p.step.draft_positions is not None]
    if not judged:
        raise Inconclusive("no step with a draft tree reports positions")
    count_trees(context, judged)
    wrong = [item for place in judged for item in (*_wrong_target(place), *_wrong_draft(place))]
    for model in ("target", "draft"):
        of_model = [item for item in wrong if item.model == model]
        if of_model:
            yield _position_finding(of_model, len(judged))
    context.worth(f"{wording.plural(len(judged), 'step')}; {trees_line(context)}")


def _wrong_target(place: Place) -> Iterator[_Wrong]:
    step = place.step
    if step.target_positions is None:
        return
    observed, num_nodes = tuple(step.target_positions), step.num_draft_tokens
    num_before = max(0, len(observed) - num_nodes)
    before = range(step.start_position - num_before, step.start_position)
    wanted = (*before, *(step.start_position + depth - 1 for depth in tree_shape.node_depths(step)))
    if observed != wanted:
        yield _Wrong(place, "target", observed, wanted)


def _wrong_draft(place: Place) -> Iterator[_Wrong]:
    """Committed tokens one by one up to the newest, then every level in turn, as often as it has draft tokens."""
    step, start = place.step, place.step.start_position
    if not step.draft_positions:
        return
    observed = tuple(step.draft_positions)
    before = tuple(position for position in observed if position < start)
    levels = tuple(position for position in observed if position >= start)
    depth = max(tree_shape.node_depths(step))
    is_whole = observed == before + levels and before == tuple(range(start - len(before), start))
    # A tree that grows freely may be cut back afterwards: more levels than are left were then computed.
    reached = sorted(set(levels))
    has_no_gap = reached == list(range(start, start + len(reached))) and len(reached) >= depth - 1
    # Whatever has children was computed itself, at its own level.
    depths = tree_shape.node_depths(step)
    inner = Counter(start + depths[node] - 1 for node in set(tree_shape.parents_of(step)) - {tree_shape.ROOT})
    is_complete = all(levels.count(position) >= count for position, count in inner.items())
    if is_whole and has_no_gap and is_complete and list(levels) == sorted(levels):
        return
    # The shape of the levels is the drafter's own business: only their positions are put right.
    right = range(start, start + max(1, depth - 1))
    wanted = (*range(start - len(before), start), *_spread(len(observed) - len(before), right))
    yield _Wrong(place, "draft", observed, wanted)


def _spread(count: int, positions: Sequence[int]) -> list[int]:
    """The positions, each as often as they share `count` evenly."""
    return sorted(positions[index % len(positions)] for index in range(count))


def _position_finding(wrong: Sequence[_Wrong], num_judged: int) -> Finding:
    place = places.smallest([item.place for item in wrong])
    item = next(item for item in wrong if item.place is place)
    step = place.step
    gaps = {seen - due for one in wrong for seen, due in zip(one.observed, one.wanted, strict=False)} - {0}
    by_node = all(
        one.observed[-one.place.step.num_draft_tokens :]
        == tuple(range(one.place.step.start_position, one.place.step.start_position + one.place.step.num_draft_tokens))
        for one in wrong
    )
    return Finding(
        headline=f"Step {step.index} starts with {step.start_position} committed tokens: the {item.model} model "
        "computed its draft tree at other positions than the depths give.",
        table=Table(
            rows=(
                tree_shape.drafts_row(step),
                ("depth", *(str(depth) for depth in tree_shape.node_depths(step))),
                (f"{item.model} computed at", *wording.token_text(item.observed)),
                ("should be", *wording.token_text(item.wanted)),
            )
        ),
        not_noise="Positions are counted, not measured: the numbers are exact.",
        where=(f"Seen in: {place.describe()}; {wording.plural(len(wrong), 'step')} of {num_judged} wrong.",),
        likely_cause="positions count draft tokens in their order, not by depth." if by_node and gaps else "",
        details={"observed": list(item.observed), "wanted": list(item.wanted), "wrong_steps": len(wrong)},
    )
