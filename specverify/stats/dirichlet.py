"""The general-purpose e-value: counts against a known law, with no direction to guess."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from specverify.core.errors import UsageError
from specverify.stats.combine import average_log_e

# A Dirichlet law around the null with scale s bets on deviations of relative size about 1 / sqrt(s * probability).
# 10 sees gross errors, 10**12 a total variation of .01 spread over 32,000 tokens; with 10**7 as the last one the
# latter took 50 times as many samples.
SCALES: NDArray[np.float64] = 10.0 ** np.arange(1.0, 13.0)

# Beyond this argument Stirling's series to 1 / (12 x) is exact to 3e-15.
_LARGE = 1e4
# A scale times a probability that underflows would divide zero by zero.
_SMALLEST = 1e-290


class DirichletEValue:
    """An e-process for counts of independent outcomes whose law, [cells], is known; the law is normalised.

    Evidence is the marginal likelihood of a Dirichlet law centred on the null over the null's likelihood, averaged
    over scales: an exact e-value for every number of outcomes, and a martingale while they arrive.

    Outcomes of null probability zero prove the null wrong: log_e is inf, num_impossible counts them.
    """

    def __init__(self, law: ArrayLike) -> None:
        row = np.asarray(law, dtype=np.float64)
        if row.ndim != 1 or not np.isfinite(row).all() or (row < 0.0).any() or not row.sum() > 0.0:
            raise UsageError("law must hold non-negative numbers with a positive sum, [cells]")
        self._law: NDArray[np.float64] = row / row.sum()
        self.counts: NDArray[np.float64] = np.zeros_like(self._law)

    def update(self, counts: ArrayLike) -> None:
        """Adds counts of new outcomes, [cells]."""
        added = np.asarray(counts, dtype=np.float64)
        if added.shape != self._law.shape:
            raise UsageError(f"counts have shape {added.shape}; the law has {self._law.shape}")
        if not (added >= 0.0).all():
            raise UsageError("counts must be 0 or more")
        self.counts += added

    def update_outcomes(self, cells: ArrayLike) -> None:
        """Adds outcomes by cell index, [n]."""
        np.add.at(self.counts, np.asarray(cells), 1.0)

    @property
    def num_impossible(self) -> int:
        return int(self.counts[self._law == 0.0].sum())

    @property
    def log_e(self) -> float:
        if self.num_impossible:
            return float(np.inf)
        return float(average_log_e(log_e_by_scale(self._law[None], self.counts[None])))


def log_e_by_scale(law: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log e-value for each stratum and scale, [strata, scales]; impossible outcomes are left out.

    law, counts: [strata, cells]. The value is, with G the gamma function and s the scale,
    G(s) / G(s + n) * product over cells of G(s law + count) / (G(s law) * law ** count).
    """
    counts = np.where(law > 0.0, counts, 0.0)
    strata, cells = np.nonzero(counts)
    means = np.maximum(law[strata, cells][:, None] * SCALES, _SMALLEST)  # [non-zero cells, scales]
    terms = _log_rising(means, counts[strata, cells][:, None])
    by_stratum = np.zeros((len(law), len(SCALES)))
    np.add.at(by_stratum, strata, terms)
    result: NDArray[np.float64] = by_stratum - _log_rising(SCALES[None], counts.sum(axis=1, keepdims=True))
    return result


def _log_rising(start: NDArray[np.float64], count: NDArray[np.float64]) -> NDArray[np.float64]:
    """log of G(start + count) / (G(start) * start ** count), without cancellation for large starts.

    The powers cancel between cells and total, because scale * law sums to the scale.
    """
    start, count = np.broadcast_arrays(start, count)
    is_large = start > _LARGE
    small = np.where(is_large, 1.0, start)
    large = np.where(is_large, start, _LARGE)
    direct = gammaln(small + count) - gammaln(small) - count * np.log(small)
    series = (large + count - 0.5) * np.log1p(count / large) - count + (1 / (large + count) - 1 / large) / 12.0
    return np.where(is_large, series, direct)
