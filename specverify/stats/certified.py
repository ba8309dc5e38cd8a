"""Certified distance: the largest total variation that the data prove, numerical noise allowed for."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specverify.core.errors import UsageError
from specverify.stats.budget import alarm_threshold
from specverify.stats.combine import average_log_e

CUTS: NDArray[np.float64] = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98])

# Stakes relative to the largest one that a cut allows. The small ones make the certified distance tight on long
# streams (a stake l loses about l / 2 of it), the large ones prove gross distances early.
STAKES: NDArray[np.float64] = np.geomspace(1e-4, 0.95, 20)
# An impossible token pays any stake, because losing costs nothing but the allowance.
_IMPOSSIBLE_STAKES: NDArray[np.float64] = np.geomspace(1e-3, 1e6, 28)


class CertifiedTv:
    """E-processes against "the laws lie within total variation delta of the reference on average", for every delta.

    Fed with uniforms of the randomised probability transform. A bet h = 1 + stake * (1{U <= cut} - cut), of either
    sign, has an expectation of at most 1 + stake * delta under that null, so h / (1 + stake * delta) is an e-value;
    products are averaged over cuts, signs, stakes and streams. By the inequality of the means the product stays one
    if only the average distance up to stopping is within delta.

    Source: Saha and Ramdas, arXiv 2408.14015, for a total-variation ball.
    """

    def __init__(self, num_streams: int = 1) -> None:
        self._below: NDArray[np.float64] = np.zeros((num_streams, len(CUTS)))
        self._totals: NDArray[np.float64] = np.zeros(num_streams)
        self._num_impossible = 0
        self._num_tokens = 0

    def update(self, uniforms: ArrayLike, *, stream: int = 0) -> None:
        """Adds uniforms, [n], of one stream: one order of the tokens."""
        values = np.asarray(uniforms, dtype=np.float64)
        self._below[stream] += (values[:, None] <= CUTS).sum(axis=0)
        self._totals[stream] += len(values)

    def add_impossible(self, num_impossible: int, num_tokens: int) -> None:
        """Counts tokens that the reference forbids, among so many tokens."""
        self._num_impossible += num_impossible
        self._num_tokens += num_tokens

    def log_e(self, tolerance: float) -> float:
        """Log e-value against an average total variation of at most this tolerance."""
        if not 0.0 <= tolerance <= 1.0:
            raise UsageError(f"tolerance is {tolerance}; a total variation lies between 0 and 1")
        below, totals = self._below[:, :, None], self._totals[:, None, None]
        above = totals - below
        values = []
        for sign, largest in ((1.0, 1.0 / CUTS), (-1.0, 1.0 / (1.0 - CUTS))):
            stakes = STAKES * largest[:, None]  # [cuts, stakes]
            cuts = CUTS[:, None]
            won = below * np.log1p(sign * stakes * (1.0 - cuts)) + above * np.log1p(-sign * stakes * cuts)
            values.append((won - totals * np.log1p(stakes * tolerance)).ravel())
        impossible = self._num_impossible * np.log1p(_IMPOSSIBLE_STAKES)
        impossible = impossible - self._num_tokens * np.log1p(_IMPOSSIBLE_STAKES * tolerance)
        by_cuts = average_log_e(np.concatenate(values))
        return float(average_log_e([float(by_cuts), float(average_log_e(impossible))]))

    def certified_tv(self, alpha: float) -> float:
        """The largest tolerance that is refuted at this alpha: a lower bound on the average total variation.

        The e-value falls as the tolerance grows, so all tolerances are read from the same data at once.
        """
        threshold = alarm_threshold(alpha)
        if self.log_e(0.0) < threshold:
            return 0.0
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.log_e(middle) >= threshold else (low, middle)
        return low
