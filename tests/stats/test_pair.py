"""Pair betting: fair under exchangeability, and it learns to tell two boxes apart."""

import itertools
import math

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.stats.pair import TUPLE_FEATURES, PairBetting


def test_expectation_is_one_for_exchangeable_pairs():
    """Averaged over all swaps within pairs the wealth is exactly 1."""
    pairs = [(0, 1), (1, 1), (2, 0), (0, 2), (1, 0), (0, 1)]
    total = 0.0
    for swaps in itertools.product([False, True], repeat=len(pairs)):
        betting = PairBetting()
        arranged = [pair[::-1] if swap else pair for pair, swap in zip(pairs, swaps, strict=True)]
        betting.update([on for on, _ in arranged], [off for _, off in arranged])
        total += math.exp(betting.log_e)

    assert total / 2 ** len(pairs) == pytest.approx(1.0, abs=1e-12)


def outcomes(rng, count, probabilities):
    return [tuple(row) for row in rng.choice(4, (count, 3), p=probabilities).tolist()]


def test_two_boxes_of_one_law_stay_quiet():
    """No evidence between two samples of one law over sequences."""
    rng = np.random.default_rng(1)
    betting = PairBetting(TUPLE_FEATURES)
    betting.update(outcomes(rng, 5_000, [0.4, 0.3, 0.2, 0.1]), outcomes(rng, 5_000, [0.4, 0.3, 0.2, 0.1]))

    assert betting.log_e < 3.0


def test_a_box_with_another_law_is_found():
    """A shift of .15 in one token's probability is found in a few thousand pairs."""
    rng = np.random.default_rng(1)
    betting = PairBetting(TUPLE_FEATURES)
    betting.update(outcomes(rng, 4_000, [0.25, 0.45, 0.2, 0.1]), outcomes(rng, 4_000, [0.4, 0.3, 0.2, 0.1]))

    assert betting.log_e > math.log(1e9)


def test_unpaired_outcomes_are_refused():
    """Every outcome needs its partner."""
    with pytest.raises(UsageError, match="give pairs"):
        PairBetting().update([1, 2], [1])
