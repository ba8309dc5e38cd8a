"""A Llama-family decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU. Nothing is hidden in it.

The caller says which position each token has and which KV rows it may see, so that one forward pass serves prefill,
plain decoding, a chain of drafts and a tree of drafts alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from specverify.reference.config import ModelConfig
from specverify.reference.kv_cache import KVCache
from specverify.reference.rope import Rope, rotate


@dataclass(frozen=True)
class Layer:
    """Weights of one block. Projections that read the same input are stacked: query, key, value; gate, up."""

    attention_norm: Tensor  # [hidden]
    query_key_value: Tensor  # [(heads + 2 * kv_heads) * head_dim, hidden]
    query_key_value_bias: Tensor | None
    attention_out: Tensor  # [hidden, heads * head_dim]
    attention_out_bias: Tensor | None
    mlp_norm: Tensor  # [hidden]
    gate_up: Tensor  # [2 * intermediate, hidden]
    gate_up_bias: Tensor | None
    down: Tensor  # [hidden, intermediate]
    down_bias: Tensor | None


@dataclass(frozen=True)
class Weights:
    """All tensors of a model. head is the embedding itself where the two are tied."""

    embedding: Tensor  # [vocab, hidden]
    layers: tuple[Layer, ...]
    final_norm: Tensor  # [hidden]
    head: Tensor  # [vocab, hidden]


class Model:
    """A decoder that computes. It holds weights and no state: KV rows live in the cache it is handed."""

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config = config
        self.weights = weights
        self.dtype = weights.embedding.dtype
        self.device = weights.embedding.device
        # Norms and softmax are computed in at least float32, and in float64 where the model is.
        self.wide_dtype = torch.float64 if self.dtype == torch.float64 else torch.float32
        self.rope = Rope(config.rope, config.head_dim, self.device)

    def forward(
        self,
        token_ids: Tensor,
        *,
        positions: Tensor,
        slots: Tensor,
        mask: Tensor,
        cache: KVCache,
        layers: Sequence[int] | None = None,
        tapped: dict[int, Tensor] | None = None,
    ) -> Tensor:
        """Hidden states [rows, new, hidden] after the last norm; writes one KV row per token into the cache.

        token_ids, positions, slots: [rows, new]; slot s is the cache row that the token's keys and values go to.
        mask: [rows, new, num_rows], 0 where a token may see a cache row and -inf where not; num_rows must reach
          beyond the largest slot that counts.
        layers: run these only, in this order, each with its own part of the cache; all of them by default.
        tapped: its values are replaced by the residual stream [rows, new, hidden] in front of the layers that are its
          keys; the number of layers stands for the stream behind the last one, before the norm.
        """
        hidden = self.embed(token_ids)
        rotation = self.rope.rotation(positions, self.dtype)
        taps = {} if tapped is None else tapped
        for index in range(self.config.num_layers) if layers is None else layers:
            if index in taps:
                taps[index] = hidden
            layer = self.weights.layers[index]
            normed = self.norm(hidden, layer.attention_norm)
            hidden = hidden + self.attention(normed, index, layer, rotation, slots, mask, cache)
            hidden = hidden + self.mlp(self.norm(hidden, layer.mlp_norm), layer)
        if self.config.num_layers in taps:
            taps[self.config.num_layers] = hidden
        return self.norm(hidden, self.weights.final_norm)

    def embed(self, token_ids: Tensor) -> Tensor:
        """Embeddings [..., hidden] of token ids [...]: what the first layer reads."""
        return self.weights.embedding[token_ids]

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary, [..., vocab], for hidden states [..., hidden]."""
        return linear(hidden, self.weights.head)

    def norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        wide = hidden.to(self.wide_dtype)
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.config.rms_norm_eps)
        return weight * (wide * scale).to(self.dtype)

    def attention(
        self,
        normed: Tensor,
        index: int,
        layer: Layer,
        rotation: tuple[Tensor, Tensor],
        slots: Tensor,
        mask: Tensor,
        cache: KVCache,
    ) -> Tensor:
        config = self.config
        rows, new, _ = normed.shape
        groups = config.num_heads // config.num_kv_heads
        stacked = linear(normed, layer.query_key_value, layer.query_key_value_bias).view(rows, new, -1, config.head_dim)
        num_rotated = config.num_heads + config.num_kv_heads
        rotated = rotate(stacked[:, :, :num_rotated], rotation)
        cache.write(index, slots, keys=rotated[:, :, config.num_heads :], values=stacked[:, :, num_rotated:])
        keys, values = cache.read(index, mask.shape[-1])  # [rows, kv_heads, num_rows, head_dim]

        # All query heads that share a KV head become rows of one matrix product.
        queries = rotated[:, :, : config.num_heads].transpose(1, 2)  # [rows, heads, new, head_dim]
        queries = queries.reshape(rows, config.num_kv_heads, groups * new, config.head_dim)
        scores = (queries @ keys.transpose(-1, -2)) * config.head_dim**-0.5
        scores = scores.view(rows, config.num_kv_heads, groups, new, -1) + mask[:, None, None]
        weights = scores.to(self.wide_dtype).softmax(dim=-1).to(self.dtype)
        mixed = weights.view(rows, config.num_kv_heads, groups * new, -1) @ values
        mixed = mixed.view(rows, config.num_heads, new, config.head_dim).transpose(1, 2).reshape(rows, new, -1)
        return linear(mixed, layer.attention_out, layer.attention_out_bias)

    def mlp(self, normed: Tensor, layer: Layer) -> Tensor:
        gate, up = linear(normed, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
        return linear(silu(gate) * up, layer.down, layer.down_bias)

    def first_layers(self, num_layers: int) -> Model:
        """The same model cut after its first layers: a cheap untrained draft that shares the weights."""
        weights = replace(self.weights, layers=self.weights.layers[:num_layers])
        return Model(replace(self.config, num_layers=num_layers), weights)
