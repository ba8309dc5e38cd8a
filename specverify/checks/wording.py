"""Numbers and tokens as the messages of checks print them."""

from __future__ import annotations

from collections.abc import Sequence


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def probability_text(probability: float) -> str:
    """Three decimals, without the leading zero; very small ones as a power of ten."""
    if 0.0 < probability < 5e-4:
        return f"{probability:.0e}"
    return f"{probability:.3f}".removeprefix("0")


def signed_text(difference: float) -> str:
    """A difference of probabilities with its sign."""
    if abs(difference) < 5e-4:
        return f"{difference:+.0e}" if difference else "0"
    return f"{difference:+.3f}".replace("0.", ".", 1)


def token_text(token_ids: Sequence[int]) -> list[str]:
    """Token ids as table cells."""
    return [str(token) for token in token_ids]


# A longer prompt is shown by its ends.
_MOST_SHOWN, _SHOWN_END = 32, 8


def prompt_text(token_ids: Sequence[int]) -> str:
    """A prompt as a list; of a long one its two ends and its length."""
    if len(token_ids) <= _MOST_SHOWN:
        return str(list(token_ids))
    begin, end = (", ".join(token_text(part)) for part in (token_ids[:_SHOWN_END], token_ids[-_SHOWN_END:]))
    return f"[{begin}, ..., {end}] ({len(token_ids)} tokens)"
