"""Keys and values of every token computed so far, in static buffers with one lane per batch row.

In a lane the first `lengths[row]` slots are in use. A verify pass writes its rows behind the committed ones; they are
pending until `keep` says how many of all stay. Rolling back is only that number: rows beyond it are invisible and get
overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specverify.reference.config import ModelConfig


class KVCache:
    """Static buffers that double when a lane outgrows them. lengths: rows in use, per batch row, on the host."""

    # Whether rows are written and read as here, so that a pass may use the memory itself.
    is_plain = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.is_plain = cls.write is KVCache.write and cls.read is KVCache.read

    def __init__(
        self, config: ModelConfig, num_rows: int, capacity: int, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (config.num_layers, 2, num_rows, config.num_kv_heads, capacity, config.head_dim)
        self.buffer = _zeros(shape, torch.empty(0, dtype=dtype, device=device))
        self.lengths = [0] * num_rows
        # What `read` gave last, for how many slots: the same for all layers of a pass.
        self._seen: list[tuple[Tensor, Tensor]] = []
        self._num_seen = -1
        self._arrays: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._take_lanes()

    @property
    def capacity(self) -> int:
        return self.buffer.shape[4]

    def reserve(self, num_slots: int) -> None:
        """Makes room for num_slots rows in every lane, keeping what is there."""
        if num_slots > self.capacity:
            spare = max(num_slots, 2 * self.capacity) - self.capacity
            empty = self.buffer.new_zeros((*self.buffer.shape[:4], spare, self.buffer.shape[5]))
            self.buffer = torch.cat([self.buffer, empty], dim=4)
            self._take_lanes()

    def write(self, layer: int, slots: Tensor, *, keys: Tensor, values: Tensor) -> None:
        """Stores keys and values [rows, new, kv_heads, head_dim] at slots [rows or 1, new] of the layer."""
        own_keys, own_values = self._lanes[layer]
        if slots.shape[0] == 1:
            shared = slots[0]
            own_keys.index_copy_(2, shared, keys.transpose(1, 2))
            own_values.index_copy_(2, shared, values.transpose(1, 2))
        else:
            own_keys[self._row_index, :, slots] = keys
            own_values[self._row_index, :, slots] = values

    def read(self, layer: int, num_slots: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the first num_slots slots, each [rows, kv_heads, num_slots, head_dim]; views."""
        if self._num_seen != num_slots:
            seen = self.buffer.narrow(4, 0, num_slots).flatten(0, 1).unbind()
            self._seen = list(zip(seen[::2], seen[1::2], strict=True))
            self._num_seen = num_slots
        return self._seen[layer]

    def arrays(self, layer: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Keys and values of all slots, each [rows, kv_heads, capacity, head_dim]: the memory itself, for numpy."""
        if not self._arrays:
            self._arrays = [(layer[0], layer[1]) for layer in self.buffer.numpy()]
        return self._arrays[layer]

    def keep(self, row: int, num_rows: int) -> None:
        """Commits the first num_rows rows of the lane and drops everything behind them."""
        self.lengths[row] = num_rows

    def compact(self, first_slots: Sequence[int], kept_slots: Sequence[Sequence[int]]) -> None:
        """Moves the rows at kept_slots[r], in that order, to first_slots[r] and behind; in all lanes at once.

        Used after a tree: the rows of the accepted path lie between those of its siblings.
        """
        moved = [list(range(first, first + len(slots))) for first, slots in zip(first_slots, kept_slots, strict=True)]
        if moved == [list(slots) for slots in kept_slots]:
            return
        # Shorter lanes repeat their last move, empty ones move a row onto itself.
        width, device = max(len(slots) for slots in moved), self.buffer.device
        source, destination = (
            torch.tensor([_filled(slots, width, first) for first, slots in zip(first_slots, lane, strict=True)])
            for lane in (kept_slots, moved)
        )
        source, destination = source.to(device), destination.to(device)
        self.buffer[:, :, self._row_index, :, destination] = self.buffer[:, :, self._row_index, :, source]

    def select(self, rows: Sequence[int]) -> None:
        """Keeps the lanes of these batch rows, in this order; the others are finished."""
        if list(rows) == list(range(self.buffer.shape[2])):
            return
        used = max(self.lengths)
        self.lengths = [self.lengths[row] for row in rows]
        # Only what is in use is copied, and of lanes that stay in their places nothing.
        if len(rows) > self.buffer.shape[2]:
            lanes = self.buffer[..., :used, :].index_select(2, torch.tensor(rows, device=self.buffer.device))
            self.buffer = _zeros((*self.buffer.shape[:2], len(rows), *self.buffer.shape[3:]), self.buffer)
            self.buffer[..., :used, :] = lanes
        else:
            self._move([(place, row) for place, row in enumerate(rows) if row != place], used)
            self.buffer = self.buffer[:, :, : len(rows)]
        self._take_lanes()

    def _move(self, moves: Sequence[tuple[int, int]], used: int) -> None:
        """Copies the first slots of lanes: to each place from its row, as they all were before."""
        overwritten: set[int] = set()
        for place, row in moves:
            if row in overwritten:
                break
            overwritten.add(place)
        else:
            for place, row in moves:
                self.buffer[:, :, place, :, :used] = self.buffer[:, :, row, :, :used]
            return
        places, moving = torch.tensor(moves, device=self.buffer.device).unbind(1)
        self.buffer[:, :, places, :, :used] = self.buffer[:, :, moving, :, :used]

    def _take_lanes(self) -> None:
        """Views of each layer's keys and values, made once for many passes."""
        self._lanes = [(layer[0], layer[1]) for layer in self.buffer.unbind()]
        self._arrays = []
        self._num_seen = -1
        self._row_index = torch.arange(self.buffer.shape[2], device=self.buffer.device)[:, None]

    def rows(self, row: int) -> Tensor:
        """A copy of the rows in use, [layers, 2, length, kv_heads, head_dim]."""
        lane = self.buffer[:, :, row, :, : self.lengths[row]]
        return lane.transpose(2, 3).clone()


def _zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """Zeros; on the host of memory that is not touched before it is used."""
    if like.device.type != "cpu" or like.dtype not in (torch.float32, torch.float64):
        return like.new_zeros(*shape)
    return torch.from_numpy(np.zeros(shape, np.float32 if like.dtype == torch.float32 else np.float64))


def _filled(slots: Sequence[int], width: int, otherwise: int) -> list[int]:
    """The slots, and then the last of them until there are width."""
    return [*slots, *[slots[-1] if slots else otherwise] * (width - len(slots))]
