"""Residual, acceptance and efficiency of single rows."""

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.laws.residual import accept_ratio, acceptance_efficiency, residual

UNEVEN = np.array([0.5, 0.3, 0.2, 0.0])
FLAT = np.full(4, 0.25)


def test_residual_is_zero_where_draft_exceeds_target():
    """A token the draft over-proposes can never be a residual token."""
    law = residual(UNEVEN, FLAT)

    assert law[UNEVEN > FLAT].sum() == 0.0
    assert law.sum() == pytest.approx(1.0)


def test_residual_of_equal_rows_is_the_target():
    """Where no draft is ever rejected the target row is returned, not a division by zero."""
    np.testing.assert_array_equal(FLAT, residual(FLAT, FLAT))


def test_residual_works_row_by_row():
    """Stacked rows give stacked residuals."""
    stacked = residual(np.stack([UNEVEN, FLAT]), np.stack([FLAT, FLAT]))

    np.testing.assert_array_equal(np.stack([residual(UNEVEN, FLAT), FLAT]), stacked)


def test_acceptance_restores_the_target_together_with_the_residual():
    """min(draft, target) + rejected mass * residual = target: why the method is lossless."""
    accepted = np.minimum(UNEVEN, FLAT)

    np.testing.assert_allclose(FLAT, accepted + (1 - accepted.sum()) * residual(UNEVEN, FLAT), atol=1e-16)


def test_acceptance_probability_is_the_capped_ratio():
    """Over-proposed tokens are accepted by the ratio, under-proposed ones always."""
    np.testing.assert_allclose([0.5, 1.0], accept_ratio(UNEVEN[[0, 2]], FLAT[[0, 2]]))


def test_a_token_both_laws_forbid_is_not_accepted():
    """0 / 0 counts as a rejection: an impossible token must never be emitted."""
    assert accept_ratio(0.0, 0.0) == 0.0


def test_efficiency_is_one_minus_total_variation():
    """Sum of minima of two laws is 1 - TV."""
    assert acceptance_efficiency(UNEVEN, FLAT) == pytest.approx(1 - 0.5 * np.abs(UNEVEN - FLAT).sum())


def test_unequal_shapes_are_refused():
    """A draft row over another vocabulary is named as such."""
    with pytest.raises(UsageError, match="equal shapes"):
        residual(UNEVEN, [0.5, 0.5])
