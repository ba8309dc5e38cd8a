"""Every drafted token is computed at the position where it will stand in the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specverify.checks import kv, places, tree_shape, wording
from specverify.checks.long_runs import standard_then_long
from specverify.checks.places import Place
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table

Model = Literal["target", "draft"]
# So many positions of one step are shown; the last ones matter most.
_SHOWN = 10


@dataclass(frozen=True)
class _Wrong:
    place: Place
    model: Model
    observed: tuple[int, ...]
    wanted: tuple[int, ...]


@check(
    "positions.drafted-tokens",
    claim="Target and draft compute every token at the position where it stands in the text.",
    kind=Kind.EXACT,
    needs={Capability.TRACE, Capability.POSITIONS},
    exercised_by=(Exercised("drafted-tokens"), Exercised("rejections")),
    catches=(
        "position-target-off-by-one",
        "position-target-drift",
        "position-draft-ahead",
        "position-draft-stays",
        "position-stops-at-96-when-sampled",
    ),
    source="sgl-project/sglang#25015: the draft loop advanced the positions before each forward instead of after",
)
def drafted_tokens(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Draft token i of a step that starts with n committed tokens stands at position n + i: in the standard runs, and
    in long texts, greedy and sampled.

    The target computes the committed tokens that its cache lacks, then all k draft tokens: positions run without a
    gap and end at n + k - 1. The draft model need not compute its own last draft token: n + k - 2 will do. Where the
    rows of the cache are reported, the first position must also be the first free row.
    """
    wrong: list[_Wrong] = []
    judged: list[Place] = []
    for runs in standard_then_long(subject, context):
        for place in places.all_places(runs):
            target, draft = place.step.target_positions, place.step.draft_positions
            if (target is None and draft is None) or tree_shape.is_tree(place.step):
                continue  # positions.tree-by-depth judges trees
            judged.append(place)
            if target is not None:
                wrong += _wrong_target(place, tuple(target))
            if draft is not None and place.step.num_draft_tokens and len(draft):
                context.exercised("draft-position-steps")
                wrong += _wrong_draft(place, tuple(draft))
        if wrong:
            break
    if not judged:
        raise Inconclusive("no step with a chain of draft tokens, or with none, reports positions")
    places.count_steps(context, judged)
    for model in ("target", "draft"):
        of_model = [item for item in wrong if item.model == model]
        if of_model:
            yield _finding(of_model, len(judged))
    drafted = context.counters["draft-position-steps"]
    context.worth(f"{places.accept_length_line(context)}; {wording.plural(drafted, 'step')} of a draft model")


def _wrong_target(place: Place, observed: tuple[int, ...]) -> Iterator[_Wrong]:
    end = place.step.start_position + place.step.num_draft_tokens
    wanted = tuple(range(end - len(observed), end))
    if observed != wanted or len(observed) < place.step.num_draft_tokens:
        missing = max(0, place.step.num_draft_tokens - len(observed))
        yield _Wrong(place, "target", observed, tuple(range(end - len(observed) - missing, end)))


def _wrong_draft(place: Place, observed: tuple[int, ...]) -> Iterator[_Wrong]:
    """Runs of consecutive positions; only a run that steps back may follow another (rows computed after a rollback)."""
    start, num_draft = place.step.start_position, place.step.num_draft_tokens
    first_run = _first_run(observed)
    rest = observed[len(first_run) :]
    last_wanted = start + num_draft - 2
    first_free = kv.length_after(place.previous, "draft") if place.previous is not None else None
    first_wanted = first_run[0] if first_free is None else first_free
    stops_well = first_run[-1] in (last_wanted, last_wanted + 1)
    if stops_well and first_run[0] == first_wanted and all(later <= first_run[-1] for later in rest):
        return
    last = last_wanted if first_free is None else first_wanted + len(first_run) - 1
    if last not in (last_wanted, last_wanted + 1):
        last = last_wanted
    yield _Wrong(place, "draft", observed, tuple(range(max(0, last - len(observed) + 1), last + 1)))


def _first_run(positions: Sequence[int]) -> tuple[int, ...]:
    length = 1
    while length < len(positions) and positions[length] == positions[length - 1] + 1:
        length += 1
    return tuple(positions[:length])


def _finding(wrong: Sequence[_Wrong], num_judged: int) -> Finding:
    place = places.smallest([item.place for item in wrong])
    item = next(item for item in wrong if item.place is place)
    step = place.step
    return Finding(
        headline=f"Step {step.index} starts with {step.start_position} committed tokens: draft token 0 stands at "
        f"position {step.start_position}, and the {item.model} model computed other positions.",
        table=Table(
            rows=(
                ("draft", *wording.token_text(step.draft_token_ids)),
                ("stand at", *(str(step.start_position + i) for i in range(step.num_draft_tokens))),
                (f"{item.model} computed at", *wording.token_text(item.observed[-_SHOWN:])),
                ("should be", *wording.token_text(item.wanted[-_SHOWN:])),
            )
        ),
        not_noise="Positions are counted, not measured: the numbers are exact.",
        where=(f"Seen in: {place.describe()}; {wording.plural(len(wrong), 'step')} of {num_judged} wrong.",),
        likely_cause=_cause(wrong),
        details={"observed": list(item.observed), "wanted": list(item.wanted), "wrong_steps": len(wrong)},
    )


def _cause(wrong: Sequence[_Wrong]) -> str:
    """One constant offset, or one that grows from step to step."""
    model = wrong[0].model
    pairs = [item for item in wrong if len(item.observed) == len(item.wanted)]
    gaps = [{seen - due for seen, due in zip(item.observed, item.wanted, strict=True)} for item in pairs]
    if len(pairs) < len(wrong) or not gaps:
        return ""
    offsets = set().union(*gaps)
    if len(offsets) == 1:
        offset = offsets.pop()
        way = "ahead" if offset > 0 else "behind"
        return f"the {model} counts {abs(offset)} position{'s' if abs(offset) > 1 else ''} {way}, in every wrong step."
    if all(len(gap) == 1 for gap in gaps):
        low, high = min(offsets), max(offsets)
        return f"the {model}'s positions drift: they are off by {low} to {high}, by as much as was accepted before."
    if all(0 in gap and len(gap) == 2 for gap in gaps):
        return f"the {model} shifts the drafted tokens only; the committed ones before them are right."
    return ""
