"""The numbers of a Llama configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specverify.core.errors import UsageError


@dataclass(frozen=True)
class LlamaShape:
    """The numbers of a Llama config.json that its forward depends on."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float
    rms_norm_eps: float

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> LlamaShape:
        """Reads a Hugging Face config. Raises UsageError for anything but a plain Llama."""
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        kind = rope.get("rope_type", "default")
        if config.get("model_type") != "llama" or kind != "default" or config.get("hidden_act", "silu") != "silu":
            raise UsageError(
                f"the oracle got model_type {config.get('model_type')!r} with rope_type {kind!r}; "
                "it computes model_type 'llama' with rope_type 'default' and hidden_act 'silu' only"
            )
        heads = int(config["num_attention_heads"])
        return cls(
            vocab_size=int(config["vocab_size"]),
            hidden_size=int(config["hidden_size"]),
            intermediate_size=int(config["intermediate_size"]),
            num_layers=int(config["num_hidden_layers"]),
            num_heads=heads,
            num_kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
            rope_theta=float(config.get("rope_theta") or rope.get("rope_theta") or 10000.0),
            rms_norm_eps=float(config["rms_norm_eps"]),
        )
