"""Draft and target vocabularies, compared before anything runs: one id must mean one thing to both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specverify.checks.registry import CheckContext, Exercised, check
from specverify.checks.tokenizer_view import Pairing, pairing, shown
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table

# Rows of a finding's table; the counts are in its text.
_SHOWN_ROWS = 5


@check(
    "tokenizer.vocabularies-agree",
    claim="A token id means the same bytes to the draft model and to the target model.",
    kind=Kind.EXACT,
    needs={Capability.TOKENIZER},
    exercised_by=Exercised("compared-tokens"),
    catches=(
        "tokenizer-ids-permuted",
        "tokenizer-ids-swapped",
        "tokenizer-reduced-vocabulary-without-table",
        "tokenizer-table-in-draft-ids",
    ),
    source="ggml-org/llama.cpp#3812, sgl-project/sglang#23838: a foreign vocabulary makes drafts random, silently",
)
def vocabularies_agree(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Compares the bytes of every draft id with those of the target id that it is passed on as.

    That is the same id, or the one in the subject's draft_to_target table. Ids that only one of the two has are the
    business of tokenizer.vocabulary-padding.
    """
    pair = pairing(subject, context)
    wanted, found = pair.target.token_bytes, pair.draft.token_bytes
    compared, differing = 0, []
    for draft_id in sorted(found):
        target_id = pair.to_target(draft_id)
        if target_id is None or target_id not in wanted:
            continue
        compared += 1
        if found[draft_id] != wanted[target_id]:
            differing.append((draft_id, target_id))
    context.exercised("compared-tokens", compared)
    if not differing:
        context.worth(f"{compared:,} token ids mean the same bytes to both models")
    else:
        draft_id, target_id = differing[0]
        rows = [(str(a), shown(found[a]), str(b), shown(wanted[b])) for a, b in differing[:_SHOWN_ROWS]]
        yield Finding(
            headline=f"Draft id {draft_id} is {shown(found[draft_id])}, but the target takes it as id {target_id}, "
            f"which is {shown(wanted[target_id])}.",
            table=Table(rows=[("draft id", "means", "target id", "means"), *rows]),
            not_noise=f"{len(differing):,} of {compared:,} ids differ; ids and bytes are compared exactly.",
            likely_cause=_cause(pair, differing),
            details={"differing": len(differing), "compared": compared},
        )


def _cause(pair: Pairing, differing: list[tuple[int, int]]) -> str:
    """Why the ids differ, only where one pattern explains all of them."""
    wanted, found = pair.target.token_bytes, pair.draft.token_bytes
    target_id_of = {content: token_id for token_id, content in sorted(wanted.items(), reverse=True)}
    if any(found[draft_id] not in target_id_of for draft_id, _ in differing):
        return ""
    if pair.draft_to_target is not None:
        return "the draft-to-target table is wrong: the target has all of these tokens, under other ids."
    shifts = {target_id_of[found[draft_id]] - draft_id for draft_id, _ in differing}
    if len(shifts) == 1:
        shift = shifts.pop()
        side = f"{shift} behind" if shift > 0 else f"{-shift} ahead of"
        return (
            f"from id {differing[0][0]} on, draft ids are {side} the target's: one of them has tokens inserted there."
        )
    if len(found) < len(wanted):
        return "the draft model has a reduced vocabulary and its draft-to-target table was not loaded."
    return "the same tokens in another order: draft ids are passed on without translation."


@check(
    "tokenizer.vocabulary-padding",
    claim="Every id that the draft model can name exists for the target, and every text token for its own model.",
    kind=Kind.EXACT,
    needs={Capability.TOKENIZER},
    exercised_by=Exercised("sized-vocabularies"),
    catches=("tokenizer-draft-id-out-of-range", "tokenizer-model-too-narrow", "special-placeholder-out-of-range"),
    source="vllm-project/vllm#13849, ggml-org/llama.cpp#17480: padded heads are fine, ids beyond the target's are not",
)
def vocabulary_padding(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Padding the head to a round number is usual and passes; a token beyond the target's last id does not.

    Without the subject's vocab_sizes the tokenizers' own sizes are taken. Padding tokens may lie outside: they are
    masked.
    """
    pair = pairing(subject, context)
    context.exercised("sized-vocabularies")
    for view in (pair.target, pair.draft):
        width = pair.width(view.role)
        outside = sorted(i for i in view.tokens if i >= width and i != view.special_roles.get("pad"))
        if outside:
            yield Finding(
                headline=f"The {view.role} tokenizer has {shown(view.token_bytes[outside[0]])} as id {outside[0]}, "
                f"but its model ends at id {width - 1}.",
                not_noise=f"{len(outside):,} tokens lie beyond the model's {width:,} rows.",
                likely_cause="tokenizer and model are of different releases, or tokens were added without new rows.",
            )
    limit = pair.width("target")
    passed_on = {i: pair.to_target(i) for i in sorted(pair.draft.tokens)}
    unknown = [i for i, target_id in passed_on.items() if target_id is None or not 0 <= target_id < limit]
    if unknown:
        draft_id = unknown[0]
        target_id = passed_on[draft_id]
        taken = "has no row in the draft-to-target table" if target_id is None else f"is passed on as id {target_id}"
        yield Finding(
            headline=f"Draft id {draft_id} ({shown(pair.draft.token_bytes[draft_id])}) {taken}, "
            f"but the target ends at id {limit - 1}.",
            not_noise=f"{len(unknown):,} draft tokens have no place in the target's {limit:,} rows.",
            likely_cause="" if pair.draft_to_target is not None else "the draft model brings tokens of its own.",
        )
    yield from _table_is_sound(pair)
    _note_padding(pair, context)


def _table_is_sound(pair: Pairing) -> Iterator[Finding]:
    """Two draft ids that stand for one target id make the declared draft law wrong."""
    table = pair.draft_to_target or ()
    first: dict[int, int] = {}
    for draft_id, target_id in enumerate(table):
        if target_id in first:
            yield Finding(
                headline=f"Draft ids {first[target_id]} and {draft_id} both stand for target id {target_id}.",
                not_noise="The draft probability of that token is then split over two ids.",
            )
            return
        first[target_id] = draft_id


def _note_padding(pair: Pairing, context: CheckContext) -> None:
    limit = pair.width("target")
    for view in (pair.target, pair.draft):
        width = pair.width(view.role)
        if width > view.size:
            context.worth(f"{view.role}: {width - view.size:,} padding rows after {view.size:,} token ids")
    first_padding = max(limit, pair.draft.size)
    if pair.draft_to_target is None and pair.width("draft") > first_padding:
        last = pair.width("draft") - 1
        context.worth(f"draft rows {first_padding:,} to {last:,} are padding: drafts must never name them")
