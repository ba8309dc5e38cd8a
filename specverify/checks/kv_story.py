"""What is in a cache row that should not be there, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from specverify.checks import evidence, noise, places, tree_shape, wording
from specverify.checks.long_runs import standard_then_long
from specverify.checks.places import Place
from specverify.checks.registry import CheckContext, Inconclusive
from specverify.core.outcomes import Finding, Table
from specverify.core.types import Step
from specverify.trace.pipeline import common_length

Model = Literal["target", "draft"]
Rows = NDArray[np.float64]


def rows_after(step: Step, model: Model) -> Any:
    return step.target_kv_rows if model == "target" else step.draft_kv_rows


def prefill(place: Place, model: Model, token_ids: Sequence[int]) -> Rows:
    """Rows [layers, 2, rows, heads, head_dim] of a fresh prefill by the engine that ran."""
    return np.asarray(place.run.engine.prefill_kv_rows(model, tuple(token_ids)), dtype=np.float64)


def row_differences(rows: Rows, wanted: Rows) -> Rows:
    """Largest absolute difference of each row, over layers, keys, values, heads and channels: [rows]."""
    if not rows.shape[2]:
        return np.zeros(0)
    result: Rows = np.abs(rows - wanted).max(axis=(0, 1, 3, 4))
    return result


def extra_rows(place: Place, model: Model, length: int, most: int) -> Iterator[str]:
    """Names the token that the first surplus row holds."""
    step = place.step
    index = most - step.start_position
    if length <= most or not 0 <= index < step.num_draft_tokens or step.parents is not None:
        return
    token = step.draft_token_ids[index]
    line = f"- Row {most} is one too many. Position {most} was drafted as token {token}"
    line += ", which was rejected." if index >= step.num_accepted else "."
    rows = rows_after(step, model)
    if rows is not None and hasattr(place.run.engine, "prefill_kv_rows"):
        text = (*places.committed_token_ids(place.trace)[: step.start_position], *step.draft_token_ids)
        fresh = prefill(place, model, text[: most + 1])[:, :, most:]
        gap = float(np.abs(np.asarray(rows, dtype=np.float64)[:, :, most : most + 1] - fresh).max())
        if gap <= 1e-6 * max(1.0, float(np.abs(fresh).max())):
            line += f" The row equals that of token {token} prefilled there (largest difference {gap:.1g})."
    yield line
    if index < len(step.token_ids):
        yield (
            f"- However, position {most} is token {step.token_ids[index]}. From here on the {model} attends to a token "
            "that is not in the text."
        )


def what_a_user_sees(place: Place, plain: evidence.Run | None) -> Iterator[str]:
    """The first visible wrong token of the same request, greedy runs only."""
    if plain is None or not place.run.sampling.is_greedy:
        return
    twin = next((t for t in plain.traces if t.request.request_id == place.trace.request.request_id), None)
    if twin is None:
        return
    on, off = place.trace.token_ids, twin.token_ids
    index = common_length(on, off)
    if index < min(len(on), len(off)):
        position = len(twin.request.prompt_token_ids) + index
        yield f"What a user sees: the first wrong token is at position {position}, {on[index]} instead of {off[index]}."
    else:
        yield f"What a user sees: nothing in these {len(on)} tokens."


def rollback_cause(wrong: Sequence[Place], judged: Sequence[Place], lengths: Sequence[int], surplus: int) -> str:
    """The rule that every wrong and every right step obeys, if one of the known ones does.

    lengths: rows after each judged step. surplus: rows too many in the smallest wrong step, negative if too few.
    """
    rejections = [(p, n) for p, n in zip(judged, lengths, strict=True) if p.step.is_rejection]
    if rejections and all(n >= p.step.start_position + p.step.num_draft_tokens - 1 for p, n in rejections):
        kept_all = {n - p.step.start_position - p.step.num_draft_tokens for p, n in rejections}
        if len(kept_all) == 1 and any(p.step.num_draft_tokens - p.step.num_accepted > 1 for p, _ in rejections):
            return "rejected rows are not dropped at all: after every rejection the whole draft is still in the cache."
    # Surplus rows stay, so later steps are wrong too: what counts is the first wrong step of each trace, and that no
    # step of its kind was right before it.
    firsts = [place for index, place in enumerate(wrong) if all(place.trace is not p.trace for p in wrong[:index])]
    kinds = {place.step.is_rejection for place in firsts}
    was_right = {
        place.step.is_rejection
        for place in judged
        if place not in wrong and any(place.trace is f.trace and place.step.index < f.step.index for f in firsts)
    }
    if len(kinds) != 1 or kinds & was_right or surplus == 0:
        return ""
    when = "a rejection" if kinds == {True} else "a full accept"
    how = "too many" if surplus > 0 else "too few"
    return f"the rollback after {when} keeps {wording.plural(abs(surplus), 'row')} {how}."


def wrong_rows(
    subject: Any, context: CheckContext, model: Model, *,
    runs: Sequence[evidence.Run] | None = None, is_judged: Callable[[Place], bool] = lambda place: True,
) -> Iterator[Finding]:  # fmt: skip
    """Compares every recorded cache with a prefill of the committed tokens; one finding, the smallest case.

    runs, is_judged: which steps, where not all; else a pass needs every accept length.
    """
    judged: list[Place] = []
    worst: list[tuple[Place, int, float, float]] = []
    largest = 0.0
    for chosen in [runs] if runs is not None else standard_then_long(subject, context):
        for place, rows, wanted in _compared(chosen, model):
            if not is_judged(place):
                continue
            judged.append(place)
            scale = max(float(np.abs(wanted).max(initial=0.0)), 1e-30)
            allowed = scale * max(noise.floor(noise.ROW_FLOOR, place.run.engine), _prefill_noise(place, model, context))
            differences = row_differences(rows, wanted)
            bad = np.flatnonzero(~(differences <= allowed))
            if bad.size:
                worst.append((place, int(bad[0]), float(differences[bad[0]]), allowed))
            elif differences.size:
                largest = max(largest, float(differences.max()))
        if worst:
            break
    if not judged:
        raise Inconclusive(f"no step shows the rows of a {model} cache")
    places.count_steps(context, judged)
    if worst:
        first = places.smallest([place for place, *_ in worst])
        place, row, difference, allowed = next(item for item in worst if item[0] is first)
        yield _row_finding(place, row, difference, allowed, len(worst), len(judged), model, subject, context)
    if runs is None:
        places.require_every_length(subject, context)
    context.figures["largest_row_difference"] = largest
    context.worth(f"{places.accept_length_line(context)}; rows within {largest:.0e}")


def _compared(runs: Sequence[evidence.Run], model: Model) -> Iterator[tuple[Place, Rows, Rows]]:
    fresh: tuple[Any, Rows] | None = None
    for place in places.all_places(runs):
        recorded = rows_after(place.step, model)
        if recorded is None or not hasattr(place.run.engine, "prefill_kv_rows"):
            continue
        if fresh is None or fresh[0] is not place.trace:
            fresh = (place.trace, prefill(place, model, places.committed_token_ids(place.trace)))
        rows = np.asarray(recorded, dtype=np.float64)
        # Rows past the committed tokens are kv.rejected-rows-dropped's business, except where they sit among them.
        num_rows = min(rows.shape[2], place.committed_after, fresh[1].shape[2])
        yield place, rows[:, :, :num_rows], fresh[1][:, :, :num_rows]


def _prefill_noise(place: Place, model: Model, context: CheckContext) -> float:
    """Relative difference of the rows that two prefills of different length share, times a safety factor."""

    def measure() -> float:
        tokens = places.committed_token_ids(place.trace)
        whole, part = prefill(place, model, tokens), prefill(place, model, tokens[: max(2, len(tokens) // 2)])
        shared = min(whole.shape[2], part.shape[2])
        scale = max(float(np.abs(whole).max(initial=0.0)), 1e-30)
        return noise.SAFETY * float(row_differences(whole[:, :, :shared], part[:, :, :shared]).max(initial=0.0)) / scale

    return evidence.once(context, f"noise/rows/{model}/{place.run.drafter}", measure)


def _row_finding(
    place: Place, row: int, difference: float, allowed: float, num_wrong: int, num_judged: int, model: Model,
    subject: Any, context: CheckContext,
) -> Finding:  # fmt: skip
    step = place.step
    tokens = places.committed_token_ids(place.trace)
    plain = None if evidence.is_recorded(subject) else evidence.plain_run(subject, context)
    return Finding(
        headline=f"After step {step.index} row {row} of the {model}'s cache is not that of token {tokens[row]}, "
        f"which stands at position {row}.",
        table=Table(
            rows=(
                ("starts with", str(step.start_position), "committed tokens"),
                tree_shape.drafts_row(step),
                ("accepted", str(step.num_accepted), "of", str(step.num_draft_tokens)),
                ("committed", *wording.token_text(step.token_ids)),
                (f"row {row}", f"off by {difference:.3g}", f"allowed {allowed:.1g}"),
            )
        ),
        not_noise=f"Not rounding: two prefills of different length agree within {allowed:.1g}.",
        where=(
            f"Seen in: {place.describe()}; {wording.plural(num_wrong, 'step')} of {num_judged} wrong.",
            *_holder(place, row, model),
            *what_a_user_sees(place, plain),
        ),
        details={"row": row, "difference": difference, "allowed": allowed, "wrong_steps": num_wrong},
    )


def _holder(place: Place, row: int, model: Model) -> Iterator[str]:
    """What the row really holds: another row of the text, or a draft token that was rejected."""
    actual = np.asarray(rows_after(place.step, model), dtype=np.float64)[:, :, row : row + 1]
    tokens = places.committed_token_ids(place.trace)
    fresh = prefill(place, model, tokens)
    scale = 1e-5 * max(1.0, float(np.abs(fresh).max()))
    distances = row_differences(fresh, actual)
    nearest = int(distances.argmin())
    if distances[nearest] <= scale:
        shift = nearest - row
        yield f"- It equals the row of position {nearest} (token {tokens[nearest]}): rows are shifted by {shift}."
        return
    for earlier in place.trace.steps[: place.step.index + 1]:
        for node, depth in enumerate(tree_shape.node_depths(earlier)):
            token, start = earlier.draft_token_ids[node], earlier.start_position
            if start + depth - 1 != row or token == tokens[row]:
                continue
            text = (*tokens[:start], *tree_shape.tokens_of(earlier, tree_shape.node_path(earlier, node)))
            if float(np.abs(prefill(place, model, text)[:, :, row:] - actual).max()) <= scale:
                yield f"- It holds token {token}, drafted for position {row} in step {earlier.index} and rejected."
                return
    if not np.isfinite(actual).all():
        yield "- It holds NaN or infinity."
    elif not actual.any():
        yield "- It holds zeros: the row was never written."
    else:
        yield _shifted_position(row, actual, fresh, scale)


def _shifted_position(row: int, actual: Rows, fresh: Rows, scale: float) -> str:
    """Values do not depend on the position in the first layer, keys do: a right value with a wrong key says so."""
    key_gap, value_gap = (float(np.abs(actual[0, i] - fresh[0, i, row : row + 1]).max()) for i in (0, 1))
    if value_gap <= scale < key_gap:
        return "- In the first layer its value is right and its key is not: the token was given a wrong position."
    if value_gap <= scale and key_gap <= scale:
        return "- Its first layer is right and a later one is not: the token attended to wrong rows before it."
    return "- It equals neither another row of this text nor a rejected draft token: perhaps another request's row."
