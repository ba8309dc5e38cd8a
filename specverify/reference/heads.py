"""Heads that draft from a target's hidden states: EAGLE's decoder layer and Medusa's blocks. Weights and no state.

Both read the target's own embedding and head, so what is stored beside a target is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import linear, pad, silu

from specverify.reference.cached_model import CachedModel
from specverify.reference.model import Layer, Model, Weights
from specverify.reference.weights import Tree, named_tensors, random_layer, random_matrix, with_tensors

# How much the random parts of an untrained head weigh against what it takes over from the target.
_UNTRAINED = 0.3


@dataclass(frozen=True)
class EagleWeights:
    """fuse: None where the feature is the target's last hidden state."""

    fuse: Tensor | None  # [hidden, taps * hidden]
    token_norm: Tensor  # [hidden]
    feature_norm: Tensor  # [hidden]
    join: Tensor  # [hidden, 2 * hidden]
    layer: Layer
    final_norm: Tensor  # [hidden]


class EagleHead(Model):
    """A decoder of one layer that reads each token beside the target's feature of the token before it.

    Row j of its cache is that of token j of the text, as in any draft model; token 0 has no feature, so it reads zeros.
    What it computes behind a token is also the feature of the next one: that is how it drafts more than one token.

    taps: the target's streams that are fused into a feature; none: the target's last hidden state is the feature.

    Sources: Li et al. 2024, EAGLE, arXiv 2401.15077, section 4.1; fused: EAGLE-3, arXiv 2503.01840, section 3.1.
    """

    def __init__(self, target: Model, own: EagleWeights, taps: Sequence[int]) -> None:
        weights = Weights(target.weights.embedding, (own.layer,), own.final_norm, target.weights.head)
        super().__init__(replace(target.config, num_layers=1, intermediate_size=own.layer.down.shape[1]), weights)
        self.target = target
        self.own = own
        self.taps = tuple(taps)

    def embed(self, token_ids: Tensor) -> Tensor:
        return self.target.embed(token_ids)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.target.logits(hidden)

    def features(self, hidden: Tensor, taps: Tensor | None) -> Tensor:
        """Features [..., hidden] of what the target computed: hidden [..., hidden], taps [..., taps, hidden]."""
        if self.own.fuse is None or taps is None:
            return hidden
        return linear(taps.flatten(-2), self.own.fuse)

    def inputs(self, token_ids: Tensor, features: Tensor) -> Tensor:
        """What the layer reads, [..., hidden]; features: those of the tokens before token_ids."""
        token = self.norm(self.embed(token_ids), self.own.token_norm)
        return linear(torch.cat([token, self.norm(features, self.own.feature_norm)], dim=-1), self.own.join)

    def prefill_rows(self, token_ids: Sequence[int]) -> Tensor:
        """Its KV rows for a text, [1, 2, tokens, kv_heads, head_dim]: what its cache must hold after any step."""
        tokens = torch.tensor([list(token_ids)], device=self.device)
        num_new = [len(token_ids)]
        read = CachedModel(self.target, num_rows=1, capacity=len(token_ids), taps=self.taps)
        hidden = read.compute(tokens, first_positions=[0], num_new=num_new)
        features = pad(self.features(hidden, read.last_taps)[:, :-1], (0, 0, 1, 0))
        own = CachedModel(self, num_rows=1, capacity=len(token_ids))
        own.compute(tokens, first_positions=[0], num_new=num_new, inputs=self.inputs(tokens, features))
        return own.cache.rows(0)


@dataclass(frozen=True)
class MedusaWeights:
    """One residual block per head."""

    up: Tensor  # [heads, inner, hidden]
    bias: Tensor  # [heads, inner]
    down: Tensor  # [heads, hidden, inner]


class MedusaHeads:
    """Head i guesses the token i + 2 places behind the one whose hidden state it reads, from that state alone.

    The paper's heads have a block of one matrix, and a matrix to the vocabulary each. These share the target's, which
    keeps them small; so their block has a second matrix, which can take away what the state says of the next token.

    Source: Cai et al. 2024, Medusa, arXiv 2401.10774, section 2.1.1.
    """

    def __init__(self, target: Model, own: MedusaWeights) -> None:
        self.target = target
        self.own = own

    @property
    def num_heads(self) -> int:
        return self.own.up.shape[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., heads, vocab] for the target's last hidden states [..., hidden]."""
        inner = silu(torch.einsum("...i,hoi->...ho", hidden, self.own.up) + self.own.bias)
        moved = torch.einsum("...hi,hoi->...ho", inner, self.own.down)
        return self.target.logits(hidden[..., None, :] + moved)


def standard_taps(num_layers: int) -> tuple[int, ...]:
    """An early, a middle and the last stream, as in EAGLE-3; what there is of them in a shallow target."""
    return tuple(sorted({min(2, num_layers // 2), num_layers // 2, num_layers}))


def untrained_eagle(
    target: Model, *, seed: int = 0, taps: Sequence[int] | None = None, intermediate_size: int | None = None
) -> EagleHead:
    """A head to train, or to be wrong with: random weights, around the law that the target had one token before.

    So its logits are of the target's size from the start.
    """
    generator = torch.Generator().manual_seed(seed)
    config, hidden = target.config, target.config.hidden_size
    shape = replace(config, num_layers=1, intermediate_size=intermediate_size or config.intermediate_size)
    taps = standard_taps(config.num_layers) if taps is None else tuple(taps)
    fuse = random_matrix(hidden, len(taps) * hidden, generator) * _UNTRAINED if taps else torch.zeros(hidden, hidden)
    fuse[:, -hidden:] += torch.eye(hidden)
    token = random_matrix(hidden, hidden, generator) * _UNTRAINED
    own = EagleWeights(
        fuse=fuse if taps else None,
        token_norm=torch.ones(hidden),
        feature_norm=torch.ones(hidden),
        join=torch.cat([token, torch.eye(hidden)], dim=1),
        layer=random_layer(shape, generator),
        final_norm=target.weights.final_norm.detach().cpu().float().clone(),
    )
    return EagleHead(target, as_target(own, target), taps)


def untrained_medusa(target: Model, *, seed: int = 0, num_heads: int = 4) -> MedusaHeads:
    """Heads with random weights: to train, or to be wrong with."""
    generator = torch.Generator().manual_seed(seed)
    hidden = target.config.hidden_size
    inner = 2 * hidden
    own = MedusaWeights(
        up=torch.stack([random_matrix(inner, hidden, generator) for _ in range(num_heads)]),
        bias=torch.zeros(num_heads, inner),
        down=torch.stack([random_matrix(hidden, inner, generator) * _UNTRAINED for _ in range(num_heads)]),
    )
    return MedusaHeads(target, as_target(own, target))


def as_target(weights: Tree, target: Model) -> Tree:
    """The weights in the target's type, on its device."""
    return with_tensors(
        weights, {name: tensor.to(target.device, target.dtype) for name, tensor in named_tensors(weights)}
    )
