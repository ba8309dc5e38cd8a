"""The centred Dirichlet e-value is an e-value, exactly, and sees what it must."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import multinomial

from specverify.core.errors import UsageError
from specverify.stats.dirichlet import DirichletEValue

LAW = np.array([0.5, 0.3, 0.2])


def log_e(counts, law=LAW):
    process = DirichletEValue(law)
    process.update(counts)
    return process.log_e


@pytest.mark.parametrize("num_outcomes", [1, 3, 8])
def test_expectation_is_exactly_one(num_outcomes):
    """Summed over every possible count, probability times e-value is 1: a martingale at every sample size."""
    total = 0.0
    for counts in itertools.product(range(num_outcomes + 1), repeat=3):
        if sum(counts) == num_outcomes:
            total += multinomial.pmf(counts, num_outcomes, LAW) * math.exp(log_e(counts))

    assert total == pytest.approx(1.0, abs=1e-9)


def test_next_value_averages_to_the_present_one():
    """Given any past, the expected next e-value under the null is the present one (martingale)."""
    past = np.array([30.0, 2.0, 5.0])

    following = sum(LAW[cell] * math.exp(log_e(past + np.eye(3)[cell])) for cell in range(3))

    assert following == pytest.approx(math.exp(log_e(past)), rel=1e-9)


def test_impossible_outcome_is_infinite_evidence():
    """One outcome of null probability zero proves the null wrong and is counted apart."""
    process = DirichletEValue([0.5, 0.5, 0.0])
    process.update([10, 10, 1])

    assert process.log_e == math.inf
    assert process.num_impossible == 1


def test_order_and_batching_do_not_matter():
    """Counts are sufficient: one by one or all at once gives the same evidence."""
    rng = np.random.default_rng(1)
    cells = rng.choice(3, 200, p=LAW)
    one_by_one, at_once = DirichletEValue(LAW), DirichletEValue(LAW)
    for cell in cells:
        one_by_one.update_outcomes([cell])
    at_once.update(np.bincount(cells, minlength=3))

    assert one_by_one.log_e == pytest.approx(at_once.log_e)


def test_grows_like_the_divergence():
    """Evidence per outcome approaches the Kullback-Leibler divergence of the true law from the null."""
    wrong = np.array([0.4, 0.3, 0.3])
    divergence = float((wrong * np.log(wrong / LAW)).sum())

    assert log_e(wrong * 1e6) / 1e6 == pytest.approx(divergence, rel=1e-3)


def test_large_vocabulary_sees_a_small_spread_error():
    """Scales to 10**12 find an error of .01 spread over 32,000 tokens in 6 million outcomes."""
    rng = np.random.default_rng(2)
    law = rng.dirichlet(np.ones(32_000))
    sign = rng.choice([-1.0, 1.0], 32_000)
    wrong = law * (1.0 + 0.02 * sign)

    assert log_e(rng.multinomial(6_000_000, wrong / wrong.sum()), law) > math.log(1e9)
    assert log_e(rng.multinomial(6_000_000, law), law) < 3.0


@pytest.mark.parametrize("law", [[0.5, -0.5], [np.nan, 1.0], [0.0, 0.0]])
def test_a_bad_law_is_refused(law):
    """A null that is no law is refused."""
    with pytest.raises(UsageError, match="non-negative numbers"):
        DirichletEValue(law)


def test_counts_of_another_shape_are_refused():
    """Counts must match the law's cells."""
    with pytest.raises(UsageError, match="the law has"):
        log_e([1, 2])
