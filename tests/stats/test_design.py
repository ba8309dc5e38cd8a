"""The detectable error that is printed beside a pass is honest: simulated errors of that size are found."""

import math

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.stats.design import detectable_tv, pair_detectable_tv, samples_to_detect
from specverify.stats.dirichlet import DirichletEValue
from specverify.stats.pair import PairBetting

RUNS = 150


@pytest.mark.parametrize("num_cells", [2, 8, 64])
@pytest.mark.parametrize(("alpha", "num_samples"), [(1e-6, 3_000), (1e-9, 30_000), (1e-12, 300_000)])
def test_errors_of_the_stated_size_are_found(num_cells, alpha, num_samples):
    """Spread in proportion over half the cells, the worst case, the stated error is found about 99 times in 100."""
    rng = np.random.default_rng(num_cells)
    law = rng.dirichlet(np.full(num_cells, 3.0))
    tv = detectable_tv(alpha, num_samples, num_cells)
    is_up = rng.permutation(num_cells) < num_cells // 2
    wrong = law * (1.0 + np.where(is_up, tv / law[is_up].sum(), -tv / law[~is_up].sum()))
    found = 0
    for counts in rng.multinomial(num_samples, wrong, size=RUNS):
        process = DirichletEValue(law)
        process.update(counts)
        found += process.log_e >= -math.log(alpha)

    assert found / RUNS >= 0.96


def test_it_is_not_much_too_modest_either():
    """An error of 60 % of the stated size is usually missed: the figure is a limit, not a guess."""
    rng = np.random.default_rng(1)
    law = rng.dirichlet(np.full(8, 3.0))
    tv = 0.6 * detectable_tv(1e-9, 30_000, 8)
    wrong = law * (1.0 + np.where(np.arange(8) < 4, tv / law[:4].sum(), -tv / law[4:].sum()))
    found = 0
    for counts in rng.multinomial(30_000, wrong, size=RUNS):
        process = DirichletEValue(law)
        process.update(counts)
        found += process.log_e >= math.log(1e9)

    assert found / RUNS < 0.5


def test_sample_size_and_detectable_error_agree():
    """The samples for an error detect that error, and one part in 50 fewer do not."""
    count = samples_to_detect(1e-9, 0.02, 8)

    assert detectable_tv(1e-9, count, 8) <= 0.02 < detectable_tv(1e-9, 0.98 * count, 8)


def test_more_alarms_averaged_cost_little():
    """Averaging with nine other processes costs log 10 nats: less than 5 % of the detectable error."""
    alone, averaged = detectable_tv(1e-9, 10_000, 8), detectable_tv(1e-9, 10_000, 8, num_averaged=10)

    assert alone < averaged < 1.05 * alone


def test_nothing_is_detectable_without_samples_or_cells():
    """No data, or one cell, shows nothing: the figure is 1."""
    assert detectable_tv(1e-9, 0, 8) == 1.0
    assert detectable_tv(1e-9, 1_000, 1) == 1.0


@pytest.mark.parametrize(("num_values", "alpha"), [(2, 1e-9), (8, 1e-6), (64, 1e-9), (512, 1e-6)])
def test_pair_betting_finds_errors_of_the_stated_size(num_values, alpha):
    """Two boxes that differ by the stated total variation, in proportion, are told apart in 3,000 pairs."""
    rng = np.random.default_rng(num_values)
    law = rng.dirichlet(np.full(num_values, 3.0))
    tv = pair_detectable_tv(alpha, 3_000, num_values)
    is_up = rng.permutation(num_values) < num_values // 2
    tilt = np.where(is_up, 0.5 * tv / law[is_up].sum(), -0.5 * tv / law[~is_up].sum())
    found = 0
    for _ in range(25):
        betting = PairBetting()
        on, off = (rng.choice(num_values, 3_000, p=law * (1.0 + sign * tilt)).tolist() for sign in (1.0, -1.0))
        betting.update(on, off)
        found += betting.log_e >= -math.log(alpha)

    assert found >= 24


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: detectable_tv(0.0, 10, 2), "alpha is 0.0"),
        (lambda: detectable_tv(0.1, -1, 2), "num_samples is -1"),
        (lambda: samples_to_detect(0.1, 1.5, 2), "tv is 1.5"),
        (lambda: samples_to_detect(0.1, 0.5, 1), "2 cells or more"),
    ],
)
def test_bad_arguments_are_refused(call, says):
    """Each refusal names the value and the rule."""
    with pytest.raises(UsageError, match=says):
        call()
