"""Directed bets: laws towards which a broken verifier might drift, as rows beside the target's row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# How far each bet moves from the target towards its direction. The largest wins fast on gross errors, the smallest
# on rare ones; six of them cost log(6) nats against knowing the right one.
MIXING_WEIGHTS: NDArray[np.float64] = np.array([1.0, 0.3, 0.1, 0.03, 0.01, 0.003])

DIRECTIONS = (
    "draft", "target-above-draft", "draft-above-target", "target-argmax", "draft-argmax", "hotter", "colder", "top-p",
    "uniform", "previous-row",
)  # fmt: skip

_HOTTER, _COLDER, _TOP_P = 1.1, 0.9, 0.9


def direction_rows(
    target: NDArray[np.float64],
    draft: NDArray[np.float64] | None = None,
    previous: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """One row per direction and target row, [directions, rows, vocab], in the order of DIRECTIONS.

    target: [rows, vocab]. draft: [rows, vocab] or None; a row of NaN has no draft law (a bonus token's, say).
    previous: the target's law one position earlier, likewise. Where a direction has no row the target's stands in:
    a bet on nothing, whose ratio is 1.
    """
    draft = target if draft is None else np.where(np.isnan(draft), target, draft)
    previous = target if previous is None else np.where(np.isnan(previous), target, previous)
    difference = target - draft
    return np.stack(
        [
            draft,
            _normalised(np.maximum(difference, 0.0), target),
            _normalised(np.maximum(-difference, 0.0), target),
            _argmax_rows(target),
            _argmax_rows(draft),
            _normalised(target ** (1.0 / _HOTTER), target),
            _normalised(target ** (1.0 / _COLDER), target),
            _top_p_rows(target),
            _normalised((target > 0.0).astype(np.float64), target),
            previous,
        ]
    )


def log_bets(alternative: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log likelihood ratio of every mixing weight, [mixing, ...], for probabilities of emitted tokens, [...].

    Each is an e-value: the mixture of two laws over the target, at the token that was emitted.
    """
    weights = MIXING_WEIGHTS.reshape(-1, *[1] * target.ndim)
    with np.errstate(divide="ignore"):
        # A token that the alternative forbids ruins the bet with weight 1 for good: log 0 is right there.
        bets: NDArray[np.float64] = np.log1p(weights * (alternative / target - 1.0))
    return bets


def _normalised(mass: NDArray[np.float64], otherwise: NDArray[np.float64]) -> NDArray[np.float64]:
    total = mass.sum(axis=-1, keepdims=True)
    return np.where(total > 0.0, mass / np.where(total > 0.0, total, 1.0), otherwise)


def _argmax_rows(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    best: NDArray[np.float64] = (np.arange(rows.shape[-1]) == rows.argmax(axis=-1)[..., None]).astype(np.float64)
    return best


def _top_p_rows(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The smallest set of likeliest tokens with at least .9 of the mass, renormalised."""
    descending = -np.sort(-rows, axis=-1)
    before = np.cumsum(descending, axis=-1) - descending
    last_kept = np.maximum((before < _TOP_P).sum(axis=-1) - 1, 0)
    threshold = np.take_along_axis(descending, last_kept[..., None], axis=-1)
    return _normalised(np.where(rows >= threshold, rows, 0.0), rows)
