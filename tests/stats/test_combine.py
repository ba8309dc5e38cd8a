"""Averages of e-values, and cells of tokens."""

import math

import numpy as np
import pytest

from specverify.stats.combine import average_log_e
from specverify.stats.step import cell_counts, ratio_cells


def test_average_is_that_of_the_e_values():
    """Log of the mean of exponentials, far beyond floating-point range."""
    assert float(average_log_e([2000.0, 0.0])) == pytest.approx(2000.0 - math.log(2))
    assert float(average_log_e([0.0, -math.inf])) == pytest.approx(-math.log(2))
    assert float(average_log_e([math.inf, 0.0])) == math.inf
    assert float(average_log_e([-math.inf, -math.inf])) == -math.inf
    np.testing.assert_allclose([1.0, 2.0], average_log_e([[1.0, 1.0], [2.0, 2.0]], axis=1))


def test_cells_keep_the_mass_and_part_the_signs():
    """No mass is lost, and tokens that the draft over-proposes never share a cell with the most under-proposed."""
    rng = np.random.default_rng(1)
    target, draft = rng.dirichlet(np.ones(1000)), rng.dirichlet(np.ones(1000))

    cells = ratio_cells(draft, target)

    assert cell_counts(cells, target).sum() == pytest.approx(1.0)
    assert (cell_counts(cells, target) > 0.0).sum() > 30
    ratio = target / draft
    assert not set(cells[ratio < 0.2]) & set(cells[ratio > 5.0])


def test_equal_tokens_share_a_cell():
    """A uniform row over a uniform draft has one cell: nothing tells its tokens apart."""
    assert len(set(ratio_cells(np.full(50, 0.02), np.full(50, 0.02)))) == 1
