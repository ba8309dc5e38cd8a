"""Which elements of which tensors are symbolic: an int64 mirror of symbol ids for each tensor storage.

The mirror belongs to the storage, not to the tensor, and is read with the tensor's own sizes and strides. Views,
expansions and in-place writes through a view therefore need no handling. Id 0 means an ordinary number. Mirrors live
on the CPU whatever the device of the tensor.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np
import torch
from numpy import count_nonzero
from numpy.typing import NDArray

from specverify.exact.errors import NotEnumerable, source_line

Ids = NDArray[np.int64]

# Float types that hold no 2e30 get a large number of their own.
_LARGE = {torch.float16: 3.0e4}


@functools.cache
def poison(dtype: torch.dtype, seed: int) -> float | int | bool:
    """What stands in memory where a symbol is: no token and no probability, and another one in each replay of a path.

    NaN for floats (then a large number of either sign), integers far outside any vocabulary, and, as bool has no
    invalid value, False and True in turn. A program that reads memory unseen then changes its mind between replays.
    """
    if dtype is torch.bool:
        return bool(seed % 2)
    sign = (0, -1, 1)[seed % 3]
    if dtype.is_floating_point:
        return sign * _LARGE.get(dtype, 2.0e30 if torch.finfo(dtype).max > 2.0e30 else 100.0) if sign else float("nan")
    info = torch.iinfo(dtype)
    return info.max - 5 - seed % 16 if seed % 2 or info.min == 0 else info.min + 5 + seed % 16


class _Shadow:
    """The mirror of one storage. Holding the storage keeps its address from being used again in this run."""

    __slots__ = ("ids", "itemsize", "storage")

    def __init__(self, storage: torch.UntypedStorage, itemsize: int) -> None:
        self.storage = storage
        self.itemsize = itemsize
        self.ids: Ids = np.zeros(storage.nbytes() // itemsize, dtype=np.int64)

    @property
    def is_held_elsewhere(self) -> bool:
        return torch._C._storage_Use_Count(self.storage._cdata) > 1


class ShadowStore:
    """All mirrors of one run. Empty when nothing symbolic is alive, which is what the fast path asks."""

    def __init__(self) -> None:
        self.shadows: dict[int, _Shadow] = {}

    def outlive(self) -> list[_Shadow]:
        """Mirrors whose storage something else than this store still holds: the program keeps it between calls."""
        return [shadow for shadow in self.shadows.values() if shadow.is_held_elsewhere]

    def adopt(self, shadows: Iterable[_Shadow], element: int) -> None:
        """Takes over mirrors of an earlier run, with one id in place of every symbol of that run."""
        for shadow in shadows:
            shadow.ids[shadow.ids != 0] = element
            self.shadows[shadow.storage._cdata] = shadow

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's storage has a mirror at all; tells nothing about the tensor's own elements."""
        return tensor.untyped_storage()._cdata in self.shadows

    def read(self, tensor: torch.Tensor) -> Ids | None:
        """The ids behind the tensor's elements, as a view [tensor.shape] of the mirror; None where all are 0."""
        shadow = self.shadows.get(tensor.untyped_storage()._cdata)
        if shadow is None:
            return None
        ids = self._view(shadow, tensor)
        return ids if count_nonzero(ids) else None

    def write(self, tensor: torch.Tensor, ids: Ids) -> None:
        """Sets the ids behind the tensor's elements, of which some are not 0; ids broadcasts to the tensor's shape."""
        storage = tensor.untyped_storage()
        shadow = self.shadows.get(storage._cdata)
        if shadow is None:
            shadow = self.shadows[storage._cdata] = _Shadow(storage, tensor.element_size())
        self._view(shadow, tensor)[...] = ids

    def clear(self, tensor: torch.Tensor) -> None:
        """Ordinary numbers were written over the tensor's elements."""
        shadow = self.shadows.get(tensor.untyped_storage()._cdata)
        if shadow is None:
            return
        self._view(shadow, tensor)[...] = 0
        self.drop_if_clear(tensor)

    def drop_if_clear(self, tensor: torch.Tensor) -> None:
        """Forgets the storage's mirror where no symbol is left in it, so that the fast path finds less to ask."""
        key = tensor.untyped_storage()._cdata
        shadow = self.shadows.get(key)
        if shadow is not None and not count_nonzero(shadow.ids):
            del self.shadows[key]

    def _view(self, shadow: _Shadow, tensor: torch.Tensor) -> Ids:
        if tensor.element_size() != shadow.itemsize:
            raise NotEnumerable(
                f"random numbers of {shadow.itemsize} bytes are read as a tensor of {tensor.dtype}",
                "Tensor.view(dtype)",
                source_line(),
            )
        offset, strides = 8 * tensor.storage_offset(), [8 * step for step in tensor.stride()]
        try:
            return np.ndarray(tensor.shape, np.int64, shadow.ids, offset, strides)
        except (TypeError, ValueError):
            # The storage was resized in place; what it held keeps its symbols.
            needed = tensor.untyped_storage().nbytes() // shadow.itemsize
            shadow.ids = np.concatenate([shadow.ids, np.zeros(max(needed - len(shadow.ids), 0), dtype=np.int64)])
        return np.ndarray(tensor.shape, np.int64, shadow.ids, offset, strides)


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a plain tensor that may be written to, whatever autograd or inference mode made it."""
    plain = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return plain.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
