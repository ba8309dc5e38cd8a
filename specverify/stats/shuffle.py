"""Rows of a call against rows of other calls: betting that what was drawn together is more alike."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from specverify.core.errors import UsageError
from specverify.stats.budget import alarm_threshold
from specverify.stats.combine import average_log_e
from specverify.stats.design import POWER

Features = Mapping[Any, float]
"""An outcome as a sparse vector; two outcomes are as alike as their inner product is large."""

# In standard deviations of likeness over the ways to deal a row out to the calls.
STAKES: NDArray[np.float64] = np.array([0.25, 0.5, 1.0, 1.5, 2.0, 3.0])
# 24 ways to deal a row out, so that one row may win up to log 24; more calls a group would cost 5 times the ways.
GROUP_SIZE = 4

# Scores of the same numbers in another order differ by less, relative to the largest; such a bet is a tie.
_TIE = 1e-9


class ShuffleBetting:
    """An e-value against rows of a call that are not independent of each other; needs no law at all.

    Four calls ask for the same rows. If rows are independent, and a row follows the same law in each call, then dealing
    out what one row got to the calls in another order leaves the joint law of everything unchanged, whatever the other
    rows got. So given the rows before it in all calls, each of the 24 orders is as likely as the one that came, and

        exp(stake * likeness of the order that came) / mean of that over all orders

    has mean 1, where likeness is to the rows before it in the same call, summed over the calls and standardised over
    the orders. Hence also the product over rows and groups of calls, and its average over stakes. Features may depend
    on all calls together, as long as no other order of a row changes that.

    Source: the argument above is the proof; Vovk and Wang, arXiv 1912.06116, for products and averages of e-values.
    """

    def __init__(self) -> None:
        self.num_bets = 0
        self.num_won = 0
        self._log_wealth: NDArray[np.float64] = np.zeros(len(STAKES))

    @property
    def log_e(self) -> float:
        return float(average_log_e(self._log_wealth))

    def update(self, calls: Sequence[Sequence[Features]]) -> None:
        """Adds a group of calls that took no part yet: what each row got in each of them."""
        if len(calls) < 2 or len({len(call) for call in calls}) != 1:
            raise UsageError(
                f"{len(calls)} calls of {', '.join(str(len(call)) for call in calls)} rows; give two calls or more, "
                "with the same rows in each"
            )
        orders = np.array(list(permutations(range(len(calls)))))
        sums: list[dict[Hashable, float]] = [{} for _ in calls]  # over the rows before, by call
        for outcomes in zip(*calls, strict=True):
            likeness = np.array([[inner_product(total, outcome) for outcome in outcomes] for total in sums])
            # The first order is the one that came.
            self._bet(likeness[np.arange(len(calls)), orders].sum(axis=1))
            for total, outcome in zip(sums, outcomes, strict=True):
                for key, value in outcome.items():
                    total[key] = total.get(key, 0.0) + value

    def _bet(self, scores: NDArray[np.float64]) -> None:
        deviation = float(scores.std())
        if deviation <= _TIE * max(1.0, float(np.abs(scores).max())):
            return
        standardised = (scores - scores.mean()) / deviation
        powers = STAKES[:, None] * standardised
        self._log_wealth += powers[:, 0] - average_log_e(powers, axis=1)
        self.num_bets += 1
        self.num_won += bool(standardised[0] > 0.0)


def inner_product(one: Features, other: Features) -> float:
    return sum(one.get(key, 0.0) * value for key, value in other.items())


def detectable_shift(alpha: float, num_bets: int, *, num_averaged: int = 1) -> float:
    """Smallest excess of likeness that so many bets show with power .99, in standard deviations; infinite without bets.

    A stake gains stake * shift - stake**2 / 2 a row on average, and stake * 1 at a standard deviation of bad luck.
    num_averaged: e-values among which it is averaged (each may hold all evidence).
    """
    if not num_bets:
        return math.inf
    wanted = alarm_threshold(alpha) + math.log(num_averaged * len(STAKES))
    luck = float(norm.ppf(POWER)) / math.sqrt(num_bets)
    return float(np.min(wanted / (STAKES * num_bets) + STAKES / 2.0)) + luck
