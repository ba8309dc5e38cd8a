"""The pass of a small model over a few tokens: what `Model.forward` computes, by numpy in place of torch.

Where a matrix has some ten thousand entries a pass is not arithmetic but calls, and numpy's cost a third of torch's.
KV rows are the cache's own memory, seen as arrays. Read `Model.forward` first: this is that method, line by line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specverify.reference.int8 import Int8Weight
from specverify.reference.kv_cache import KVCache

if TYPE_CHECKING:
    from specverify.reference.model import Layer, Model

Array = NDArray[np.floating[Any]]
# With more tokens, or with a matrix of more entries, torch is as fast or faster: see benchmarks/engine.md.
MOST_TOKENS = 8
MOST_ENTRIES = 1 << 18


class SmallPass:
    """The weights of one model as arrays, and the pass over them.

    Weights are copied once: each norm's is multiplied into the matrix behind it, and matrices are kept as [in, out].
    """

    def __init__(self, model: Model) -> None:
        config = model.config
        self.layers = [_SmallLayer(layer) for layer in model.weights.layers]
        self.final_norm: Array = model.weights.final_norm.numpy()
        head = model.weights.head
        self.head: Array | None = np.ascontiguousarray(head.numpy().T) if _is_small(head) else None
        self.num_heads, self.num_kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        self._turned = config.num_heads + config.num_kv_heads  # heads that rotate: queries, then keys
        half = config.head_dim // 2
        self._swapped = np.r_[half : config.head_dim, 0:half]
        self._root_size, self._scale = config.hidden_size**0.5, config.head_dim**-0.5
        self._eps = config.hidden_size * config.rms_norm_eps

    @staticmethod
    def of(model: Model) -> SmallPass | None:
        """The pass of a model that it is meant for: on the CPU, small, not being trained, of a type that numpy has."""
        if not model.is_plain or model.device.type != "cpu" or model.dtype not in (torch.float32, torch.float64):
            return None
        weights = [getattr(layer, field.name) for layer in model.weights.layers for field in fields(layer)]
        weights.append(model.weights.final_norm)
        if model.weights.embedding.requires_grad or not all(weight is None or _is_small(weight) for weight in weights):
            return None
        return SmallPass(model)

    @staticmethod
    def suits(rows: int, new: int, cache: KVCache) -> bool:
        """Whether the pass is for blocks of that many rows and tokens, on such a cache."""
        return rows * new <= MOST_TOKENS and cache.is_plain

    @staticmethod
    def suits_attention(new: int, cache: KVCache) -> bool:
        """Whether numpy's attention is faster, for blocks of any number of rows."""
        return new <= MOST_TOKENS and cache.is_plain

    def attention(self, queries: Tensor, index: int, num_slots: int, mask: Tensor | None, cache: KVCache) -> Tensor:
        """Attention alone, [rows * new, heads * head_dim], for rotated queries [rows, new, heads, head_dim]."""
        keys, values = cache.arrays(index)
        seen = None if mask is None else mask.numpy()
        mixed = attend(queries.numpy(), keys[:, :, :num_slots], values[:, :, :num_slots], seen, self._scale)
        return torch.from_numpy(mixed)

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
        rows, new, _ = hidden.shape
        state: Array = hidden.numpy().reshape(rows * new, -1)
        cos, sin = rotation[0].numpy(), rotation[1].numpy()  # [rows or 1, new, 1, head_dim]
        seen = None if mask is None else mask.numpy()
        place = slots.item() if slots.numel() == 1 else slots.numpy()
        with np.errstate(over="ignore"):  # exp of a large number, and 1 over it
            for index in layers:
                if index in taps:
                    taps[index] = torch.from_numpy(state).view(rows, new, -1)
                layer = self.layers[index]
                stacked = layer.query_key_value(self._norm(state)).reshape(rows, new, -1, self.head_dim)
                turned = stacked[:, :, : self._turned]
                turned = turned * cos + turned.take(self._swapped, -1) * sin
                keys, values = cache.arrays(index)
                _write(keys, place, turned[:, :, self.num_heads :])
                _write(values, place, stacked[:, :, self._turned :])
                queries = turned[:, :, : self.num_heads]
                mixed = attend(queries, keys[:, :, :num_slots], values[:, :, :num_slots], seen, self._scale)
                state = state + layer.attention_out(mixed)
                state = state + layer.mlp(self._norm(state))
        if len(self.layers) in taps:
            taps[len(self.layers)] = torch.from_numpy(state).view(rows, new, -1)
        return torch.from_numpy(self._norm(state) * self.final_norm).view(rows, new, -1)

    def logits(self, hidden: Tensor) -> Tensor | None:
        """As `Model.logits`, for hidden states [..., hidden]; None where torch is to compute them."""
        if self.head is None or hidden.requires_grad or hidden.numel() > MOST_TOKENS * len(self.head):
            return None
        scores = hidden.numpy().reshape(-1, len(self.head)).dot(self.head)
        return torch.from_numpy(scores).view(*hidden.shape[:-1], -1)

    def _norm(self, state: Array) -> Array:
        """`Model.norm` without the weight."""
        if len(state) == 1:
            only = state[0]
            scale: Any = self._root_size / sqrt(only.dot(only) + self._eps)
        else:
            scale = (self._root_size / np.sqrt(np.einsum("ij,ij->i", state, state) + self._eps))[:, None]
        normed: Array = state * scale
        return normed


