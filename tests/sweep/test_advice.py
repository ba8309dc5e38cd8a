"""Which k a sweep recommends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specverify.laws.economics import optimum
from specverify.sweep.advice import advice, fitted
from specverify.sweep.store import Sweep
from tests.sweep.made import length_row

LENGTHS = range(1, 11)


@pytest.mark.parametrize(("acceptance", "draft_cost", "fixed"), [(0.75, 0.12, 0.0), (0.5, 0.05, 0.1), (0.9, 0.1, 0.0)])
def test_finds_the_optimum_of_the_closed_form(acceptance, draft_cost, fixed):
    """Where measurement follows the closed form, measured and theoretical best k are its optimum."""
    rows = [length_row(k, acceptance=acceptance, fixed=fixed, draft_cost=draft_cost) for k in LENGTHS]
    best = optimum(acceptance, draft_cost=draft_cost, fixed_cost=fixed)

    (found,) = advice(Sweep({}, rows))

    assert best.num_draft_tokens == found.best_k == found.theory_k == found.row.num_draft_tokens
    assert best.speedup == pytest.approx(found.row.speedup)


def test_costs_are_read_off_the_rounds():
    """Start and slope of the fitted line are the fixed and the per-token cost."""
    model, _ = fitted([length_row(k, acceptance=0.6, fixed=0.3, draft_cost=0.07) for k in LENGTHS])

    assert (pytest.approx(model.cost), pytest.approx(model.draft_cost)) == (1.3, 0.07)


def test_noise_is_settled_by_theory():
    """Where k 4 and its neighbours cannot be told apart, the closed form chooses among them."""
    luck = {5: 0.77}
    lucky = [length_row(k, acceptance=luck.get(k, 0.75), fixed=0.0, draft_cost=0.12, spread=0.1) for k in LENGTHS]

    (found,) = advice(Sweep({}, lucky))

    assert found.row.num_draft_tokens == 5
    assert found.best_k == 4


def test_does_not_speculate_where_nothing_pays():
    """Acceptance .35 at cost .4 loses at every k, and the reader is told what would be needed."""
    rows = [length_row(k, acceptance=0.35, fixed=0.0, draft_cost=0.4) for k in LENGTHS]

    (found,) = advice(Sweep({}, rows))

    assert found.best_k == 0
    assert "do not speculate" in found.headline
    assert "pay from acceptance 0.40 on" in found.reasons[-1]


def test_luck_is_no_advice():
    """One row is faster than plain decoding; acceptance and costs of all rows say that this cannot last."""
    rows = [length_row(k, acceptance=0.35, fixed=0.0, draft_cost=0.4) for k in LENGTHS]
    rows[3] = replace(rows[3], speedup=1.3, speedup_low=1.1, speedup_high=1.5)

    (found,) = advice(Sweep({}, rows))

    assert found.best_k == 0
    assert "undecided, measure more: k 4 was faster" in found.headline


def test_one_length_is_no_sweep():
    """A line of costs takes two lengths."""
    assert advice(Sweep({}, [length_row(4, acceptance=0.5, fixed=0.0, draft_cost=0.1)])) == []
