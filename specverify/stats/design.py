"""What a sample is worth: the smallest error that an e-process would have shown, and samples needed for one.

Worst case over directions. A law at total variation t from the null has n * sum((law - null)**2 / null) >= 4 n t**2
(Cauchy-Schwarz), met with equality by an error spread over all cells in proportion to their probability. Against that
error the statistic is noncentral chi-square, and for counts that are not tiny the Dirichlet e-value at scale s is
    log e = 1/2 (n / (n + s) * chi-square - (cells - 1) * log(1 + n / s)),
the Bayes factor of two normal laws. Held against simulation in tests/stats/test_design.py.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import ncx2

from specverify.core.errors import UsageError
from specverify.stats.budget import alarm_threshold
from specverify.stats.dirichlet import SCALES
from specverify.stats.pair import CAUTION, STAKES

POWER = 0.99
# Standard deviations of bad luck allowed for in pair betting; 2.3 would be .99 if its model were exact.
_PAIR_LUCK = 3.5


def detectable_tv(alpha: float, num_samples: float, num_cells: int, *, num_averaged: int = 1) -> float:
    """Smallest total variation of a law over cells that a Dirichlet e-value shows with power .99; 1 if none.

    alpha: false-alarm probability. num_averaged: e-values among which it is averaged (each may hold all evidence).
    The claim is about errors visible in the cells: for tokens, their law; for a stream, its 20 bins.
    """
    _check(alpha, num_samples, num_cells, num_averaged)
    if num_cells < 2 or num_samples < 1:
        return 1.0
    df = num_cells - 1
    shift = _noncentrality(_chi_square_needed(alpha, num_samples, df, num_averaged), df)
    return min(1.0, math.sqrt(shift / (4.0 * num_samples)))


def samples_to_detect(alpha: float, tv: float, num_cells: int, *, num_averaged: int = 1) -> int:
    """Samples after which a Dirichlet e-value shows any error of that total variation with power .99."""
    if not 0.0 < tv < 1.0:
        raise UsageError(f"tv is {tv}; a total variation to detect lies above 0 and below 1")
    low, high = 1, 2

    def is_enough(count: int) -> bool:
        return detectable_tv(alpha, count, num_cells, num_averaged=num_averaged) <= tv

    while not is_enough(high):
        low, high = high, 2 * high
        if high > 1 << 60:
            raise UsageError(
                f"no sample detects a total variation of {tv} over {num_cells} cells; give 2 cells or more"
            )
    while high - low > max(1, low // 200):
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def pair_detectable_tv(alpha: float, num_pairs: int, num_values: int, *, num_averaged: int = 1) -> float:
    """Smallest total variation between two boxes that pair betting shows over so many values (power .99); 1 if none.

    num_averaged: features that are bet on. Worst case again: an error in proportion to all values. There the score of
    a value settles at plus or minus s, a little below the total variation t; a pair gains stake * t * s
    - (stake * s)**2 / 4 on average, and learning costs about stake**2 / 8 nats per value for every e-fold of pairs.
    """
    _check(alpha, num_pairs, num_values, num_averaged)
    wanted = alarm_threshold(alpha) + math.log(len(STAKES) * num_averaged)

    # Half the pairs have been seen when the average pair is scored, with two outcomes each.
    confidence = num_pairs / (num_pairs + CAUTION * num_values)

    def lacking(tv: float) -> float:
        score = confidence * tv
        gain = num_pairs * (STAKES * tv * score - (STAKES * score) ** 2 / 4.0)
        learning = STAKES**2 / 8.0 * num_values * math.log1p(num_pairs / num_values)
        luck = _PAIR_LUCK * STAKES * score * math.sqrt(num_pairs / 2.0)
        return wanted - float(np.max(gain - learning - luck))

    return 1.0 if lacking(1.0) > 0.0 else float(brentq(lacking, 0.0, 1.0))


def _chi_square_needed(alpha: float, num_samples: float, df: int, num_averaged: int) -> float:
    """The chi-square at which one scale alone carries the average over scales and processes past 1 / alpha."""
    wanted = alarm_threshold(alpha) + math.log(len(SCALES) * num_averaged)
    shrink = (num_samples + SCALES) / num_samples
    return float(np.min(shrink * (2.0 * wanted + df * np.log1p(num_samples / SCALES))))


def _noncentrality(threshold: float, df: int) -> float:
    """The noncentrality at which a chi-square exceeds the threshold with power .99."""

    def lacking(shift: float) -> float:
        return float(ncx2.sf(threshold, df, shift)) - POWER

    high = threshold + 20.0
    while lacking(high) < 0.0:
        high *= 2.0
    return float(brentq(lacking, 1e-9, high, xtol=1e-6 * high))


def _check(alpha: float, num_samples: float, num_cells: int, num_averaged: int) -> None:
    if not 0.0 < alpha < 1.0:
        raise UsageError(f"alpha is {alpha}; it is the probability of a false alarm, above 0 and below 1")
    if num_samples < 0 or num_cells < 1 or num_averaged < 1:
        raise UsageError(
            f"num_samples is {num_samples}, num_cells {num_cells}, num_averaged {num_averaged}; "
            "give 0 samples or more, at least one cell and one process"
        )
