"""Weights as named tensors: made at random, made trainable, written as a Hugging Face checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor

from specverify.reference.config import ModelConfig
from specverify.reference.model import Layer, Model, Weights

Tree = TypeVar("Tree")
# Of embeddings, and of what a new block adds to the stream: little, so that it starts from what is there.
_SMALL = 0.05


def random_layer(config: ModelConfig, generator: torch.Generator) -> Layer:
    """One block without biases. What it reads keeps its size; what it writes to the stream is small at first."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, stacked = config.num_heads * config.head_dim, config.num_heads + 2 * config.num_kv_heads
    return Layer(
        attention_norm=torch.ones(hidden),
        query_key_value=random_matrix(stacked * config.head_dim, hidden, generator),
        query_key_value_bias=None,
        attention_out=random_matrix(hidden, queries, generator) * _SMALL,
        attention_out_bias=None,
        mlp_norm=torch.ones(hidden),
        gate_up=random_matrix(2 * inner, hidden, generator),
        gate_up_bias=None,
        down=random_matrix(hidden, inner, generator) * _SMALL,
        down_bias=None,
    )


def random_weights(config: ModelConfig, generator: torch.Generator) -> Weights:
    """All weights of an untrained decoder, head and embedding tied."""
    embedding = torch.randn(config.vocab_size, config.hidden_size, generator=generator) * _SMALL
    layers = tuple(random_layer(config, generator) for _ in range(config.num_layers))
    return Weights(embedding=embedding, layers=layers, final_norm=torch.ones(config.hidden_size), head=embedding)


def random_matrix(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Keeps the size of what it is multiplied with."""
    return torch.randn(rows, columns, generator=generator) / math.sqrt(columns)


def named_tensors(weights: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a tree of dataclasses and tuples, by its path: "layers.0.down". One that appears twice, once."""
    seen: set[int] = set()
    for name, tensor in _walk(weights, prefix):
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield name, tensor


def _walk(part: Any, prefix: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(part, Tensor):
        yield prefix, part
    elif isinstance(part, tuple):
        for index, child in enumerate(part):
            yield from _walk(child, f"{prefix}.{index}".lstrip("."))
    elif is_dataclass(part):
        for field in fields(part):
            yield from _walk(getattr(part, field.name), f"{prefix}.{field.name}".lstrip("."))


def with_tensors(weights: Tree, tensors: Mapping[str, Tensor], prefix: str = "") -> Tree:
    """The same tree with the tensors of these names; a tied tensor stays tied."""
    known = {id(tensor): name for name, tensor in named_tensors(weights, prefix)}

    def rebuilt(part: Any) -> Any:
        if isinstance(part, Tensor):
            return tensors[known[id(part)]]
        if isinstance(part, tuple):
            return tuple(rebuilt(child) for child in part)
        if is_dataclass(part) and not isinstance(part, type):
            return replace(part, **{field.name: rebuilt(getattr(part, field.name)) for field in fields(part)})
        return part

    made: Tree = rebuilt(weights)
    return made


def trainable(weights: Tree) -> Tree:
    """Copies that gradients are collected for."""
    return with_tensors(
        weights, {name: tensor.detach().clone().requires_grad_() for name, tensor in named_tensors(weights)}
    )


def rounded(weights: Tree, dtype: torch.dtype) -> Tree:
    """Detached copies with the values that a file of this dtype keeps."""
    return with_tensors(weights, {name: t.detach().to(dtype).to(t.dtype) for name, t in named_tensors(weights)})


def write_checkpoint(directory: Path, model: Model, *, tokenizer_file: Path | None, dtype: torch.dtype) -> None:
    """Writes a Llama checkpoint that any engine loads, with the tokenizer where there is one."""
    directory.mkdir(parents=True, exist_ok=True)
    stored = {name: tensor.detach().to(dtype).contiguous().clone() for name, tensor in hugging_face_names(model)}
    save_file(stored, directory / "model.safetensors", metadata={"format": "pt"})
    name = str(dtype).removeprefix("torch.")
    write_json(directory / "config.json", _config_fields(model.config, name) | {"attention_bias": has_biases(model)})
    if tokenizer_file is not None:
        (directory / "tokenizer.json").write_bytes(tokenizer_file.read_bytes())
        write_json(directory / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})


def hugging_face_names(model: Model) -> Iterator[tuple[str, Tensor]]:
    """The tensors as a Llama checkpoint names them; the head only where it is not the embedding."""
    config, weights = model.config, model.weights
    heads, kv_heads = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    yield "model.embed_tokens.weight", weights.embedding
    for index, layer in enumerate(weights.layers):
        prefix = f"model.layers.{index}."
        yield prefix + "input_layernorm.weight", layer.attention_norm
        yield prefix + "post_attention_layernorm.weight", layer.mlp_norm
        parts = torch.split(layer.query_key_value, [heads, kv_heads, kv_heads])
        for name, part in zip(("q_proj", "k_proj", "v_proj"), parts, strict=True):
            yield f"{prefix}self_attn.{name}.weight", part
        yield prefix + "self_attn.o_proj.weight", layer.attention_out
        if has_biases(model):
            bias = layer.query_key_value_bias
            parts = torch.split(
                torch.zeros(heads + 2 * kv_heads) if bias is None else bias, [heads, kv_heads, kv_heads]
            )
            for name, part in zip(("q_proj", "k_proj", "v_proj"), parts, strict=True):
                yield f"{prefix}self_attn.{name}.bias", part
            out = layer.attention_out_bias
            yield prefix + "self_attn.o_proj.bias", torch.zeros(config.hidden_size) if out is None else out
        for name, part in zip(("gate_proj", "up_proj"), layer.gate_up.chunk(2), strict=True):
            yield f"{prefix}mlp.{name}.weight", part
        yield prefix + "mlp.down_proj.weight", layer.down
    yield "model.norm.weight", weights.final_norm
    if not config.tie_word_embeddings:
        yield "lm_head.weight", weights.head


def has_biases(model: Model) -> bool:
    """Whether any attention of the model has a bias: then a checkpoint holds one for all, most of them zero."""
    return any(layer.query_key_value_bias is not None for layer in model.weights.layers)


def _config_fields(config: ModelConfig, dtype: str) -> dict[str, Any]:
    eos = list(config.eos_token_ids)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "bos_token_id": None,
        "eos_token_id": eos[0] if len(eos) == 1 else eos or None,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_positions,
        "mlp_bias": False,
        "num_attention_heads": config.num_heads,
        "num_hidden_layers": config.num_layers,
        "num_key_value_heads": config.num_kv_heads,
        "rms_norm_eps": config.rms_norm_eps,
        # Both spellings: transformers 5 reads rope_parameters, most other engines the top-level rope_theta.
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope.theta},
        "rope_theta": config.rope.theta,
        "tie_word_embeddings": config.tie_word_embeddings,
        "torch_dtype": dtype,
        "vocab_size": config.vocab_size,
    }


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
