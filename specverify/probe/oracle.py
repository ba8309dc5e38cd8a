"""A Llama forward in float64 numpy: the exact law of a checkpoint, independent of torch.

The float32 weights of a checkpoint are taken as exact real numbers, so its law is known to about 1e-13.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specverify.core.errors import UsageError
from specverify.core.types import SamplingParams
from specverify.laws.sampling import laws_along
from specverify.probe.shape import LlamaShape

Array = NDArray[np.float64]

_PLAIN = SamplingParams()

# Sequences of one forward are grouped so that the attention scores stay below about 64 MB.
_ROWS_PER_FORWARD = 4096


@dataclass(frozen=True, eq=False)
class Oracle:
    """The exact next-token laws of one Llama checkpoint.

    weights: the tensors by their Hugging Face names, as float64. Without lm_head.weight the embedding is tied.
    """

    shape: LlamaShape
    weights: Mapping[str, Array]

    @classmethod
    def from_checkpoint(cls, directory: str | Path) -> Oracle:
        """Loads config.json and model.safetensors. Raises UsageError where they are missing or don't fit."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        folder = Path(directory)
        for name in ("config.json", "model.safetensors"):
            if not (folder / name).is_file():
                raise UsageError(f"{folder} has no {name}; give the directory of a Hugging Face Llama checkpoint")
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            tensors = load_file(folder / "model.safetensors")
        except (ValueError, SafetensorError) as error:
            raise UsageError(f"{folder} is not a readable checkpoint ({error}); write or download it again") from error
        shape = LlamaShape.from_config(config)
        oracle = cls(shape, {name: tensor.astype(np.float64) for name, tensor in tensors.items()})
        wanted = (shape.vocab_size, shape.hidden_size)
        found = oracle.weights.get("model.embed_tokens.weight")
        if found is None or found.shape != wanted:
            raise UsageError(f"{folder} has no model.embed_tokens.weight of shape {wanted}; config and weights differ")
        return oracle

    def early_exit(self, num_layers: int) -> Oracle:
        """The same checkpoint cut off after num_layers layers: final norm and head follow at once."""
        if not 1 <= num_layers <= self.shape.num_layers:
            raise UsageError(f"early exit after layer {num_layers} of {self.shape.num_layers}; give 1 to the number")
        return Oracle(replace(self.shape, num_layers=num_layers), self.weights)

    def logits(
        self, token_ids: ArrayLike, *, positions: ArrayLike | None = None, mask: ArrayLike | None = None
    ) -> Array:
        """Logits after every token: [..., n] token ids to [..., n, vocab].

        positions: [..., n], by default 0 to n - 1. mask: [..., n, n], true where the query (row) sees the key
        (column); by default causal. Every planted cache fault is some choice of tokens, positions and mask.
        """
        return self._forward(token_ids, positions, mask)[0]

    def kv_rows(self, token_ids: ArrayLike) -> Array:
        """KV cache after a prefill of [n] tokens, keys rotated: [layers, 2, n, kv_heads, head_dim]."""
        return np.stack([np.stack(layer).swapaxes(1, 2) for layer in self._forward(token_ids, None, None)[1]])

    def batch_logits(self, sequences: Sequence[Sequence[int]]) -> list[Array]:
        """Logits after every token of every sequence: one [n, vocab] each, lengths may differ."""
        order = sorted(range(len(sequences)), key=lambda index: len(sequences[index]))
        results: list[Array] = [np.zeros((0, self.shape.vocab_size))] * len(sequences)
        start = 0
        while start < len(order):
            stop = start + 1
            while stop < len(order) and (stop + 1 - start) * len(sequences[order[stop]]) <= _ROWS_PER_FORWARD:
                stop += 1
            members = order[start:stop]
            # Padding on the right is harmless: no token sees what comes after it.
            padded = np.zeros((len(members), len(sequences[members[-1]])), dtype=np.int64)
            for row, index in enumerate(members):
                padded[row, : len(sequences[index])] = sequences[index]
            if padded.size:
                for index, logits in zip(members, self.logits(padded), strict=True):
                    results[index] = logits[: len(sequences[index])]
            start = stop
        return results

    def conditional(self, prompt_token_ids: Sequence[int], sampling: SamplingParams = _PLAIN) -> OracleConditional:
        """The law of the next token after prompt and any prefix of new tokens, under these sampling parameters."""
        return OracleConditional(self, tuple(int(token) for token in prompt_token_ids), sampling)

    def _forward(
        self, token_ids: ArrayLike, positions: ArrayLike | None, mask: ArrayLike | None
    ) -> tuple[Array, list[tuple[Array, Array]]]:
        tokens = np.asarray(token_ids, dtype=np.int64)
        num_tokens = tokens.shape[-1]
        if num_tokens == 0 or tokens.min() < 0 or tokens.max() >= self.shape.vocab_size:
            raise UsageError(f"give at least one token id, each in 0..{self.shape.vocab_size - 1}; got {tokens}")
        places = np.arange(num_tokens) if positions is None else np.asarray(positions)
        seen = np.tri(num_tokens, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
        rotation = self._rotation(places)

        hidden = self._embedding[tokens]  # [..., n, hidden]
        cache = []
        for layer in range(self.shape.num_layers):
            attended, keys, values = self._attention(layer, hidden, rotation, seen)
            hidden = hidden + attended
            hidden = hidden + self._feed_forward(layer, hidden)
            cache.append((keys, values))
        logits: Array = self._norm(hidden, "model.norm.weight") @ self._head.T
        return logits, cache

    def _attention(
        self, layer: int, hidden: Array, rotation: tuple[Array, Array], seen: NDArray[np.bool_]
    ) -> tuple[Array, Array, Array]:
        prefix = f"model.layers.{layer}."
        normed = self._norm(hidden, prefix + "input_layernorm.weight")
        queries, keys, values = (
            self._heads(normed @ self.weights[f"{prefix}self_attn.{name}_proj.weight"].T) for name in "qkv"
        )
        queries, keys = _rotate(queries, rotation), _rotate(keys, rotation)
        group = self.shape.num_heads // self.shape.num_kv_heads
        all_keys, all_values = keys.repeat(group, axis=-3), values.repeat(group, axis=-3)
        scores = queries @ all_keys.swapaxes(-1, -2) / np.sqrt(self.shape.head_dim)  # [..., heads, query, key]
        scores = np.where(seen[..., None, :, :], scores, -np.inf)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        mixed = (shares @ all_values).swapaxes(-2, -3)  # [..., n, heads, head_dim]
        merged = mixed.reshape(*mixed.shape[:-2], self.shape.num_heads * self.shape.head_dim)
        return merged @ self.weights[prefix + "self_attn.o_proj.weight"].T, keys, values

    def _feed_forward(self, layer: int, hidden: Array) -> Array:
        prefix = f"model.layers.{layer}."
        normed = self._norm(hidden, prefix + "post_attention_layernorm.weight")
        gate = normed @ self.weights[prefix + "mlp.gate_proj.weight"].T
        up = normed @ self.weights[prefix + "mlp.up_proj.weight"].T
        result: Array = (gate / (1.0 + np.exp(-gate)) * up) @ self.weights[prefix + "mlp.down_proj.weight"].T
        return result

    def _heads(self, projected: Array) -> Array:
        """[..., n, heads * head_dim] to [..., heads, n, head_dim]."""
        return projected.reshape(*projected.shape[:-1], -1, self.shape.head_dim).swapaxes(-2, -3)

    def _norm(self, hidden: Array, name: str) -> Array:
        mean_square = np.mean(hidden * hidden, axis=-1, keepdims=True)
        result: Array = hidden / np.sqrt(mean_square + self.shape.rms_norm_eps) * self.weights[name]
        return result

    def _rotation(self, positions: NDArray[Any]) -> tuple[Array, Array]:
        """Cosines and sines, [..., 1, n, head_dim / 2]: the same for all heads."""
        exponents = np.arange(0, self.shape.head_dim, 2) / self.shape.head_dim
        angles = positions[..., None] * self.shape.rope_theta**-exponents
        return np.cos(angles)[..., None, :, :], np.sin(angles)[..., None, :, :]

    @cached_property
    def _embedding(self) -> Array:
        return self.weights["model.embed_tokens.weight"]

    @cached_property
    def _head(self) -> Array:
        return self.weights.get("lm_head.weight", self._embedding)


class OracleConditional:
    """Prefix of new tokens to the exact law of the next one; every law computed once."""

    def __init__(self, oracle: Oracle, prompt_token_ids: tuple[int, ...], sampling: SamplingParams) -> None:
        if not prompt_token_ids:
            raise UsageError("the prompt is empty; a conditional law needs at least one prompt token id")
        self.oracle = oracle
        self.prompt_token_ids = prompt_token_ids
        self.sampling = sampling
        self._laws: dict[tuple[int, ...], Array] = {}

    def __call__(self, prefix: tuple[int, ...]) -> Array:
        """Law [vocab] of the token after prompt and prefix."""
        if prefix not in self._laws:
            logits = self.oracle.logits(self.prompt_token_ids + prefix)[len(self.prompt_token_ids) - 1 :]
            laws = laws_along(logits, self.sampling, self.prompt_token_ids, prefix)
            for length, law in enumerate(laws):
                self._laws.setdefault(prefix[:length], law)
        return self._laws[prefix]


def _rotate(heads: Array, rotation: tuple[Array, Array]) -> Array:
    """Rotary embedding in the Hugging Face layout: entry i pairs with entry i + head_dim / 2."""
    cosines, sines = rotation
    half = heads.shape[-1] // 2
    first, second = heads[..., :half], heads[..., half:]
    return np.concatenate([first * cosines - second * sines, second * cosines + first * sines], axis=-1)
