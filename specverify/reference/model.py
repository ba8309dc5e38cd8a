"""A Llama-family decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU. Nothing is hidden in it.

The caller says which position each token has and which KV rows it may see, so that one forward pass serves prefill,
plain decoding, a chain of drafts and a tree of drafts alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import linear, scaled_dot_product_attention, silu

from specverify.reference.compiled_pass import LARGE_WEIGHT, CompiledPass
from specverify.reference.config import ModelConfig
from specverify.reference.int8 import Int8Weight
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
    """A decoder that computes. It holds weights and no state: KV rows live in the cache it is handed.

    The weights are not to be changed afterwards, unless they are being trained (require gradients) from the start.
    """

    # Whether a pass is computed as here, so that CompiledPass may stand in for it.
    is_plain = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.is_plain = all(
            getattr(cls, name) is getattr(Model, name) for name in ("forward", "attention", "mlp", "norm")
        )

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config = config
        self.weights = weights
        self.dtype = weights.embedding.dtype
        self.device = weights.embedding.device
        # Norms and softmax are computed in at least float32, and in float64 where the model is.
        self.wide_dtype = torch.float64 if self.dtype == torch.float64 else torch.float32
        # sqrt(size * eps), which the norm adds in square to a state's length; and what it starts from.
        smallest = (config.hidden_size * config.rms_norm_eps) ** 0.5
        self._smallest_length = torch.tensor(smallest, dtype=self.wide_dtype, device=self.device)
        self._zero = torch.zeros((), dtype=self.wide_dtype, device=self.device)
        self.root_size = config.hidden_size**0.5
        self._is_large = self.device.type == "cpu" and any(
            _is_large(layer.gate_up) and not isinstance(layer.gate_up, Int8Weight) for layer in weights.layers
        )
        self._compiled = CompiledPass.of(self)
        self.rope = Rope(config.rope, config.head_dim, self.device)

    def forward(
        self,
        token_ids: Tensor,
        *,
        positions: Tensor,
        slots: Tensor,
        mask: Tensor | None,
        cache: KVCache,
        num_slots: int | None = None,
        layers: Sequence[int] | None = None,
        tapped: dict[int, Tensor] | None = None,
        inputs: Tensor | None = None,
    ) -> Tensor:
        """Hidden states [rows, new, hidden] after the last norm; writes one KV row per token into the cache.

        token_ids: [rows, new]. positions, slots: the same, or [1, new] where all rows agree; slot s is the cache row
          that the token's keys and values go to.
        mask: [rows or 1, new, num_slots], 0 where a token may see a cache row and -inf where not; None where every
          token sees all num_slots rows.
        layers: run these only, in this order, each with its own part of the cache; all of them by default.
        tapped: its values are replaced by the residual stream [rows, new, hidden] in front of the layers that are its
          keys; the number of layers stands for the stream behind the last one, before the norm.
        inputs: what the first layer reads instead of the embeddings, [rows, new, hidden].
        """
        rows, new = token_ids.shape
        config = self.config
        hidden = self.embed(token_ids) if inputs is None else inputs
        rotation = self.rope.rotation(positions, self.dtype)
        if num_slots is None:
            assert mask is not None, "without a mask, say how many cache rows are seen"
            num_slots = mask.shape[-1]
        order = range(config.num_layers) if layers is None else layers
        taps = {} if tapped is None else tapped
        if self._compiled is not None and self._compiled.suits(rows, new, cache):
            return self._compiled.forward(hidden, rotation, slots, mask, num_slots, cache, order, taps)
        hidden = hidden.flatten(0, 1)  # [rows * new, hidden]
        if rows * new == 1 and self._is_large:
            hidden = torch.cat((hidden, hidden))  # twice, once for all of its products: see `project`
        if mask is not None and self._attends(new, cache) is None:
            mask = self._grouped(mask)
        for index in order:
            if index in taps:
                taps[index] = hidden[: rows * new].view(rows, new, -1)
            layer = self.weights.layers[index]
            normed = self.norm(hidden, layer.attention_norm)
            mixed = self.attention(normed, index, layer, rotation, slots, mask, num_slots, cache, rows * new)
            hidden = hidden + project(mixed, layer.attention_out, layer.attention_out_bias)
            hidden = hidden + self.mlp(self.norm(hidden, layer.mlp_norm), layer)
        if config.num_layers in taps:
            taps[config.num_layers] = hidden[: rows * new].view(rows, new, -1)
        return self.norm(hidden[: rows * new], self.weights.final_norm).view(rows, new, -1)

    def embed(self, token_ids: Tensor) -> Tensor:
        """Embeddings [..., hidden] of token ids [...]: what the first layer reads."""
        return self.weights.embedding[token_ids]

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores over the vocabulary, [..., vocab], for hidden states [..., hidden]."""
        scores = None if self._compiled is None else self._compiled.logits(hidden)
        if scores is not None:
            return scores
        return project(hidden.reshape(-1, hidden.shape[-1]), self.weights.head).view(*hidden.shape[:-1], -1)

    def norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """Each hidden state over the root of its mean square, times the weight."""
        if self._compiled is not None and hidden.dim() == 2 and not (hidden.requires_grad or weight.requires_grad):
            return self._compiled.norm(hidden, weight)
        # Half the time of torch's rms_norm, which runs six kernels and more where the state is small.
        wide = hidden if self.dtype is self.wide_dtype else hidden.to(self.wide_dtype)
        length: Tensor = torch.hypot(vector_norm(wide, dim=-1, keepdim=True), self._smallest_length)
        normed: Tensor = torch.addcdiv(self._zero, wide, length, value=self.root_size)
        return normed * weight if self.dtype is self.wide_dtype else normed.to(self.dtype) * weight

    def attention(
        self,
        normed: Tensor,
        index: int,
        layer: Layer,
        rotation: tuple[Tensor, Tensor],
        slots: Tensor,
        mask: Tensor | None,
        num_slots: int,
        cache: KVCache,
        num_tokens: int,
    ) -> Tensor:
        """What the heads found, [num_tokens, heads * head_dim]; normed: [num_tokens, hidden], or one token twice."""
        config = self.config
        num_heads, num_kv_heads, new = config.num_heads, config.num_kv_heads, slots.shape[1]
        stacked = project(normed, layer.query_key_value, layer.query_key_value_bias)
        if stacked.shape[0] != num_tokens:
            stacked = stacked.narrow(0, 0, num_tokens)
        stacked = stacked.contiguous().view(-1, new, num_heads + 2 * num_kv_heads, config.head_dim)
        compiled = self._attends(new, cache)
        if compiled is not None:
            return compiled.attention(stacked, index, rotation, slots, mask, num_slots, cache)
        rotated = rotate(stacked.narrow(2, 0, num_heads + num_kv_heads), rotation)
        cache.write(
            index,
            slots,
            keys=rotated.narrow(2, num_heads, num_kv_heads),
            values=stacked.narrow(2, num_heads + num_kv_heads, num_kv_heads),
        )
        queries = rotated.narrow(2, 0, num_heads)
        keys, values = cache.read(index, num_slots)  # [rows, kv_heads, num_slots, head_dim]
        # All query heads that share a KV head become rows of one product.
        if new > 1:
            queries = queries.transpose(1, 2)  # [rows, heads, new, head_dim]
        queries = queries.reshape(-1, num_kv_heads, num_heads // num_kv_heads * new, config.head_dim)
        mixed = scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        if new > 1:
            mixed = mixed.view(-1, num_heads, new, config.head_dim).transpose(1, 2)
        return mixed.reshape(num_tokens, -1)

    def _attends(self, new: int, cache: KVCache) -> CompiledPass | None:
        """Who attends in place of torch, if somebody does."""
        return self._compiled if self._compiled is not None and self._compiled.suits_attention(new, cache) else None

    def _grouped(self, mask: Tensor) -> Tensor:
        """The mask [rows, new, slots] for all query heads of a KV head, [rows, 1, groups * new, slots]."""
        groups = self.config.num_heads // self.config.num_kv_heads
        rows, new, slots = mask.shape
        return mask[:, None].expand(rows, groups, new, slots).reshape(rows, 1, groups * new, slots)

    def mlp(self, normed: Tensor, layer: Layer) -> Tensor:
        gate, up = project(normed, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
        return project((silu(gate) * up).contiguous(), layer.down, layer.down_bias)

    def first_layers(self, num_layers: int) -> Model:
        """The same model cut after its first layers: a cheap untrained draft that shares the weights."""
        weights = replace(self.weights, layers=self.weights.layers[:num_layers])
        return Model(replace(self.config, num_layers=num_layers), weights)


# On a CPU, a few tokens times a large weight is bound by reading the weight, and the kernel behind `linear` reads it
# at half the memory's speed; the same product the other way round is 1.3 to 2 times as fast. A single token goes twice,
# because matrix times vector is the slow kernel again. Measured with MKL on AVX-512, float32 and float64: above 4
# tokens, or below 2**18 elements, `linear` is as fast or faster.
FEW_TOKENS = 4


def project(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """inputs [tokens, in] times weight [out, in], transposed, and the bias: [tokens, out], of whatever strides."""
    if isinstance(weight, Int8Weight):
        return weight.project(inputs, bias)
    num_tokens = inputs.shape[0]
    if num_tokens > FEW_TOKENS or not _is_large(weight) or weight.device.type != "cpu":
        return linear(inputs, weight, bias)
    if num_tokens == 1:
        outputs = torch.mm(weight, torch.cat((inputs, inputs)).t()).narrow(1, 0, 1).t()
    else:
        outputs = torch.mm(weight, inputs.t()).t()
    return outputs if bias is None else outputs + bias


def _is_large(weight: Tensor) -> bool:
    return weight.numel() >= LARGE_WEIGHT
