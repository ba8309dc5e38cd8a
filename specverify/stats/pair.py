"""Two black boxes, on and off: betting that an outcome can be told to come from one of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.core.errors import UsageError
from specverify.stats.combine import average_log_e

Feature = Callable[[Any], Hashable]
"""What is looked at in an outcome."""

STAKES: NDArray[np.float64] = np.array([0.9, 0.5, 0.25, 0.12, 0.06, 0.03, 0.015])

# Past counts needed before a value's score is taken at half its face value: keeps early guesses small.
CAUTION = 4.0


def whole(outcome: Hashable) -> Hashable:
    """The outcome itself."""
    return outcome


# Of an outcome that is a tuple of tokens: the first one, two and three, and all.
TUPLE_FEATURES: tuple[Feature, ...] = (lambda x: x[:1], lambda x: x[:2], lambda x: x[:3], whole)


class PairBetting:
    """An e-process that needs no law at all: pairs of outcomes, one from each box, for the same prompt.

    If both boxes follow the same law, the two outcomes of a pair are exchangeable, so any score learned from past
    pairs has (score(x) - score(y)) / 2 of mean 0. Each feature of the outcome has its own score, the normalised
    difference of past counts; products of 1 + stake * payoff are averaged over features and stakes. Valid for any mix
    of prompts and at any time.
    """

    def __init__(self, features: Sequence[Feature] = (whole,)) -> None:
        if not features:
            raise UsageError("no feature to look at; give at least one, or leave the default")
        self._features = tuple(features)
        self._past: list[dict[Hashable, list[int]]] = [{} for _ in features]
        self._log_wealth: NDArray[np.float64] = np.zeros((len(self._features), len(STAKES)))
        self.num_pairs = 0

    def update(self, on: Sequence[Hashable], off: Sequence[Hashable]) -> None:
        """Adds pairs, in the order of time: outcome with speculation, without."""
        if len(on) != len(off):
            raise UsageError(f"{len(on)} outcomes on, {len(off)} off; give pairs: one of each")
        for index, (feature, past) in enumerate(zip(self._features, self._past, strict=True)):
            payoffs = np.empty(len(on))
            for i, (first, second) in enumerate(zip(on, off, strict=True)):
                x, y = feature(first), feature(second)
                payoffs[i] = 0.5 * (_score(past, x) - _score(past, y))
                past.setdefault(x, [0, 0])[0] += 1
                past.setdefault(y, [0, 0])[1] += 1
            self._log_wealth[index] += np.log1p(payoffs[:, None] * STAKES).sum(axis=0)
        self.num_pairs += len(on)

    @property
    def log_e(self) -> float:
        return float(average_log_e(self._log_wealth))


def _score(past: dict[Hashable, list[int]], value: Hashable) -> float:
    """How much more often the value came from the box that is on, from -1 to 1; 0 for a new value."""
    on, off = past.get(value, (0, 0))
    return (on - off) / (on + off + CAUTION)
