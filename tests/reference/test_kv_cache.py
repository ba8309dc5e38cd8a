"""Lanes are moved, copied and dropped as they were before, whatever the order."""

from __future__ import annotations

import pytest
import torch

from specverify.reference.kv_cache import KVCache
from tests.reference import tiny


def cache(lengths):
    """Row r of a lane holds r + 1 everywhere, in as many slots as it has."""
    made = KVCache(tiny.config(), len(lengths), 6, dtype=torch.float64, device=torch.device("cpu"))
    for row, length in enumerate(lengths):
        made.buffer[:, :, row, :, :length] = row + 1
        made.lengths[row] = length
    return made


@pytest.mark.parametrize(
    "rows", [[0, 1, 2, 3], [1, 3], [3, 1], [3, 0, 1, 2], [0, 3, 2], [1, 0, 3, 2], [2, 2, 0, 1, 3, 3], [0]]
)
def test_select(rows) -> None:
    """Up, down, round in a circle, and some rows twice."""
    moved = cache([3, 5, 1, 4])

    moved.select(rows)

    assert moved.lengths == [[3, 5, 1, 4][row] for row in rows]
    for place, row in enumerate(rows):
        lane = moved.rows(place)
        assert lane.shape[2] == moved.lengths[place]
        assert (lane == row + 1).all()


def test_selected_lanes_are_not_shared() -> None:
    """Two copies of one lane go on by themselves."""
    moved = cache([2])
    moved.select([0, 0])

    moved.buffer[:, :, 0, :, :2] = 9.0

    assert (moved.rows(1) == 1.0).all()


def test_growing_keeps_what_is_there() -> None:
    grown = cache([3, 6])

    grown.reserve(40)

    assert grown.capacity >= 40
    assert (grown.rows(1) == 2.0).all()
    assert (grown.buffer[:, :, 0, :, 3:] == 0.0).all()
