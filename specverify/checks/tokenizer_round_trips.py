"""Text through the tokenizers and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specverify.checks.registry import CheckContext, Exercised, check
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


_TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "3.14159 and 1234567890, 007, 1,000,000",
    "two  spaces,   three, and a trailing one ",
    " leading space",
    "tab\there\nnew line\r\nboth\n\n\nthree",
    "don't stop ; really ? yes ! it's , he said , ' fine ' .",
    "naïve café, Ärger, øl, ğüş, šťava",
    "Привет, мир! Γειά σου Κόσμε. שלום עולם",
    "日本語のテキスト と 中文文本 그리고 한국어",
    "नमस्ते दुनिया مرحبا بالعالم",
    "emoji 😀 👩‍👩‍👧‍👦 🇩🇪 done",
    "def f(x):\n    return x ** 2  # comment\n",
    "\u200bzero width\u00a0no-break",
    "a" * 70,
)
# Own tokens per text, and how many texts: a spread over the whole vocabulary.
_TOKENS_PER_TEXT, _NUM_OWN_TEXTS = 6, 24


def standard_texts() -> tuple[str, ...]:
    """Texts in composed Unicode (NFC): digits, white space, punctuation, many scripts, emoji, code."""
    return _TEXTS


def own_texts(view: TokenizerView) -> tuple[str, ...]:
    """Texts made of the tokenizer's own tokens, for vocabularies that cannot spell the standard ones."""
    words = [i for i in sorted(view.tokens) if i not in view.added_ids and i != view.special_roles.get("unk")]
    if not words:
        return ()
    step = max(1, len(words) // (_NUM_OWN_TEXTS * _TOKENS_PER_TEXT))
    picked = words[::step][: _NUM_OWN_TEXTS * _TOKENS_PER_TEXT]
    texts = []
    for start in range(0, len(picked), _TOKENS_PER_TEXT):
        text = view.decode(picked[start : start + _TOKENS_PER_TEXT]).strip()
        # Tokens that hold part of a character decode to a replacement sign, which is no text to encode again.
        if text and "\N{REPLACEMENT CHARACTER}" not in text and text not in texts:
            texts.append(text)
    return tuple(texts)
