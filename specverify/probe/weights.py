"""The seeded weights of a probe pair: constructed, not merely drawn, so that no fault can hide in them.

Everything is made from raw PCG64 output with exact arithmetic, so that a seed gives the same bytes everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

VOCAB_SIZE = 32
PAD, BOS, EOS, UNK = range(4)
FIRST_WORD = 4
HIDDEN_SIZE = 128
INTERMEDIATE_SIZE = 256
NUM_HEADS = 2
NUM_KV_HEADS = 1
HEAD_DIM = 64  # the smallest that paged attention kernels commonly take
ROPE_THETA = 10000.0
RMS_NORM_EPS = 1e-5
# About the root mean square of the last hidden state, so that what the head reads from it is in nats.
CONSTANT_CHANNEL = 3.0
TARGET_LAYERS = 2
DRAFT_LAYERS = 1


# How loud each part of a probe model is, chosen by measuring: see specverify.probe.sensitivity.
EMBEDDING = 0.6  # the current token itself
SUCCESSOR = 1.5  # what the head adds for the word that follows most often, so that word pairs repeat for prompt lookup
ATTENTION, FEED_FORWARD = (3.0, 0.9), (1.4, 1.1)  # what each layer adds, per unit of normalised input
SHARPNESS = 1.45  # spread of the attention scores; high means few rows matter much, low means all matter little
NUM_FREQUENCIES = 3  # rotary pairs that carry the scores; few and fast ones make positions matter
LOGITS = 1.7  # spread of the logits
DRAFT_NOISE = 0.06  # how far the draft's weights are from the target's first layer
SPECIAL_BIAS, EOS_BIAS = -1.5, 1.5  # added to the logits of the special tokens, in nats


class _Noise:
    """Independent entries of mean 0 and variance 1, uniform, from raw bits (a stream that numpy never changes)."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def __call__(self, *shape: int) -> Array:
        raw = self._bits.random_raw(int(np.prod(shape)))
        unit = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
        result: Array = ((unit - 0.5) * np.sqrt(12.0)).reshape(shape)
        return result


def build_weights(seed: int) -> tuple[dict[str, Array], dict[str, Array]]:
    """Target and draft tensors by their Hugging Face names, float64 values that are exact in float32."""
    noise = _Noise(seed)
    noise(VOCAB_SIZE - FIRST_WORD)  # the bits that word_cycle uses
    target = _outer_weights(seed, noise) | _layer_weights(noise, layer=0) | _layer_weights(noise, layer=1)
    draft = {name: tensor for name, tensor in target.items() if ".layers.1." not in name}
    draft = {name: _disturbed(tensor, DRAFT_NOISE, noise) for name, tensor in draft.items()}
    return _as_float32(target), _as_float32(draft)


def word_cycle(seed: int) -> NDArray[np.int64]:
    """All words in the order of one long cycle: each is followed most often by the next, the last by the first."""
    return FIRST_WORD + _Noise(seed)(VOCAB_SIZE - FIRST_WORD).argsort()


def _outer_weights(seed: int, noise: _Noise) -> dict[str, Array]:
    embedding = EMBEDDING * noise(VOCAB_SIZE, HIDDEN_SIZE)
    # Channel 0 is the same for every token and no layer writes to it: it carries the constant bias.
    embedding[:, 0] = CONSTANT_CHANNEL
    head = LOGITS / np.sqrt(HIDDEN_SIZE) * noise(VOCAB_SIZE, HIDDEN_SIZE)
    cycle = word_cycle(seed)
    head[np.roll(cycle, -1)] += SUCCESSOR / np.sqrt(HIDDEN_SIZE) * (embedding[cycle] / EMBEDDING)
    # Special tokens are possible everywhere and likely nowhere.
    head[:FIRST_WORD] *= 0.5
    head[:, 0] = 0.0
    head[[PAD, BOS, UNK], 0] = SPECIAL_BIAS
    head[EOS, 0] = EOS_BIAS
    return {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": _norm_weight(noise, constant_channel=1.0),
        "lm_head.weight": head,
    }


def _layer_weights(noise: _Noise, *, layer: int) -> dict[str, Array]:
    attention, feed_forward = ATTENTION[layer], FEED_FORWARD[layer]
    fan_in = 1.0 / np.sqrt(HIDDEN_SIZE)
    # Scores use only the fastest rotary pairs, entries i and i + head_dim / 2 for small i.
    carries = np.arange(HEAD_DIM) % (HEAD_DIM // 2) < NUM_FREQUENCIES
    # Variance of a score is 2 * NUM_FREQUENCIES * (query scale * key scale)^2 / head_dim.
    scale = np.sqrt(SHARPNESS / np.sqrt(2 * NUM_FREQUENCIES / HEAD_DIM))
    scores = scale * fan_in * carries[:, None]
    tensors = {
        "input_layernorm.weight": _norm_weight(noise, constant_channel=0.0),
        "self_attn.q_proj.weight": np.tile(scores, (NUM_HEADS, 1)) * noise(NUM_HEADS * HEAD_DIM, HIDDEN_SIZE),
        "self_attn.k_proj.weight": np.tile(scores, (NUM_KV_HEADS, 1)) * noise(NUM_KV_HEADS * HEAD_DIM, HIDDEN_SIZE),
        "self_attn.v_proj.weight": fan_in * noise(NUM_KV_HEADS * HEAD_DIM, HIDDEN_SIZE),
        "self_attn.o_proj.weight": attention / np.sqrt(NUM_HEADS * HEAD_DIM) * noise(HIDDEN_SIZE, NUM_HEADS * HEAD_DIM),
        "post_attention_layernorm.weight": _norm_weight(noise, constant_channel=0.0),
        "mlp.gate_proj.weight": fan_in * noise(INTERMEDIATE_SIZE, HIDDEN_SIZE),
        "mlp.up_proj.weight": fan_in * noise(INTERMEDIATE_SIZE, HIDDEN_SIZE),
        "mlp.down_proj.weight": feed_forward * 2.0 / np.sqrt(INTERMEDIATE_SIZE) * noise(HIDDEN_SIZE, INTERMEDIATE_SIZE),
    }
    for name in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
        tensors[name][0] = 0.0
    return {f"model.layers.{layer}.{name}": tensor for name, tensor in tensors.items()}


def _norm_weight(noise: _Noise, *, constant_channel: float) -> Array:
    """Near one but not one, so that an engine that forgets it is seen. Layers don't look at the constant channel."""
    weight = 1.0 + 0.2 * noise(HIDDEN_SIZE)
    weight[0] = constant_channel
    return weight


def _disturbed(tensor: Array, amount: float, noise: _Noise) -> Array:
    """The tensor with relative noise on every entry that is not zero; norms and channel 0 stay as they are."""
    if tensor.ndim == 1:
        return tensor
    changed: Array = tensor * np.sqrt(1.0 - amount**2) + amount * np.abs(tensor) * noise(*tensor.shape)
    if tensor.shape == (VOCAB_SIZE, HIDDEN_SIZE):
        changed[:, 0] = tensor[:, 0]
    return changed


def _as_float32(tensors: Mapping[str, Array]) -> dict[str, Array]:
    return {name: tensor.astype(np.float32).astype(np.float64) for name, tensor in tensors.items()}
