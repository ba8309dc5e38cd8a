"""Texts on which tokenizers are compared."""

from __future__ import annotations

from specverify.checks.tokenizer_view import TokenizerView

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
