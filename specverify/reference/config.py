"""Shape of a Llama-family decoder, read from a Hugging Face config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specverify.core.errors import UsageError

MODEL_TYPES = ("llama", "mistral", "qwen2")
ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn")


@dataclass(frozen=True)
class RopeConfig:
    """Rotary positions: the base and how it is stretched. Which of the other fields count depends on the type."""

    rope_type: str = "default"
    theta: float = 10000.0
    factor: float = 1.0
    original_max_positions: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the decoder. num_kv_heads below num_heads is grouped-query attention."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    rope: RopeConfig = RopeConfig()
    eos_token_ids: tuple[int, ...] = ()


def read_config(fields: Mapping[str, Any]) -> ModelConfig:
    """The shape that a config.json describes, in the spelling of transformers 4 or 5.

    Raises UsageError for a model type, activation, sliding window or rope type that this decoder does not compute.
    """
    model_type = fields.get("model_type")
    if model_type not in MODEL_TYPES:
        raise UsageError(f"the checkpoint has model_type {model_type!r}; the decoder computes {', '.join(MODEL_TYPES)}")
    if fields.get("hidden_act", "silu") != "silu":
        raise UsageError(f"the checkpoint has hidden_act {fields['hidden_act']!r}; the decoder computes 'silu' only")
    has_window = fields.get("sliding_window") is not None and fields.get("use_sliding_window", True)
    if model_type != "llama" and has_window:
        raise UsageError("the checkpoint has a sliding window; the decoder attends to everything: use one without")
    missing = [name for name in _REQUIRED if name not in fields]
    if missing:
        raise UsageError(f"config.json lacks {', '.join(missing)}; a {model_type} checkpoint states them")
    num_heads = int(fields["num_attention_heads"])
    eos = fields.get("eos_token_id")
    return ModelConfig(
        vocab_size=int(fields["vocab_size"]),
        hidden_size=int(fields["hidden_size"]),
        intermediate_size=int(fields["intermediate_size"]),
        num_layers=int(fields["num_hidden_layers"]),
        num_heads=num_heads,
        num_kv_heads=int(fields.get("num_key_value_heads") or num_heads),
        head_dim=int(fields.get("head_dim") or int(fields["hidden_size"]) // num_heads),
        max_positions=int(fields.get("max_position_embeddings", 2048)),
        rms_norm_eps=float(fields.get("rms_norm_eps", 1e-6)),
        tie_word_embeddings=bool(fields.get("tie_word_embeddings", False)),
        rope=_read_rope(fields),
        eos_token_ids=() if eos is None else tuple(eos) if isinstance(eos, list) else (int(eos),),
    )


_REQUIRED = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
)  # fmt: skip


def _read_rope(fields: Mapping[str, Any]) -> RopeConfig:
    # transformers 5 writes rope_parameters; transformers 4 wrote rope_theta and, if stretched, rope_scaling.
    stated: Mapping[str, Any] = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    rope_type = stated.get("rope_type") or stated.get("type") or "default"
    if rope_type not in ROPE_TYPES:
        raise UsageError(f"the checkpoint has rope type {rope_type!r}; the decoder computes {', '.join(ROPE_TYPES)}")
    if stated.get("partial_rotary_factor", fields.get("partial_rotary_factor", 1.0)) != 1.0:
        raise UsageError("the checkpoint rotates a part of each head only; the decoder rotates whole heads")
    max_positions = int(fields.get("max_position_embeddings", 2048))
    original = int(
        fields.get("original_max_position_embeddings")
        or stated.get("original_max_position_embeddings")
        or max_positions
    )
    factor = stated.get("factor")
    if factor is None:
        factor = max_positions / original if rope_type == "yarn" else 1.0
    return RopeConfig(
        rope_type=rope_type,
        theta=float(stated.get("rope_theta") or fields.get("rope_theta") or 10000.0),
        factor=float(factor),
        # The dynamic type stretches from max_position_embeddings on, whatever else the file states.
        original_max_positions=max_positions if rope_type == "dynamic" else original,
        low_freq_factor=float(stated.get("low_freq_factor") or 1.0),
        high_freq_factor=float(stated.get("high_freq_factor") or 4.0),
        attention_factor=stated.get("attention_factor"),
        beta_fast=float(stated.get("beta_fast") or 32.0),
        beta_slow=float(stated.get("beta_slow") or 1.0),
        mscale=stated.get("mscale"),
        mscale_all_dim=stated.get("mscale_all_dim"),
        truncate=bool(stated.get("truncate", True)),
    )
