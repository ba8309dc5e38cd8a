"""Directed bets on emitted tokens: laws towards which a broken verifier drifts, and a portfolio of bets on them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specverify.stats.combine import average_log_e

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


class Portfolio:
    """An e-process that averages likelihood ratios of many named alternatives, over all slots and slot by slot.

    For any alternative the product over the emitted tokens of a call of alternative / target has expectation 1 for a
    lossless method, whatever it accepts: the emitted tokens alone are needed. Products over calls go on forever; the
    average over directions, mixing weights and slots is an e-process.

    num_slots: tokens that one call can emit, or strata that are known before the token is.
    """

    def __init__(self, num_slots: int) -> None:
        # [slots, directions, mixing]
        self._log_bets: NDArray[np.float64] = np.zeros((num_slots, len(DIRECTIONS), len(MIXING_WEIGHTS)))

    def update(
        self, slot: int, tokens: ArrayLike, counts: ArrayLike, target_probs: NDArray[np.float64],
        rows: NDArray[np.float64],
    ) -> None:  # fmt: skip
        """Adds emitted tokens that share one prefix: token ids, [n], how often each was emitted, [n], law [vocab].

        rows: of all directions, [directions, vocab]. Tokens that the target forbids are left out: they are proof, not
        evidence, and counted elsewhere.
        """
        all_tokens = np.asarray(tokens, dtype=np.int64)
        is_possible = target_probs[all_tokens] > 0.0
        possible = all_tokens[is_possible]
        target = np.broadcast_to(target_probs[possible], (len(rows), len(possible)))
        self.add(slot, log_bets(rows[:, possible], target), np.asarray(counts, dtype=np.float64)[is_possible])

    def add(self, slot: int, bets: NDArray[np.float64], counts: NDArray[np.float64]) -> None:
        """Adds ready-made log bets, [mixing, directions, n], each counted as often as stated, [n]."""
        if bets.size:
            used = counts > 0.0
            self._log_bets[slot] += (bets[:, :, used] * counts[used]).sum(axis=-1).T

    @property
    def log_e(self) -> float:
        return float(average_log_e(self._by_stratum()))

    def best(self) -> tuple[str, int | None, float]:
        """The direction, slot (None: all together) and log e-value of the bet that gained most."""
        by_stratum = self._by_stratum()
        stratum, direction, _ = np.unravel_index(int(by_stratum.argmax()), by_stratum.shape)
        slot = None if stratum == 0 else int(stratum) - 1
        return DIRECTIONS[direction], slot, float(by_stratum.max())

    def _by_stratum(self) -> NDArray[np.float64]:
        """Log e-values, [1 + slots, directions, mixing]: first all slots together, then each alone."""
        return np.concatenate([self._log_bets.sum(axis=0, keepdims=True), self._log_bets])


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
