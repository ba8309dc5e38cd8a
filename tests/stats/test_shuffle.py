"""Betting on the calls that rows came from: fair where rows are independent, and quick where they share noise."""

import itertools
import math

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.stats.shuffle import GROUP_SIZE, ShuffleBetting, detectable_shift


def features(values):
    return {index: float(value) for index, value in enumerate(values)}


def bet_on(values):
    """values: [calls, rows, features]."""
    betting = ShuffleBetting()
    betting.update([[features(row) for row in call] for call in values])
    return betting


def test_expectation_is_one_over_all_orders_of_every_row():
    """Whatever the rows got: averaged over all ways to deal each of them out, the wealth is exactly 1."""
    values = np.random.default_rng(0).normal(size=(3, 3, 2))
    orders = list(itertools.permutations(range(3)))
    total = 0.0
    for dealt in itertools.product(orders, repeat=3):
        arranged = np.stack([values[list(order), row] for row, order in enumerate(dealt)], axis=1)
        total += math.exp(bet_on(arranged).log_e)

    assert total / len(orders) ** 3 == pytest.approx(1.0, abs=1e-12)


def test_independent_rows_stay_quiet():
    """Over 100 samples none exceeds 100; one in a hundred may."""
    rng = np.random.default_rng(1)
    highest = max(bet_on(rng.normal(size=(GROUP_SIZE, 30, 4))).log_e for _ in range(100))

    assert highest < math.log(100)


def test_rows_with_laws_of_their_own_are_no_evidence():
    """Row 3 is nothing like row 4, the same in every call."""
    rng = np.random.default_rng(2)
    values = rng.normal(size=(GROUP_SIZE, 40, 4)) + 5.0 * rng.normal(size=(1, 40, 4))

    assert bet_on(values).log_e < 3.0


def test_rows_that_share_noise_are_found():
    """As much of it as they have of their own: forty rows are enough."""
    rng = np.random.default_rng(3)
    values = rng.normal(size=(GROUP_SIZE, 40, 4)) + rng.normal(size=(GROUP_SIZE, 1, 4))

    betting = bet_on(values)

    assert betting.log_e > 25.0
    assert betting.num_bets == 39


def test_calls_that_repeat_each_other_are_ties():
    """Every order is alike: no bet is decided."""
    values = np.repeat(np.random.default_rng(4).normal(size=(1, 20, 4)), GROUP_SIZE, axis=0)

    betting = bet_on(values)

    assert (betting.num_bets, betting.log_e) == (0, 0.0)


def test_rows_are_the_same_in_every_call():
    """Anything else is a slip."""
    with pytest.raises(UsageError, match="3 calls of 2, 2, 1 rows"):
        ShuffleBetting().update([[{}, {}], [{}, {}], [{}]])


def test_more_bets_show_less():
    """And none show nothing."""
    shifts = [detectable_shift(1e-9, count) for count in (0, 10, 60, 1000)]

    assert shifts[0] == math.inf
    assert shifts[1] > 2.0 > 1.35 > shifts[2] > shifts[3]
