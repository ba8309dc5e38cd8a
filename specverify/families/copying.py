"""Weights that can copy before they have read any text: what followed a token earlier is likely to follow it again.

Decoders learn this by themselves, but it takes them more text than a family that is made in minutes can read. So a
rough circuit is there from the start, in two heads, and a minute of noise that repeats itself makes it exact. In layer
0 a head looks at the token before; in layer 1 a head looks for a place whose token before is the current token, and
repeats what stands there.

Source: Olsson et al. 2022, "In-context learning and induction heads", arXiv 2209.11895.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from specverify.core.randomness import Streams
from specverify.reference.config import ModelConfig
from specverify.reference.model import Layer, Model, Weights
from specverify.reference.rope import frequencies
from specverify.reference.training.forward import run
from specverify.reference.training.loop import Figures, Settings
from specverify.reference.training.losses import Loss

_LOOK_BACK, _MATCH = 5.0, 4.0  # how sharply the two heads look
_NOTE, _REPEAT = 0.05, 0.2  # what they add to the stream; an embedding's parts are about 0.05


def with_copying(weights: Weights, config: ModelConfig, generator: torch.Generator) -> Weights:
    """The weights with the circuit in the first head of layer 0 and of layer 1; needs at least two layers.

    The first head looks at positions alone, so its queries and keys are biases.
    """
    size = config.head_dim
    # What the first head notes of a token, where it writes that, and what the second one repeats.
    note, place, repeat = (orthonormal(size, config.hidden_size, generator) for _ in range(3))
    turn = frequencies(config.rope, size).float()
    nothing = torch.zeros(size, config.hidden_size)
    first = _with_head(weights.layers[0], config, nothing, nothing, note, _NOTE * place)
    bias = torch.zeros(first.query_key_value.shape[0])
    bias[:size] = _LOOK_BACK * torch.cat([turn.cos(), -turn.sin()])
    first_key = config.num_heads * size
    bias[first_key : first_key + size // 2] = _LOOK_BACK
    # Fast turning pairs would make the match depend on the distance.
    is_slow = (turn < 0.02).repeat(2)[:, None]
    second = _with_head(
        weights.layers[1], config, _MATCH * note * is_slow, _MATCH * place * is_slow, repeat, _REPEAT * repeat
    )
    layers = (replace(first, query_key_value_bias=bias), second, *weights.layers[2:])
    return replace(weights, layers=layers)


def _with_head(layer: Layer, config: ModelConfig, query: Tensor, key: Tensor, value: Tensor, out: Tensor) -> Layer:
    """The layer with these matrices [head_dim, hidden] in its first KV head, and in the first of its query heads."""
    size = config.head_dim
    stacked, written = layer.query_key_value.clone(), layer.attention_out.clone()
    first_key = config.num_heads * size
    first_value = first_key + config.num_kv_heads * size
    stacked[:size], stacked[first_key : first_key + size] = query, key
    stacked[first_value : first_value + size] = value
    written[:, :size] = out.T
    return replace(layer, query_key_value=stacked, attention_out=written)


def orthonormal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Random rows of length 1, at right angles to each other."""
    rotated: Tensor = torch.linalg.qr(torch.randn(columns, rows, generator=generator)).Q.T
    return rotated


@dataclass(frozen=True)
class Noise:
    """Batches of random tokens that repeat after a while; all rows of a batch after the same number of tokens."""

    vocab_size: int
    settings: Settings

    def batch(self, step: int) -> Tensor:
        """[rows, length] token ids."""
        rows, length = self.settings.num_rows, self.settings.length
        generator = torch.Generator().manual_seed(Streams(self.settings.seed).integer("noise", step))
        period = int(torch.randint(length // 12, length // 2, (), generator=generator))
        once = torch.randint(self.vocab_size, (rows, period), generator=generator)
        return once.repeat(1, 1 + length // period)[:, :length]


def copying_loss(model: Model) -> Loss:
    """Entropy of the next token where it is a repetition; what is new in noise cannot be known."""

    def loss(token_ids: Tensor) -> tuple[Tensor, Figures]:
        period = period_of(token_ids)
        logits = model.logits(run(model, token_ids[:, :-1])[:, period:])
        return cross_entropy(logits.flatten(0, 1), token_ids[:, period + 1 :].flatten()), {}

    return loss


def period_of(token_ids: Tensor) -> int:
    """After how many tokens all rows repeat."""
    length = token_ids.shape[1]
    return next(n for n in range(1, length + 1) if torch.equal(token_ids[:, n:], token_ids[:, : length - n]))
