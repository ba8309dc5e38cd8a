"""The kernels' arithmetic, against plain numpy, and what they do with NaN and infinities."""

from __future__ import annotations

import numpy as np
import pytest

kernels = pytest.importorskip("specverify.reference.kernels")

TYPES = {np.float32: 4e-7, np.float64: 1e-13}


def row(size, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(size).astype(dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES.items())
def test_softmax(dtype, tolerance) -> None:
    """Far and near scores; nothing beyond the end."""
    scores = 60.0 * row(50, dtype)
    wanted = np.exp((scores[:40] * 0.5 - (scores[:40] * 0.5).max()).astype(np.float64))
    found = scores.copy()

    kernels.softmax(found, scores[:0], dtype(0.5), 40)

    assert np.abs(found[:40] - wanted / wanted.sum()).max() < tolerance
    assert not found[40:].any()


@pytest.mark.parametrize("dtype", TYPES)
def test_masked_slots_weigh_nothing_and_nan_stays(dtype) -> None:
    """Exactly nothing: a mask is no large negative number. A NaN that is seen spoils the whole row."""
    mask = np.array([0.0, -np.inf, 0.0, 0.0], dtype)
    found, spoilt = row(4, dtype), row(4, dtype)
    spoilt[2] = np.nan

    kernels.softmax(found, mask, dtype(1.0), 4)
    kernels.softmax(spoilt, mask, dtype(1.0), 4)

    assert found[1] == 0.0
    assert abs(found.sum() - 1.0) < 1e-6
    assert np.isnan(spoilt).all()


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES.items())
def test_gate(dtype, tolerance) -> None:
    """No overflow at either end of the exponential."""
    both = np.concatenate([np.array([-500.0, -90.0, -1.0, 0.0, 1.0, 90.0, 500.0], dtype), row(7, dtype)])[None]
    found = np.empty((1, 7), dtype)

    kernels.gate(both, found)

    with np.errstate(over="ignore"):
        gates = both[0, :7].astype(np.float64)
        wanted = gates / (1.0 + np.exp(-gates)) * both[0, 7:]
    assert np.abs(found[0] - wanted).max() <= tolerance * np.abs(wanted).max()


@pytest.mark.parametrize("num_tokens", [1, 2, 3, 8])
@pytest.mark.parametrize("has_bias", [False, True])
def test_project(num_tokens, has_bias) -> None:
    """Pairs of tokens and one that is left over."""
    inputs, weight = row((num_tokens, 19), np.float64), row((11, 19), np.float64, 1)
    bias, found = row(11 if has_bias else 0, np.float64, 2), np.empty((num_tokens, 11))

    kernels.project(inputs, weight, bias, found)

    assert np.abs(found - (inputs @ weight.T + (bias if has_bias else 0.0))).max() < 1e-13
