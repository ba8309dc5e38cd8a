"""Chi-square: planned, pooled by expectation only, and its alarm rate proven and measured."""

import numpy as np
import pytest
from scipy.stats import chi2

from specverify.core.errors import UsageError
from specverify.stats.chi_square import ChiSquareDesign, counted, design_for_law, pooled_bins, proven_threshold

LAW = np.array([0.3, 0.25, 0.2, 0.1, 0.08, 0.04, 0.02, 0.01])
NULL_RUNS = 200_000


def statistics_of(design, samples):
    observed = np.stack([samples[:, design.bins == index].sum(axis=1) for index in range(len(design.bin_law))], axis=1)
    expected = design.num_samples * design.bin_law
    return ((observed - expected) ** 2 / expected).sum(axis=1)


@pytest.mark.parametrize("alpha", [1e-2, 1e-3, 1e-4, 1e-5])
def test_real_alarm_rate_is_below_the_stated_one(alpha):
    """Measured over 200,000 samples from the null: never more alarms than alpha allows (in fact none)."""
    design = ChiSquareDesign(LAW, alpha, 0.1)
    samples = np.random.default_rng(1).multinomial(design.num_samples, LAW, size=NULL_RUNS)

    rate = (statistics_of(design, samples) >= design.threshold).mean()

    assert rate <= alpha


def test_the_asymptotic_threshold_would_alarm_too_often():
    """Why p-values are only reported: with 5 expected in the rarest bin the nominal 1e-4 is exceeded twofold."""
    rng = np.random.default_rng(1)
    law, num_samples = np.array([0.4, 0.3, 0.15, 0.1, 0.025, 0.025]), 200
    samples = rng.multinomial(num_samples, law, size=1_000_000)
    statistic = ((samples - num_samples * law) ** 2 / (num_samples * law)).sum(axis=1)

    rate = (statistic >= chi2.isf(1e-4, len(law) - 1)).mean()

    assert rate > 2e-4
    assert (statistic >= proven_threshold(1e-4, num_samples * law)).mean() <= 1e-4


@pytest.mark.parametrize("alpha", [1e-3, 1e-9])
@pytest.mark.parametrize("detectable_tv", [0.03, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_the_stated_error_is_found(alpha, detectable_tv, seed):
    """Laws at the stated total variation, spread in proportion (the worst case), are found 99 times in 100."""
    rng = np.random.default_rng(seed)
    law = rng.dirichlet(np.full(10, 2.0))
    design = ChiSquareDesign(law, alpha, detectable_tv)
    is_up = rng.permutation(10) < 5
    shift = np.where(is_up, detectable_tv / law[is_up].sum(), -detectable_tv / law[~is_up].sum())
    samples = rng.multinomial(design.num_samples, law * (1.0 + shift), size=400)

    assert (statistics_of(design, samples) >= design.threshold).mean() > 0.97


def test_impossible_outcomes_are_counted_apart():
    """One outcome of probability zero, or outside the law, raises the alarm whatever the statistic says."""
    design = ChiSquareDesign([0.5, 0.5, 0.0], 1e-6, 0.2)
    half = design.num_samples // 2
    fair = [half, design.num_samples - half - 1, 1]

    result = design.judge(fair)

    assert result.is_alarm
    assert result.num_impossible == 1
    assert result.statistic < result.threshold
    assert design.judge([half, design.num_samples - half - 1, 0], num_outside=1).is_alarm


def test_bins_pool_by_expectation_only():
    """Rare outcomes are gathered, least likely first; every bin expects enough; none is lost."""
    bins = pooled_bins(LAW, 1_000, 30.0)

    expected = np.bincount(bins, weights=1_000 * LAW)
    assert expected.min() >= 30.0
    assert expected.sum() == pytest.approx(1_000.0)
    assert bins[6] == bins[7] != bins[5]


@pytest.mark.parametrize("num_samples", [10, 100, 1_000, 10_000])
@pytest.mark.parametrize("seed", range(5))
def test_pooled_bins_are_numbered_without_gaps(num_samples, seed):
    """Bins are 0 to m - 1 for any law, and impossible outcomes have none."""
    rng = np.random.default_rng(seed)
    law = rng.dirichlet(np.full(40, 0.3)) * (rng.random(40) < 0.8)
    law /= law.sum()

    bins = pooled_bins(law, num_samples, 20.0)

    assert set(bins[law > 0.0]) == set(range(bins.max() + 1))
    assert (bins[law == 0.0] == -1).all()


def test_pooled_mass_is_stated():
    """What the bins hide is said: the probability of outcomes that share a bin."""
    law = np.concatenate([[0.5, 0.4], np.full(100, 0.001)])

    assert ChiSquareDesign(law, 1e-6, 0.1).pooled_mass == pytest.approx(0.1)


def test_a_longer_sample_than_planned_is_refused():
    """No optional stopping: only the planned number of draws is judged."""
    design = ChiSquareDesign([0.5, 0.5], 1e-6, 0.2)

    with pytest.raises(UsageError, match="exactly the planned number"):
        design.judge([design.num_samples, 1])


def test_laws_over_tuples_keep_their_order():
    """Counts line up with the outcomes of the law, strangers are counted as outside."""
    design, outcomes = design_for_law({(0, 1): 0.25, (2,): 0.75}, 1e-6, 0.2)

    counts, num_outside = counted(outcomes, [(2,), (0, 1), (2,), (5,)])

    assert list(counts) == [1.0, 2.0]
    assert num_outside == 1
    assert design.num_samples > 100


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([0.5, 0.6], 1e-6, 0.1), "sums to 1"),
        (([1.0, 0.0], 1e-6, 0.1), "single possible outcome"),
        (([0.5, 0.5], 2.0, 0.1), "alpha is 2.0"),
        (([0.5, 0.5], 1e-6, 0.0), "detectable_tv is 0.0"),
    ],
)
def test_bad_plans_are_refused(arguments, says):
    """Each refusal names the value and the rule."""
    with pytest.raises(UsageError, match=says):
        ChiSquareDesign(*arguments)
