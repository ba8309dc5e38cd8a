"""The engine's own forward pass over whole texts, with gradients: what is trained is what will run."""

from __future__ import annotations

import torch
from torch import Tensor

from specverify.reference.kv_cache import KVCache
from specverify.reference.model import Model


class SequenceCache(KVCache):
    """Keeps the rows of every pass as they were computed, one block behind the other, so that gradients flow."""

    def __init__(self) -> None:
        self.blocks: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def write(self, layer: int, slots: Tensor, *, keys: Tensor, values: Tensor) -> None:
        self.blocks.setdefault(layer, []).append((keys.transpose(1, 2), values.transpose(1, 2)))

    def read(self, layer: int, num_slots: int) -> tuple[Tensor, Tensor]:
        keys, values = zip(*self.blocks[layer], strict=True)
        return torch.cat(keys, dim=2), torch.cat(values, dim=2)


def causal_mask(length: int, num_blocks: int = 1, *, like: Tensor) -> Tensor:
    """0 where a token may see a row and -inf where not, [1, length, num_blocks * length].

    Of the first block every token sees its own row and those before; of later blocks its own row alone. The later
    blocks are what a head drafts from its own output: draft token i of one place never sees that of another place.
    """
    first = torch.ones(length, length, dtype=torch.bool, device=like.device).tril()
    own = torch.eye(length, dtype=torch.bool, device=like.device)
    is_seen = torch.cat([first, *[own] * (num_blocks - 1)], dim=1)
    return torch.zeros(is_seen.shape, dtype=like.dtype, device=like.device).masked_fill_(~is_seen, -torch.inf)[None]


def run(
    model: Model,
    token_ids: Tensor,
    *,
    inputs: Tensor | None = None,
    cache: SequenceCache | None = None,
    first_position: int = 0,
    tapped: dict[int, Tensor] | None = None,
) -> Tensor:
    """Hidden states [rows, length, hidden] of whole texts [rows, length], all from first_position on.

    inputs: what the first layer reads instead of the embeddings, [rows, length, hidden]. cache: blocks of passes
    over the same places; this pass adds one. tapped: as in Model.forward.
    """
    cache = SequenceCache() if cache is None else cache
    length, device = token_ids.shape[1], token_ids.device
    positions = first_position + torch.arange(length, device=device)[None]
    mask = causal_mask(length, 1 + len(cache.blocks.get(0, ())), like=model.weights.final_norm)
    return model.forward(
        token_ids,
        positions=positions,
        slots=positions,
        mask=mask,
        num_slots=mask.shape[-1],
        cache=cache,
        tapped=tapped,
        inputs=inputs,
    )
