"""Guards at the door of every closed form: a bad law is refused with its row and value named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specverify.core.errors import UsageError

# A float16 softmax over 32,000 tokens sums to 1 within about 1e-3; a forgotten normalisation is far outside.
ROW_SUM_TOLERANCE = 2e-3


def checked_law(rows: ArrayLike, name: str) -> NDArray[np.float64]:
    """The rows as float64, [..., vocab], each a probability law within ROW_SUM_TOLERANCE. Rows are not renormalised.

    Raises UsageError naming the first bad row and its value.
    """
    law = _as_float64(rows, name)
    if law.ndim == 0 or law.shape[-1] == 0:
        raise UsageError(f"{name} has shape {law.shape}; give at least one row of probabilities, [..., vocab]")
    # The common case in two passes: closed forms are evaluated by the thousand, and NaN fails every comparison.
    sums = law.sum(axis=-1)
    if (law >= 0.0).all() and (np.abs(sums - 1.0) <= ROW_SUM_TOLERANCE).all():
        return law
    _refuse(np.isnan(law), law, name, "is not a number; probabilities lie between 0 and 1")
    _refuse((law < 0.0) | np.isinf(law), law, name, "is no probability; probabilities lie between 0 and 1")
    row = tuple(int(i) for i in np.argwhere(np.abs(sums - 1.0) > ROW_SUM_TOLERANCE)[0])
    raise UsageError(
        f"{_place(name, row)} sums to {float(sums[row]):.6g}; each row must sum to 1: apply softmax to logits, "
        "or renormalise after masking"
    )


def checked_step(
    draft_token_ids: Sequence[int], draft_probs: ArrayLike | None, target_probs: ArrayLike
) -> tuple[tuple[int, ...], NDArray[np.float64] | None, NDArray[np.float64]]:
    """The arguments of a verify step, checked: k token ids, draft rows [k, vocab] or None, target rows [k + 1, vocab].

    Raises UsageError for a wrong number of rows, unequal vocabularies, tokens outside the vocabulary or bad laws.
    """
    tokens = tuple(int(token) for token in draft_token_ids)
    target = checked_law(target_probs, "target_probs")
    if target.ndim != 2:
        raise UsageError(f"target_probs has shape {target.shape}; give [num_draft_tokens + 1, vocab]")
    if len(target) != len(tokens) + 1:
        raise UsageError(
            f"target_probs has {len(target)} rows for {len(tokens)} draft tokens; give {len(tokens) + 1}: "
            "the last row is the law of the bonus token"
        )
    vocab_size = target.shape[1]
    for position, token in enumerate(tokens):
        if not 0 <= token < vocab_size:
            raise UsageError(f"draft_token_ids[{position}] is {token}; target_probs has tokens 0 to {vocab_size - 1}")
    if draft_probs is None or not tokens:
        return tokens, None if draft_probs is None else np.zeros((0, vocab_size)), target
    draft = checked_law(draft_probs, "draft_probs")
    if draft.shape != (len(tokens), vocab_size):
        raise UsageError(
            f"draft_probs has shape {draft.shape} for {len(tokens)} draft tokens and a vocabulary of {vocab_size}; "
            f"give {(len(tokens), vocab_size)}: one row for each draft token"
        )
    return tokens, draft, target


def required_draft(draft_probs: NDArray[np.float64] | None, rule: str) -> NDArray[np.float64]:
    """The draft rows, or UsageError saying that this rule cannot do without them."""
    if draft_probs is None:
        raise UsageError(f"{rule} needs draft_probs, [num_draft_tokens, vocab]; use point_mass_step for a draft "
                         "without a law")  # fmt: skip
    return draft_probs


def _as_float64(rows: ArrayLike, name: str) -> NDArray[np.float64]:
    try:
        return np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{name} is no rectangular array of numbers ({error}); give probabilities [..., vocab]"
        ) from None


def _refuse(bad: NDArray[Any], law: NDArray[np.float64], name: str, why: str) -> None:
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        raise UsageError(f"{_place(name, place)} is {float(law[place]):.6g}, which {why}")


def _place(name: str, index: tuple[int, ...]) -> str:
    return name + (f"[{', '.join(str(i) for i in index)}]" if index else "")
