"""The caches of target and draft: after every step they hold the committed tokens and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from specverify.checks import evidence, kv_story, places, wording
from specverify.checks.long_runs import standard_then_long
from specverify.checks.places import Place
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.types import Step

Model = Literal["target", "draft"]
_EXERCISED = (Exercised("rejections"),)
_ALGORITHM = "arXiv 2211.17192, algorithm 1: a step returns the accepted prefix and one token"


@check(
    "kv.rejected-rows-dropped",
    claim="After a rejection the target's KV cache holds the committed tokens and nothing else.",
    kind=Kind.EXACT,
    needs={Capability.TRACE, Capability.KV_LENGTH},
    exercised_by=_EXERCISED,
    catches=("kv-rollback-one-short", "kv-not-rolled-back", "kv-rollback-one-too-many"),
    source=_ALGORITHM,
)
def rejected_rows_dropped(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """A step that starts with n committed tokens and accepts a drafts ends with n + a + 1.

    The final token's row is written by the next step (KV lag 1), so n + a rows remain. Steps cut short by an end
    token or by the length limit are not judged: the request is over, its cache is nobody's business.
    """
    yield from _wrong_lengths(subject, context, "target")


@check(
    "kv.draft-rows-dropped",
    claim="After a rejection the draft model's KV cache holds committed tokens only, and lacks none it should have.",
    kind=Kind.EXACT,
    needs={Capability.TRACE, Capability.KV_LENGTH, Capability.DRAFT_KV},
    exercised_by=_EXERCISED,
    catches=(
        "draft-kv-not-rolled-back",
        "draft-kv-rollback-one-short",
        "draft-state-gap",
        "draft-kv-after-many-rejections",
    ),
    source="mlc-ai/mlc-llm#2939: rejected tokens removed from the target's cache but not from the draft's",
)
def draft_rows_dropped(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Like kv.rejected-rows-dropped, with room for what a draft model may rightly lack.

    After a full accept the draft model has never computed the last draft token, so one more row may be missing; after
    an empty draft it may not have been run at all. What it must never have is a row that is not committed.
    """
    yield from _wrong_lengths(subject, context, "draft")


def _wrong_lengths(subject: Any, context: CheckContext, model: Model) -> Iterator[Finding]:
    judged: list[Place] = []
    wrong: list[Place] = []
    for runs in standard_then_long(subject, context):
        judged += [
            place
            for place in places.all_places(runs)
            if length_after(place.step, model) is not None and not place.step.is_truncated
        ]
        wrong = [place for place in judged if not _is_allowed(place, model)]
        if wrong:
            break
    if not judged:
        raise Inconclusive(f"no step reports the rows of a {model} cache: {_no_cache(model)}")
    places.count_steps(context, judged)
    if wrong:
        plain = None if evidence.is_recorded(subject) else evidence.plain_run(subject, context)
        yield _length_finding(wrong, judged, model, plain)
    places.require_every_length(subject, context)
    context.worth(places.accept_length_line(context))


def _no_cache(model: Model) -> str:
    return "does the drafter keep one?" if model == "draft" else "was speculation on?"


def length_after(step: Step, model: Model) -> int | None:
    return step.target_kv_length_after if model == "target" else step.draft_kv_length_after


def allowed_lengths(place: Place, model: Model) -> tuple[int, int]:
    """Fewest and most rows the cache may have after this step."""
    step, trace = place.step, place.trace
    committed = place.committed_after
    if model == "target":
        # An engine that adds no bonus token has already computed everything it committed.
        no_final_token = len(step.token_ids) == step.num_accepted
        return committed - trace.kv_lag, committed if no_final_token else committed - trace.kv_lag
    lag = 1 if trace.draft_kv_lag is None else trace.draft_kv_lag
    most = committed if trace.draft_kv_lag is None else committed - lag
    if step.num_draft_tokens == 0:
        return 0, most
    # The last draft token of a full accept was never computed by the draft model.
    return committed - lag - (0 if step.is_rejection else 1), most


def _is_allowed(place: Place, model: Model) -> bool:
    fewest, most = allowed_lengths(place, model)
    length = length_after(place.step, model)
    return length is not None and fewest <= length <= most


def _length_finding(
    wrong: Sequence[Place], judged: Sequence[Place], model: Model, plain: evidence.Run | None
) -> Finding:
    place = places.smallest(wrong)
    step = place.step
    fewest, most = allowed_lengths(place, model)
    length = length_after(step, model) or 0
    before = length_after(place.previous, model) if place.previous is not None else None
    had = f", {wording.plural(before, 'row')} in the {model}'s cache" if before is not None else ""
    excess = length - most if length > most else length - fewest
    lengths = [length_after(other.step, model) or 0 for other in judged]
    return Finding(
        headline=f"Step {step.index} starts with {step.start_position} committed tokens{had}.",
        table=Table(
            rows=(
                ("draft", *(wording.token_text(step.draft_token_ids) or ["none"])),
                ("accepted", str(step.num_accepted), "of", str(step.num_draft_tokens)),
                ("committed", *wording.token_text(step.token_ids)),
                ("rows after", str(length), "should be", str(most) if fewest == most else f"{fewest} to {most}"),
            )
        ),
        not_noise="Rows are counted, not measured: the number is exact.",
        where=(
            f"Seen in: {place.describe()}; {wording.plural(len(wrong), 'step')} of {len(judged)} wrong.",
            *kv_story.extra_rows(place, model, length, most),
            *kv_story.what_a_user_sees(place, plain),
        ),
        likely_cause=kv_story.rollback_cause(wrong, judged, lengths, excess),
        details={"rows": length, "fewest": fewest, "most": most, "wrong_steps": len(wrong), "steps": len(judged)},
    )


@check(
    "kv.rows-equal-prefill",
    claim="After every step the rows of the target's KV cache are those of a fresh prefill of the committed tokens.",
    kind=Kind.EXACT,
    needs={Capability.TRACE, Capability.KV_ROWS},
    exercised_by=_EXERCISED,
    catches=(
        "kv-row-stale",
        "kv-values-misplaced",
        "kv-rollback-one-short",
        "position-target-drift",
        "batch-neighbour-kv-row",
        "layer-skip-rows-left",
        "kv-page-end-lost",
    ),
    source="alibaba/MNN#4600: values of several tokens on top of a cache were written to the wrong place",
)
def rows_equal_prefill(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Key and value of every layer, row by row, against the engine's own prefill of the same tokens; also in texts that
    pass 128 and 256 rows while drafts are rejected.

    Rounding may differ with the shape of the computation: the tolerance is the larger of a floor by dtype and eight
    times the difference between two prefills of different length.
    """
    yield from kv_story.wrong_rows(subject, context, "target")


@check(
    "kv.draft-rows-equal-prefill",
    claim="After every step the rows of the draft model's KV cache are those of a fresh prefill.",
    kind=Kind.EXACT,
    needs={Capability.TRACE, Capability.KV_ROWS, Capability.DRAFT_KV},
    exercised_by=_EXERCISED,
    catches=(
        "draft-kv-missing-last-accepted",
        "draft-kv-row-stale",
        "draft-state-gap",
        "position-draft-ahead",
        "head-keeps-own-states",
        "draft-quantised-scale-missing",
        "head-reads-last-state-for-taps",
        "head-positions-one-early",
    ),
    source="xLLM-AI/xllm#960: after a full accept the last draft token had no row in the draft model's cache",
)
def draft_rows_equal_prefill(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """As kv.rows-equal-prefill, for the draft model: its faults change no law, only what is accepted."""
    yield from kv_story.wrong_rows(subject, context, "draft")
