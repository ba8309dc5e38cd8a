"""Lattice scenarios: whole-number counts, zero tolerance."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.exact.lattice import check_lattice, lattice_scenario


def verify(draft, draft_probs, target_probs, uniforms, *, slack=1.0, bonus_row=-1, resample=False):
    n = 0
    while n < len(draft) and uniforms[n] < slack * target_probs[n, draft[n]] / draft_probs[n, draft[n]]:
        n += 1
    row = target_probs[bonus_row] if n == len(draft) else target_probs[n]
    if n < len(draft) and not resample:
        row = np.maximum(row - draft_probs[n], 0.0)
    cumulative = np.cumsum(row / row.sum())
    return [*draft[:n], min(int(np.searchsorted(cumulative, uniforms[-1], side="right")), len(row) - 1)]


def batched(draft, draft_probs, target_probs, uniforms):
    """The same for all rows of uniforms at once, as a kernel does it."""
    k = len(draft)
    ratios = target_probs[np.arange(k), draft] / draft_probs[np.arange(k), draft]
    n = np.cumprod(uniforms[:, :k] < ratios, axis=1).sum(axis=1)
    rows = np.concatenate([np.maximum(target_probs[:k] - draft_probs, 0.0), target_probs[k:]])
    cumulative = np.cumsum(rows / rows.sum(axis=1, keepdims=True), axis=1)[n]
    finals = np.minimum((cumulative <= uniforms[:, k:]).sum(axis=1), rows.shape[1] - 1)
    return [(*draft[:count], final) for count, final in zip(n, finals, strict=True)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_correct_function_has_every_count_right(dtype):
    """Thresholds of a correct function lie on the grid, so that no cell is cut, in either precision."""
    report = check_lattice(verify, vocab_size=3, num_draft_tokens=2, resolution=6, dtype=dtype)

    assert report.failures == ()
    assert report.num_calls == 9 * 6**3 * 2


def test_a_batched_function_is_fed_all_cells_at_once():
    """One call for each draft and offset."""
    report = check_lattice(batched, vocab_size=4, num_draft_tokens=2, resolution=8, num_scenarios=2, batched=True)

    assert report.worst == 0.0


@pytest.mark.parametrize("mistake", [{"slack": 1.002}, {"slack": 0.998}, {"bonus_row": -2}, {"resample": True}])
def test_small_mistakes_change_a_count(mistake):
    """A ratio off by two in a thousand moves a threshold across a grid line."""
    report = check_lattice(
        lambda *arguments: verify(*arguments, **mistake), vocab_size=3, num_draft_tokens=2, resolution=8
    )

    assert report.worst > 0.01
    worst = report.failures[0]
    assert worst.observed != worst.wanted


def test_counts_of_a_scenario_sum_to_all_cells():
    """The wanted counts are a partition of the lattice."""
    scenario = lattice_scenario(vocab_size=4, num_draft_tokens=2, resolution=5, generator=np.random.default_rng(3))

    for draft in itertools.product(range(4), repeat=2):
        assert sum(scenario.wanted_counts(draft).values()) == 5**3
    assert np.ones(3) == pytest.approx(scenario.target_probs.sum(axis=1))


def test_a_lattice_needs_two_tokens():
    """Too small a scenario is refused in words."""
    with pytest.raises(UsageError, match="give at least 2, 2 and 1"):
        check_lattice(verify, vocab_size=1)
