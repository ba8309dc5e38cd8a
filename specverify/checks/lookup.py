"""Prompt lookup copies from the text as it stands: every draft followed what the text ends in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from specverify.checks import evidence, places, wording
from specverify.checks.places import Place
from specverify.checks.registry import CheckContext, Exercised, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table

# Tokens of the text's end that the message shows.
_SHOWN_END = 8


@check(
    "draft.lookup-continues-text",
    claim="A draft that is looked up in the text is what followed an earlier occurrence of the text's end.",
    kind=Kind.EXACT,
    needs={Capability.TRACE, Capability.PROMPT_LOOKUP},
    exercised_by=(Exercised("looked-up-drafts"),),
    catches=("lookup-one-too-late", "lookup-lags-a-step", "lookup-in-neighbour"),
    source="vllm-project/vllm-ascend#3628 and vllm-project/vllm#20247: looked up one token off, and in an older text",
)
def lookup_continues_text(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Standard runs with the engine's own drafter, every step with a draft. The text is the prompt and all tokens that
    were committed before the step.

    Which occurrence is taken, and how long the suffix must be, is the engine's choice. True of every choice: the last
    token of the text stood somewhere before, and the draft is what came behind it there; a draft that reaches the end
    of the text may go on with its own beginning. An engine that finds too little is not seen: that too is a choice.
    """
    runs = evidence.own_runs(subject, context)
    seen = [place for place in places.all_places(runs) if place.step.draft_token_ids and place.step.parents is None]
    context.exercised("looked-up-drafts", len(seen))
    wrong = [place for place in seen if not _continues(_text(place), place.step.draft_token_ids)]
    if wrong:
        yield _finding(wrong, seen)
    context.worth(f"{len(seen)} drafts, each what followed an earlier occurrence of the text's end")


def _text(place: Place) -> tuple[int, ...]:
    return places.committed_token_ids(place.trace)[: place.step.start_position]


def _continues(text: Sequence[int], draft: Sequence[int]) -> bool:
    """Whether the last token of the text stood before, and the draft followed it there."""
    both = (*text, *draft)
    return any(
        text[end - 1] == text[-1] and both[end : end + len(draft)] == tuple(draft) for end in range(1, len(text))
    )


def _finding(wrong: Sequence[Place], seen: Sequence[Place]) -> Finding:
    place = places.smallest(wrong)
    text, draft = _text(place), place.step.draft_token_ids
    begin = text.index(text[-1]) + 1
    followed = text[begin : begin + len(draft)] if begin < len(text) else ()
    return Finding(
        headline=f"The draft of step {place.step.index} followed no earlier occurrence of token {text[-1]}, "
        "in which the text ends.",
        table=Table(
            rows=(
                ("text ends in", *wording.token_text(text[-_SHOWN_END:])),
                ("draft", *wording.token_text(draft)),
                (f"first followed {text[-1]}", *(wording.token_text(followed) or ["nothing: it is new"])),
            )
        ),
        not_noise="Tokens are compared: the case is exact.",
        where=(
            f"Seen in: {place.describe()}; {wording.plural(len(wrong), 'draft')} of {len(seen):,} wrong.",
            f"The text is {wording.prompt_text(text)}.",
        ),
        likely_cause=_cause(wrong),
        details={"wrong": len(wrong), "drafts": len(seen)},
    )


def _cause(wrong: Sequence[Place]) -> str:
    """A cause that every wrong draft shares, or nothing."""
    if all(_is_late(_text(place), place.step.draft_token_ids) for place in wrong):
        return "the copy begins one token too late: it leaves out the token right behind the earlier occurrence."
    lagging = [
        place.previous is not None
        and _continues(_text(place)[: place.previous.start_position], place.step.draft_token_ids)
        for place in wrong
    ]
    return "the text that is searched lacks the tokens of the last step." if all(lagging) else ""


def _is_late(text: Sequence[int], draft: Sequence[int]) -> bool:
    """Whether the draft stands one token behind an earlier occurrence of the last token."""
    both = (*text, *draft)
    return any(
        text[end - 1] == text[-1] and both[end + 1 : end + 1 + len(draft)] == tuple(draft)
        for end in range(1, len(text))
    )
