"""Pearson's chi-square against the target law: a fixed sample, planned before it is drawn, with a proven alarm rate.

Asymptotic p-values cannot be trusted far out: with 200 samples and at least 5 expected in every bin, the real rate at
a nominal 1e-5 was 4.3 times as large, and grew with depth. The threshold here is a theorem instead. The root of
chi-square is the supremum of a centred empirical process, to which Bousquet's inequality applies with every constant
known; at any alpha and any sample size
    P( sqrt(chi-square) >= sqrt(df) + sqrt(2 x (1 + 2 sqrt(df / m))) + x / (3 sqrt(m)) ) <= alpha,
x = log(1 / alpha), df = bins - 1, m = smallest expected count. The price against a design that trusts the asymptotic
threshold is 1.4 to 2.8 times as many samples (8 and 128 outcomes, alpha 1e-9, total variation .02 and .1). The
asymptotic p-value is reported beside it, never used.

Source: Bousquet 2002, A Bennett concentration inequality and its application to suprema of empirical processes,
theorem 2.3, for the class of functions with mean 0 and variance 1 on the bins, whose supremum is at most sqrt(n / m).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import chi2, ncx2

from specverify.core.errors import UsageError
from specverify.stats.budget import alarm_threshold
from specverify.stats.design import POWER

# Fewer expected than this in a bin and even the reported asymptotic p-value loses its meaning.
MIN_EXPECTED = 20.0
# The bound's penalty for a rare bin falls with expected count / log(1 / alpha); at 4 it has cost half its worth.
_EXPECTED_PER_NAT = 4.0
_MOST_SAMPLES = 10**12


@dataclass(frozen=True, eq=False)
class ChiSquareResult:
    """What one sample said.

    statistic, threshold: chi-square and what it may reach; df: bins - 1. num_impossible: outcomes of probability 0.
    asymptotic_p_value: for the report only. observed, expected: counts by bin.
    """

    statistic: float
    threshold: float
    df: int
    num_impossible: int
    asymptotic_p_value: float
    observed: NDArray[np.float64]
    expected: NDArray[np.float64]

    @property
    def is_alarm(self) -> bool:
        return self.num_impossible > 0 or self.statistic >= self.threshold


class ChiSquareDesign:
    """The plan of a chi-square check: how many samples, which bins, which threshold.

    target_law: [outcomes], summing to 1. alpha: probability of a false alarm, proven. detectable_tv: any law of the
    bins at this total variation from the target raises the alarm with probability .99 (noncentral chi-square, least
    favourable direction). Bins are pooled by expectation alone: rare outcomes are gathered, least likely first, until
    a bin expects enough. pooled_mass is the probability of outcomes that share a bin; errors inside one stay unseen.

    Attributes: num_samples, bins (bin of each outcome, -1 where impossible), bin_law, threshold, pooled_mass.
    Raises UsageError where no sample can do it, for instance a law with a single possible outcome.
    """

    def __init__(self, target_law: ArrayLike, alpha: float, detectable_tv: float) -> None:
        law = np.asarray(target_law, dtype=np.float64)
        _check(law, alpha, detectable_tv)
        self.law: NDArray[np.float64] = law / law.sum()
        self.alpha = alpha
        self.detectable_tv = detectable_tv
        self.min_expected = max(MIN_EXPECTED, _EXPECTED_PER_NAT * alarm_threshold(alpha))
        self.num_samples = self._smallest_sample()
        self.bins = pooled_bins(self.law, self.num_samples, self.min_expected)
        self.bin_law = _binned(self.bins, self.law)
        self.threshold = proven_threshold(alpha, self.num_samples * self.bin_law)
        sizes = np.bincount(self.bins[self.bins >= 0])
        self.pooled_mass = float(self.bin_law[sizes > 1].sum())

    def judge(self, counts: ArrayLike, *, num_outside: int = 0) -> ChiSquareResult:
        """The verdict on counts of the outcomes, [outcomes], from exactly num_samples draws.

        num_outside: draws that are no outcome of the law at all. Raises UsageError for another number of draws: a
        sample that was extended because it looked suspicious has another false-alarm rate.
        """
        seen = np.asarray(counts, dtype=np.float64)
        if seen.shape != self.law.shape or (seen < 0.0).any():
            raise UsageError(f"counts have shape {seen.shape}; give a count for each of {len(self.law)} outcomes")
        total = int(seen.sum()) + num_outside
        if total != self.num_samples:
            raise UsageError(f"{total} outcomes came for a plan of {self.num_samples}; draw exactly the planned number")
        observed = _binned(self.bins, seen)
        expected = self.num_samples * self.bin_law
        statistic = float(((observed - expected) ** 2 / expected).sum())
        df = len(self.bin_law) - 1
        return ChiSquareResult(
            statistic=statistic, threshold=self.threshold, df=df,
            num_impossible=int(seen[self.bins < 0].sum()) + num_outside,
            asymptotic_p_value=float(chi2.sf(statistic, df)), observed=observed, expected=expected,
        )  # fmt: skip

    def _smallest_sample(self) -> int:
        low, high = 0, 64
        while not self._is_enough(high):
            low, high = high, 2 * high
            if high > _MOST_SAMPLES:
                raise UsageError(
                    f"no sample up to {_MOST_SAMPLES:.0e} shows a total variation of {self.detectable_tv} at alpha "
                    f"{self.alpha}; give a larger detectable_tv or a law with at least two possible outcomes"
                )
        while high - low > max(1, low // 500):
            middle = (low + high) // 2
            low, high = (low, middle) if self._is_enough(middle) else (middle, high)
        return high

    def _is_enough(self, num_samples: int) -> bool:
        bin_law = _binned(pooled_bins(self.law, num_samples, self.min_expected), self.law)
        if len(bin_law) < 2:
            return False
        threshold = proven_threshold(self.alpha, num_samples * bin_law)
        shift = 4.0 * num_samples * self.detectable_tv**2
        return float(ncx2.sf(threshold, len(bin_law) - 1, shift)) >= POWER


def design_for_law(
    law: Mapping[tuple[int, ...], float], alpha: float, detectable_tv: float
) -> tuple[ChiSquareDesign, list[tuple[int, ...]]]:
    """The plan for a law over tuples, and its outcomes in the order of the plan's counts."""
    outcomes = list(law)
    return ChiSquareDesign(np.fromiter(law.values(), np.float64, len(law)), alpha, detectable_tv), outcomes