def attend(queries: Array, keys: Array, values: Array, mask: Array | None, scale: float) -> Array:
    """What the heads find, [rows * new, heads * head_dim].

    queries: [rows, new, heads, head_dim]. keys, values: [rows, kv_heads, slots, head_dim]. mask: [rows or 1, new,
    slots], added to the scores. As torch's scaled_dot_product_attention, in half its time where a row has few queries.
    """
    rows, new, num_heads, head_dim = queries.shape
    if new > 1:
        queries = queries.swapaxes(1, 2)
    # All query heads that share a KV head become rows of one product.
    queries = queries.reshape(rows, keys.shape[1], -1, head_dim) * scale
    scores = queries @ keys.swapaxes(2, 3)  # [rows, kv_heads, groups * new, slots]
    if mask is not None:
        scores.reshape(rows, num_heads, new, -1)[:] += mask[:, None]
    scores -= np.maximum.reduce(scores, axis=3, keepdims=True)
    np.exp(scores, out=scores)
    scores /= np.add.reduce(scores, axis=3, keepdims=True)
    mixed: Array = scores @ values
    if new > 1:
        mixed = mixed.reshape(rows, num_heads, new, head_dim).swapaxes(1, 2)
    return mixed.reshape(rows * new, -1)


def _is_small(weight: Tensor) -> bool:
    return not isinstance(weight, Int8Weight) and not weight.requires_grad and weight.numel() < MOST_ENTRIES


class _SmallLayer:
    """The arrays of one block, under the names of `Layer`."""

    def __init__(self, layer: Layer) -> None:
        self.query_key_value = _Projection(layer.query_key_value * layer.attention_norm, layer.query_key_value_bias)
        self.attention_out = _Projection(layer.attention_out, layer.attention_out_bias)
        self.gate_up = _Projection(layer.gate_up * layer.mlp_norm, layer.gate_up_bias)
        self.down = _Projection(layer.down, layer.down_bias)
        self.intermediate_size = layer.down.shape[1]

    def mlp(self, normed: Array) -> Array:
        both = self.gate_up(normed)
        gate = both[:, : self.intermediate_size]
        return self.down(gate / (1.0 + np.exp(-gate)) * both[:, self.intermediate_size :])


class _Projection:
    """inputs [tokens, in] times a weight, and its bias: [tokens, out]."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.matrix: Array = np.ascontiguousarray(weight.numpy().T)
        self.bias = None if bias is None else bias.numpy()

    def __call__(self, inputs: Array) -> Array:
        outputs: Array = inputs.dot(self.matrix)
        return outputs if self.bias is None else outputs + self.bias


def _write(lanes: Array, place: Any, new: Array) -> None:
    """Stores [rows, new, kv_heads, head_dim] at places [rows or 1, new] of lanes [rows, kv_heads, slots, head_dim]."""
    if isinstance(place, int):
        lanes[:, :, place] = new[:, 0]
    elif len(place) == 1:
        lanes[:, :, place[0]] = new.swapaxes(1, 2)
    else:
        lanes[np.arange(len(lanes))[:, None], :, place] = new
