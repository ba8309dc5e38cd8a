"""What happens to one draft token: accepted with what probability, replaced by what law."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specverify.core.errors import UsageError
from specverify.laws.validate import checked_law


def residual(draft_probs: ArrayLike, target_probs: ArrayLike) -> NDArray[np.float64]:
    """Law of the token that replaces a rejected draft token.

    draft_probs, target_probs: [..., vocab], each row summing to 1.
    Where the two rows are equal no draft is ever rejected; the target row is returned.

    Source: Leviathan et al. 2023, arXiv 2211.17192, section 2.3.
    """
    draft, target = _checked_pair(draft_probs, target_probs)
    return normalised(np.maximum(target - draft, 0.0), otherwise=target)


def acceptance_efficiency(draft_probs: ArrayLike, target_probs: ArrayLike) -> NDArray[np.float64]:
    """Probability that a token drawn from the draft law is accepted: sum over tokens of min(draft, target), [...].

    The most that any lossless rule can reach for a single draft token: 1 minus the total variation of the rows.
    Source: Leviathan et al. 2023, arXiv 2211.17192, section 3.2.
    """
    draft, target = _checked_pair(draft_probs, target_probs)
    efficiency: NDArray[np.float64] = np.minimum(draft, target).sum(axis=-1)
    return efficiency


def accept_ratio(draft: ArrayLike, target: ArrayLike) -> NDArray[np.float64]:
    """min(1, target / draft) for probabilities of single tokens; 0 / 0 is 0."""
    draft, target = np.asarray(draft, dtype=np.float64), np.asarray(target, dtype=np.float64)
    is_possible = draft > 0.0
    ratio = np.where(is_possible, target / np.where(is_possible, draft, 1.0), np.where(target > 0.0, 1.0, 0.0))
    return np.minimum(1.0, ratio)


def normalised(mass: NDArray[np.float64], *, otherwise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of non-negative mass divided by their sums; rows without mass are taken from otherwise."""
    total = mass.sum(axis=-1, keepdims=True)
    return np.where(total > 0.0, mass / np.where(total > 0.0, total, 1.0), otherwise)


def _checked_pair(draft_probs: ArrayLike, target_probs: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    draft, target = checked_law(draft_probs, "draft_probs"), checked_law(target_probs, "target_probs")
    if draft.shape != target.shape:
        raise UsageError(f"draft_probs has shape {draft.shape} and target_probs {target.shape}; give equal shapes")
    return draft, target