def counted(outcomes: Sequence[Hashable], drawn: Iterable[Hashable]) -> tuple[NDArray[np.float64], int]:
    """Counts of the drawn values in the order of outcomes, and how many are none of them."""
    places = {outcome: index for index, outcome in enumerate(outcomes)}
    counts: NDArray[np.float64] = np.zeros(len(outcomes))
    num_outside = 0
    for value in drawn:
        place = places.get(value)
        if place is None:
            num_outside += 1
        else:
            counts[place] += 1
    return counts, num_outside


def proven_threshold(alpha: float, expected: NDArray[np.float64]) -> float:
    """The value that chi-square reaches with probability at most alpha, for these expected counts by bin."""
    df, rarest, nats = len(expected) - 1, float(expected.min()), alarm_threshold(alpha)
    root = math.sqrt(df) + math.sqrt(2.0 * nats * (1.0 + 2.0 * math.sqrt(df / rarest))) + nats / (3 * math.sqrt(rarest))
    return root * root


def pooled_bins(law: NDArray[np.float64], num_samples: int, min_expected: float) -> NDArray[np.int64]:
    """The bin of every outcome, [outcomes]; -1 for impossible ones. Every bin expects at least min_expected.

    With too few samples for two bins, one bin holds everything.
    """
    bins: NDArray[np.int64] = np.full(len(law), -1, dtype=np.int64)
    order = np.argsort(law, kind="stable")
    order = order[law[order] > 0.0]
    expected = num_samples * law[order]
    is_alone = expected >= min_expected
    num_rare = int((~is_alone).sum())
    current, filled = 0, 0.0
    for position in range(num_rare):
        bins[order[position]] = current
        filled += float(expected[position])
        if filled >= min_expected:
            current, filled = current + 1, 0.0
    if filled > 0.0 and current > 0:
        # What is left over joins the last full bin.
        bins[bins == current] = current - 1
    elif filled > 0.0 and num_rare < len(order):
        # No full bin at all: the likeliest rare outcomes need one common outcome beside them.
        bins[order[num_rare]] = current
        num_rare += 1
        current += 1
    elif filled > 0.0:
        current += 1
    alone = order[num_rare:]
    bins[alone] = current + np.arange(len(alone))
    return bins


def _binned(bins: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    is_possible = bins >= 0
    sums: NDArray[np.float64] = np.bincount(bins[is_possible], weights=values[is_possible]).astype(np.float64)
    return sums


def _check(law: NDArray[np.float64], alpha: float, detectable_tv: float) -> None:
    if law.ndim != 1 or not np.isfinite(law).all() or (law < 0.0).any() or abs(law.sum() - 1.0) > 1e-3:
        raise UsageError("target_law must be one row of probabilities that sums to 1, [outcomes]")
    if not 0.0 < alpha < 1.0:
        raise UsageError(f"alpha is {alpha}; it is the probability of a false alarm, above 0 and below 1")
    if not 0.0 < detectable_tv < 1.0:
        raise UsageError(f"detectable_tv is {detectable_tv}; a total variation to detect lies above 0 and below 1")
    if (law > 0.0).sum() < 2:
        raise UsageError("target_law has a single possible outcome; check it for impossible outcomes instead")
