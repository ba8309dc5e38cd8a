"""Reads a llama-architecture GGUF file into the tensors of the Hugging Face checkpoint it was made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specverify.core.errors import UsageError
from specverify.reference.config import ModelConfig, RopeConfig

_OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def read_gguf(path: Path) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Config and float32 tensors of a GGUF file; quantised blocks are expanded.

    Raises UsageError where the gguf package or the file is missing, and for other architectures.
    """
    try:
        import gguf
    except ImportError:
        raise UsageError(f"reading {path.name} takes the gguf package; pip install 'specverify[gguf]'") from None
    if not path.is_file():
        raise UsageError(f"{path} is not there; give the path of a .gguf file")
    try:
        reader = gguf.GGUFReader(path)
    except ValueError as error:
        raise UsageError(f"{path} cannot be read as GGUF ({error}); download it again") from error

    tensors = {}
    for stored in reader.tensors:
        # The reader lists dimensions in the file's order; the array itself is [outputs, inputs].
        values = torch.from_numpy(gguf.dequantize(stored.data, stored.tensor_type).copy())
        tensors[_name(stored.name)] = values.to(torch.float32)
    if "model.embed_tokens.weight" not in tensors:
        raise UsageError(f"{path} has no token_embd.weight; it holds no language model")
    vocab_size = len(tensors["model.embed_tokens.weight"])
    config = _config(reader, vocab_size, is_tied="lm_head.weight" not in tensors)
    for name, tensor in tensors.items():
        if name.endswith("q_proj.weight"):
            tensors[name] = _unpermute(tensor, config.num_heads)
        elif name.endswith("k_proj.weight"):
            tensors[name] = _unpermute(tensor, config.num_kv_heads)
    return config, tensors


def _unpermute(weight: Tensor, num_heads: int) -> Tensor:
    """Rows of each head from interleaved pairs (GGUF) to two halves (Hugging Face).

    Source: LlamaModel.permute in llama.cpp's convert_hf_to_gguf.py, inverted.
    """
    num_outputs, num_inputs = weight.shape
    pairs = weight.view(num_heads, num_outputs // num_heads // 2, 2, num_inputs)
    return pairs.transpose(1, 2).reshape(num_outputs, num_inputs)


def _name(name: str) -> str:
    if name in _OUTER_NAMES:
        return _OUTER_NAMES[name]
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in _LAYER_NAMES:
        return f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.{parts[3]}"
    raise UsageError(f"the GGUF file has a tensor {name!r} that a plain Llama decoder does not use")


def _config(reader: Any, vocab_size: int, *, is_tied: bool) -> ModelConfig:
    def field(name: str, default: Any = None) -> Any:
        found = reader.get_field(name)
        if found is not None:
            return found.contents()
        if default is None:
            raise UsageError(f"the GGUF file does not state {name!r}; a llama file does")
        return default

    architecture = field("general.architecture")
    if architecture != "llama":
        raise UsageError(f"the GGUF file has architecture {architecture!r}; the decoder computes 'llama'")
    scaling = field("llama.rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise UsageError(f"the GGUF file has rope scaling {scaling!r}; none and linear are read from GGUF")
    num_heads = field("llama.attention.head_count")
    hidden_size = field("llama.embedding_length")
    head_dim = field("llama.attention.key_length", hidden_size // num_heads)
    if field("llama.rope.dimension_count", head_dim) != head_dim:
        raise UsageError("the GGUF file rotates a part of each head only; the decoder rotates whole heads")
    context = field("llama.context_length")
    return ModelConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=field("llama.feed_forward_length"),
        num_layers=field("llama.block_count"),
        num_heads=num_heads,
        num_kv_heads=field("llama.attention.head_count_kv", num_heads),
        head_dim=head_dim,
        max_positions=context,
        rms_norm_eps=field("llama.attention.layer_norm_rms_epsilon"),
        tie_word_embeddings=is_tied,
        rope=RopeConfig(
            rope_type="default" if scaling == "none" else "linear",
            theta=field("llama.rope.freq_base", 10000.0),
            factor=field("llama.rope.scaling.factor", 1.0),
            original_max_positions=context,
        ),
        eos_token_ids=tuple(token for token in (field("tokenizer.ggml.eos_token_id", -1),) if token >= 0),
    )
