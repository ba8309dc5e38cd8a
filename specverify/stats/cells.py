"""Cells of tokens that a wrong verifier treats alike: by how likely they are, and by how draft and target differ."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specverify.core.errors import UsageError

# Eight by eight cells were enough for every mistake tried at 32,000 tokens; hash buckets and a single split by sign
# were blind to whole classes of them.
CELLS_PER_KEY = 8

# Below this probability ratios mean nothing; it only keeps logarithms finite.
_TINY = 1e-300


def ratio_cells(draft_probs: ArrayLike, target_probs: ArrayLike) -> NDArray[np.int64]:
    """The cell of every token, [vocab]: log(target / draft) by log(target), eight quantiles of each.

    Depends on the two rows alone, so cells are fixed before any outcome is seen.
    """
    draft, target = np.asarray(draft_probs, dtype=np.float64), np.asarray(target_probs, dtype=np.float64)
    if draft.shape != target.shape or target.ndim != 1:
        raise UsageError(f"draft_probs has shape {draft.shape} and target_probs {target.shape}; give two rows [vocab]")
    log_target = np.log(np.maximum(target, _TINY))
    log_ratio = log_target - np.log(np.maximum(draft, _TINY))
    by_ratio, by_target = _quantile_cells(log_ratio, target), _quantile_cells(log_target, target)
    return by_ratio * CELLS_PER_KEY + by_target


def cell_counts(cells: NDArray[np.int64], values: ArrayLike) -> NDArray[np.float64]:
    """Sums of a row of probabilities or counts, [vocab], over the cells, [64]."""
    sums: NDArray[np.float64] = np.zeros(CELLS_PER_KEY**2)
    np.add.at(sums, cells, np.asarray(values, dtype=np.float64))
    return sums


def _quantile_cells(key: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.int64]:
    """Cells of equal weight along the key; equal keys share a cell.

    Weight is half target mass and half head count: by mass alone the whole tail of a large vocabulary, where cuts
    such as top-p act, would be one cell; by count alone the likely tokens would be.
    """
    order = np.argsort(key, kind="stable")
    weight = 0.5 * target[order] / target.sum() + 0.5 / len(key)
    middle = np.cumsum(weight) - 0.5 * weight
    sorted_key = key[order]
    starts = np.concatenate([[True], sorted_key[1:] != sorted_key[:-1]])
    first_of_run = np.maximum.accumulate(np.where(starts, np.arange(len(key)), 0))
    cells = np.empty(len(key), dtype=np.int64)
    cells[order] = np.minimum((middle[first_of_run] * CELLS_PER_KEY).astype(np.int64), CELLS_PER_KEY - 1)
    return cells
