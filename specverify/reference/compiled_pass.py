"""The pass over a few tokens by compiled kernels: what `Model.forward` computes, without torch's calls.

Where a matrix has some ten thousand entries a pass is not arithmetic but calls, and one call a layer takes a quarter
of the time. Where it has millions, reading it is all that counts, and the kernels read at the memory's speed. Weights
and KV rows are the model's and the cache's own memory, seen as arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specverify.reference.int8 import Int8Weight
from specverify.reference.kv_cache import KVCache

if TYPE_CHECKING:
    from specverify.reference.model import Model

Array = NDArray[np.floating[Any]]
# With more tokens torch's products are as fast or faster: see benchmarks/engine.md.
MOST_TOKENS, MOST_TOKENS_IF_LARGE = 32, 8
# A matrix of so many entries is read from memory: the kernels do so with one thread, torch with all that it has.
LARGE_WEIGHT = 1 << 18


class CompiledPass:
    """The weights of one model as arrays, and the pass over them."""

    def __init__(self, model: Model, kernels: ModuleType) -> None:
        config = model.config
        self.kernels = kernels
        # The arguments of `kernels.block` that a layer brings, in the order of the fields of `Layer`.
        self.layers = [
            tuple(_array(getattr(layer, field.name), model.dtype) for field in fields(layer))
            for layer in model.weights.layers
        ]
        self.final_norm = _array(model.weights.final_norm, model.dtype)
        head = model.weights.head
        self.head = None if isinstance(head, Int8Weight) else _array(head, model.dtype)
        self.num_heads, self.head_dim = config.num_heads, config.head_dim
        number = self.final_norm.dtype.type
        self._size_eps, self._root_size = number(config.hidden_size * config.rms_norm_eps), number(model.root_size)
        self._nothing: Array = np.zeros(0, self.final_norm.dtype)
        self._no_mask = self._nothing.reshape(0, 0, 0)
        self._is_large = any(array.size >= LARGE_WEIGHT for layer in self.layers for array in layer)
        self.most_tokens = MOST_TOKENS_IF_LARGE if self._is_large else MOST_TOKENS

    @staticmethod
    def of(model: Model) -> CompiledPass | None:
        """The pass of a model that it is meant for: on the CPU, not being trained, of a type that the kernels take."""
        if not model.is_plain or model.device.type != "cpu" or model.dtype not in (torch.float32, torch.float64):
            return None
        weights = [getattr(layer, field.name) for layer in model.weights.layers for field in fields(layer)]
        if any(isinstance(weight, Int8Weight) for weight in weights):
            return None
        tensors = [*weights, model.weights.embedding, model.weights.final_norm, model.weights.head]
        if any(isinstance(tensor, Tensor) and tensor.requires_grad for tensor in tensors):
            return None
        kernels = _kernels()
        if kernels is None:
            return None
        compiled = CompiledPass(model, kernels)
        compiled.get_ready()
        return compiled

    def get_ready(self) -> None:
        """Compiles or loads the kernels for this type of number: here, not in the midst of a run.

        An enumeration puts functions of its own in the place of numpy's and math's, which cannot be compiled.
        """
        _run_once(self.kernels, self.final_norm.dtype)

    def suits(self, rows: int, new: int, cache: KVCache) -> bool:
        """Whether the pass is for blocks of that many rows and tokens, on such a cache."""
        return rows * new <= self.most_tokens and self.suits_attention(new, cache)

    def suits_attention(self, new: int, cache: KVCache) -> bool:
        """Whether the attention of such blocks is for the kernels, whatever the number of rows."""
        return new <= self.most_tokens and cache.is_plain and not (self._is_large and torch.get_num_threads() > 1)

    def forward(
        self,
        hidden: Tensor,
        rotation: tuple[Tensor, Tensor],
        slots: Tensor,
        mask: Tensor | None,
        num_slots: int,
        cache: KVCache,
        layers: Sequence[int],
        taps: dict[int, Tensor],
    ) -> Tensor:
        """As `Model.forward`, for hidden states [rows, new, hidden] that the first layer reads."""
        rows, new, size = hidden.shape
        states = hidden.numpy().reshape(rows * new, size).copy()
        cos, sin, places, seen = self._prepared(rotation, slots, mask)
        for index in layers:
            if index in taps:
                taps[index] = torch.from_numpy(states.copy()).view(rows, new, -1)
            keys, values = cache.arrays(index)
            self.kernels.block(
                states, *self.layers[index], cos, sin, places, seen, keys, values, num_slots,
                self._size_eps, self._root_size,
            )  # fmt: skip
        if len(self.layers) in taps:
            taps[len(self.layers)] = torch.from_numpy(states.copy()).view(rows, new, -1)
        self.kernels.normalise(states, self.final_norm, self._size_eps, self._root_size, states)
        return torch.from_numpy(states).view(rows, new, -1)

    def attention(
        self,
        stacked: Tensor,
        index: int,
        rotation: tuple[Tensor, Tensor],
        slots: Tensor,
        mask: Tensor | None,
        num_slots: int,
        cache: KVCache,
    ) -> Tensor:
        """Attention alone, [rows * new, heads * head_dim], for stacked [rows, new, all heads, head_dim], changed."""
        rows, new = stacked.shape[:2]
        cos, sin, places, seen = self._prepared(rotation, slots, mask)
        keys, values = cache.arrays(index)
        heads = stacked.numpy()
        mixed = np.empty((rows, new, self.num_heads, self.head_dim), heads.dtype)
        self.kernels.attend(heads, cos, sin, places, seen, keys, values, num_slots, mixed)
        return torch.from_numpy(mixed).view(rows * new, -1)

    def norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """As `Model.norm`, for hidden states [tokens, hidden]."""
        states = np.ascontiguousarray(hidden.numpy())
        normed = np.empty_like(states)
        self.kernels.normalise(states, weight.numpy(), self._size_eps, self._root_size, normed)
        return torch.from_numpy(normed)

    def logits(self, hidden: Tensor) -> Tensor | None:
        """As `Model.logits`, for hidden states [..., hidden]; None where torch is to compute them."""
        if self.head is None or hidden.requires_grad:
            return None
        states, is_large = hidden.numel() // hidden.shape[-1], self.head.size >= LARGE_WEIGHT
        if states > (MOST_TOKENS_IF_LARGE if is_large else MOST_TOKENS) or (is_large and torch.get_num_threads() > 1):
            return None
        scores: Array = np.empty((states, len(self.head)), self.head.dtype)
        inputs = np.ascontiguousarray(hidden.numpy().reshape(states, -1))
        self.kernels.project(inputs, self.head, self._nothing, scores)
        return torch.from_numpy(scores).view(*hidden.shape[:-1], -1)

    def _prepared(
        self, rotation: tuple[Tensor, Tensor], slots: Tensor, mask: Tensor | None
    ) -> tuple[Array, Array, NDArray[np.int64], Array]:
        """Cosines and sines [rows or 1, new, head_dim], slots and mask, as the kernels take them."""
        cos, sin = (np.ascontiguousarray(part.numpy()[:, :, 0]) for part in rotation)
        seen = self._no_mask if mask is None else np.ascontiguousarray(mask.numpy())
        return cos, sin, np.ascontiguousarray(slots.numpy()), seen


def _array(tensor: Tensor | None, dtype: torch.dtype) -> Array:
    """The tensor's own memory; an array of no entries for None."""
    return (torch.zeros(0, dtype=dtype) if tensor is None else tensor.detach().contiguous()).numpy()


@cache
def _run_once(kernels: ModuleType, dtype: np.dtype[Any]) -> None:
    """Each kernel once, on arrays of the kinds that it will meet: one token, one head of two numbers, one slot."""

    def ones(*shape: int) -> Array:
        return np.ones(shape, dtype)

    one, states, lanes, places = dtype.type(1), ones(1, 2), ones(1, 1, 1, 2), np.zeros((1, 1), np.int64)
    weights = (ones(2), ones(6, 2), ones(6), ones(2, 2), ones(2), ones(2), ones(4, 2), ones(4), ones(2, 2), ones(2))
    angles, mask = ones(1, 1, 2), ones(1, 1, 1)
    kernels.block(states, *weights, angles, angles, places, mask, lanes, lanes, 1, one, one)
    kernels.attend(ones(1, 1, 3, 2), angles, angles, places, mask, lanes, lanes, 1, ones(1, 1, 1, 2))
    kernels.normalise(states, weights[0], one, one, states)
    kernels.project(states, weights[1], weights[2], ones(1, 6))


@cache
def _kernels() -> ModuleType | None:
    """The kernels, or None where there is no numba that works with this numpy."""
    try:
        from specverify.reference import kernels
    except ImportError:
        return None
    return kernels
