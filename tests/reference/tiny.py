"""Tiny random decoders, made without any other package."""

from __future__ import annotations

import torch
from torch import Tensor

from specverify.reference.checkpoints import build_model
from specverify.reference.config import ModelConfig, RopeConfig
from specverify.reference.model import Model

MAX_POSITIONS = 128


def config(*, vocab_size: int = 16, num_layers: int = 2, **fields: object) -> ModelConfig:
    values: dict[str, object] = {
        "hidden_size": 24,
        "intermediate_size": 32,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "max_positions": MAX_POSITIONS,
        "rope": RopeConfig(original_max_positions=MAX_POSITIONS),
    }
    return ModelConfig(vocab_size=vocab_size, num_layers=num_layers, **{**values, **fields})  # type: ignore[arg-type]


def tensors(shape: ModelConfig, seed: int, *, logit_scale: float = 1.0) -> dict[str, Tensor]:
    """Random weights by their Hugging Face names, wide enough that attention matters."""
    generator = torch.Generator().manual_seed(seed)

    def random(rows: int, columns: int, scale: float) -> Tensor:
        return torch.randn(rows, columns, generator=generator, dtype=torch.float64) * scale

    hidden, inner = shape.hidden_size, shape.intermediate_size
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    made = {
        "model.embed_tokens.weight": random(shape.vocab_size, hidden, 1.0),
        "model.norm.weight": torch.ones(hidden, dtype=torch.float64),
        "lm_head.weight": random(shape.vocab_size, hidden, 0.3 * logit_scale),
    }
    for index in range(shape.num_layers):
        prefix = f"model.layers.{index}."
        made |= {
            prefix + "input_layernorm.weight": torch.ones(hidden, dtype=torch.float64),
            prefix + "post_attention_layernorm.weight": torch.ones(hidden, dtype=torch.float64),
            prefix + "self_attn.q_proj.weight": random(queries, hidden, 0.4),
            prefix + "self_attn.k_proj.weight": random(keys, hidden, 0.4),
            prefix + "self_attn.v_proj.weight": random(keys, hidden, 0.4),
            prefix + "self_attn.o_proj.weight": random(hidden, queries, 0.4),
            prefix + "mlp.gate_proj.weight": random(inner, hidden, 0.3),
            prefix + "mlp.up_proj.weight": random(inner, hidden, 0.3),
            prefix + "mlp.down_proj.weight": random(hidden, inner, 0.3),
        }
    return made


def model(
    seed: int = 0,
    *,
    vocab_size: int = 16,
    num_layers: int = 2,
    dtype: torch.dtype = torch.float64,
    logit_scale: float = 1.0,
    device: str = "cpu",
) -> Model:
    shape = config(vocab_size=vocab_size, num_layers=num_layers)
    return build_model(shape, tensors(shape, seed, logit_scale=logit_scale), dtype=dtype, device=device)


def disturbed(seed: int, amount: float, **options: object) -> Model:
    """A draft for model(seed): the same weights with noise, so that it is often right and often wrong."""
    shape = config(**options)  # type: ignore[arg-type]
    ours, noise = tensors(shape, seed), tensors(shape, seed + 1000)
    return build_model(shape, {name: t + amount * noise[name] for name, t in ours.items()}, dtype=torch.float64)
