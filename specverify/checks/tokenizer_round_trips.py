"""Text through the tokenizers and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specverify.checks.registry import CheckContext, Exercised, check
from specverify.checks.tokenizer_texts import own_texts, standard_texts
from specverify.checks.tokenizer_view import Pairing, TokenizerView, pairing
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table


@check(
    "tokenizer.round-trips",
    claim="Text survives encoding and decoding, and both tokenizers encode it alike.",
    kind=Kind.EXACT,
    needs={Capability.TOKENIZER},
    exercised_by=Exercised("round-trips"),
    catches=("tokenizer-cleans-up-spaces", "tokenizer-encodes-differently"),
    source="huggingface/transformers#46124: space clean-up made the re-encoded draft context drift from the text",
)
def round_trips(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Texts with digits, white space, many scripts and emoji, and texts made of the tokenizer's own tokens.

    A tokenizer without byte tokens cannot hold every text; for it only texts of its own tokens must come back.
    """
    pair = pairing(subject, context)
    for view in (pair.target, pair.draft):
        texts = [*(standard_texts() if view.keeps_every_byte else ()), *own_texts(view)]
        lost = [(text, back) for text in texts if _differs(text, back := _there_and_back(view, text))]
        context.exercised("round-trips", len(texts) - len(lost))
        if lost:
            text, back = min(lost, key=lambda entry: len(entry[0]))
            yield Finding(
                headline=f"The {view.role} tokenizer encodes {text!r} and decodes it to {back!r}.",
                where=(f"token ids {list(view.encode(text, add_special_tokens=False)[:12])}",),
                not_noise=f"{len(lost)} of {len(texts)} texts do not come back; texts are compared exactly.",
            )
    yield from _encoded_alike(pair, context)


def _there_and_back(view: TokenizerView, text: str) -> str:
    return view.decode(view.encode(text, add_special_tokens=False))


def _differs(text: str, back: str) -> bool:
    # Some tokenizers put one space before every text. It is no part of what was generated.
    return back not in (text, " " + text)


def _encoded_alike(pair: Pairing, context: CheckContext) -> Iterator[Finding]:
    if pair.draft_to_target is not None:
        return  # a reduced vocabulary cuts text differently, and is given ids, never text
    differing = []
    for text in sorted({*standard_texts(), *own_texts(pair.target)}, key=len):
        ids = [view.encode(text, add_special_tokens=False) for view in (pair.target, pair.draft)]
        context.exercised("round-trips", int(ids[0] == ids[1]))
        if ids[0] != ids[1]:
            differing.append((text, ids))
    if differing:
        text, (wanted, found) = differing[0]
        yield Finding(
            headline=f"{text!r} is {len(wanted)} tokens for the target and {len(found)} for the draft model."
            if len(wanted) != len(found)
            else f"{text!r} has other token ids for the draft model than for the target.",
            table=Table(rows=[("target", str(list(wanted[:12]))), ("draft", str(list(found[:12])))]),
            not_noise=f"{len(differing)} texts are encoded differently; ids are compared exactly.",
        )
