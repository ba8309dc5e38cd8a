"""A portfolio of directed bets on emitted tokens: fastest on the shapes that real mistakes have."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specverify.stats.combine import average_log_e
from specverify.stats.directions import DIRECTIONS, MIXING_WEIGHTS, direction_rows, log_bets


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
        self,
        slot: int,
        tokens: ArrayLike,
        counts: ArrayLike,
        target_probs: NDArray[np.float64],
        *,
        draft_probs: NDArray[np.float64] | None = None,
        previous_probs: NDArray[np.float64] | None = None,
    ) -> None:
        """Adds emitted tokens that share one prefix: token ids, [n], how often each was emitted, [n], rows [vocab].

        Tokens that the target forbids are left out: they are proof, not evidence, and counted elsewhere.
        """
        rows = direction_rows(
            target_probs[None],
            None if draft_probs is None else draft_probs[None],
            None if previous_probs is None else previous_probs[None],
        )[:, 0]  # [directions, vocab]
        self.update_rows(slot, tokens, counts, target_probs, rows)

    def update_rows(
        self,
        slot: int,
        tokens: ArrayLike,
        counts: ArrayLike,
        target_probs: NDArray[np.float64],
        rows: NDArray[np.float64],
    ) -> None:
        """The same, with the rows of all directions at hand, [directions, vocab]."""
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
