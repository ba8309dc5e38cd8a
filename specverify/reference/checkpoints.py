"""Loads Hugging Face checkpoint directories: config.json and safetensors, in one file or sharded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specverify.core.errors import UsageError
from specverify.reference.config import ModelConfig, read_config
from specverify.reference.model import Layer, Model, Weights

INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"


def load_model(
    directory: str | Path, *, dtype: torch.dtype = torch.float32, device: str | torch.device = "auto"
) -> Model:
    """The model of a checkpoint directory, or of a .gguf file.

    Raises UsageError where a file is missing or broken, a tensor is missing, unknown or misshapen, or the
    architecture is not one that the decoder computes.
    """
    path = Path(directory)
    if path.suffix == ".gguf":
        from specverify.reference.gguf import read_gguf

        config, tensors = read_gguf(path)
    else:
        config, tensors = read_config(_read_json(path / "config.json")), dict(_read_tensors(path))
    return build_model(config, tensors, dtype=dtype, device=device)


def choose_device(device: str | torch.device) -> torch.device:
    """The device by name; "auto" is the GPU where there is one and the CPU otherwise."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


def build_model(
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    *,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "auto",
) -> Model:
    """The model made of tensors by their Hugging Face names; raises UsageError unless exactly all of them are used."""
    device = choose_device(device)
    source = _TensorSource(tensors, dtype, device)
    hidden, heads, kv_heads = config.hidden_size, config.num_heads, config.num_kv_heads
    embedding = source.take("model.embed_tokens.weight", config.vocab_size, hidden)
    layers = []
    for index in range(config.num_layers):
        prefix = f"model.layers.{index}."
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        projections = {
            attention + "q_proj": heads * config.head_dim,
            attention + "k_proj": kv_heads * config.head_dim,
            attention + "v_proj": kv_heads * config.head_dim,
        }
        gates = {mlp + "gate_proj": config.intermediate_size, mlp + "up_proj": config.intermediate_size}
        layers.append(
            Layer(
                attention_norm=source.take(prefix + "input_layernorm.weight", hidden),
                query_key_value=source.stack(projections, hidden),
                query_key_value_bias=source.stack_bias(projections),
                attention_out=source.take(attention + "o_proj.weight", hidden, heads * config.head_dim),
                attention_out_bias=source.stack_bias({attention + "o_proj": hidden}),
                mlp_norm=source.take(prefix + "post_attention_layernorm.weight", hidden),
                gate_up=source.stack(gates, hidden),
                gate_up_bias=source.stack_bias(gates),
                down=source.take(mlp + "down_proj.weight", hidden, config.intermediate_size),
                down_bias=source.stack_bias({mlp + "down_proj": hidden}),
            )
        )
    final_norm = source.take("model.norm.weight", hidden)
    # A tied checkpoint may or may not store the head again; the embedding is what counts.
    head = embedding
    if config.tie_word_embeddings:
        source.ignore("lm_head.weight")
    else:
        head = source.take("lm_head.weight", config.vocab_size, hidden)
    source.refuse_leftovers()
    return Model(config, Weights(embedding=embedding, layers=tuple(layers), final_norm=final_norm, head=head))


class _TensorSource:
    """Hands out tensors by name once, checks their shapes, and knows which were never asked for."""

    def __init__(self, tensors: Mapping[str, Tensor], dtype: torch.dtype, device: torch.device) -> None:
        # Old checkpoints store the rotary frequencies, which follow from the config.
        self._tensors = {name: t for name, t in tensors.items() if not name.endswith("rotary_emb.inv_freq")}
        self._dtype = dtype
        self._device = device

    def take(self, name: str, *shape: int) -> Tensor:
        if name not in self._tensors:
            raise UsageError(
                f"the checkpoint has no tensor {name!r}; it must hold every tensor that config.json implies"
            )
        tensor = self._tensors.pop(name)
        if tuple(tensor.shape) != shape:
            raise UsageError(f"tensor {name!r} has shape {tuple(tensor.shape)}; config.json implies {shape}")
        return tensor.to(device=self._device, dtype=self._dtype)

    def stack(self, sizes: Mapping[str, int], num_inputs: int) -> Tensor:
        return torch.cat([self.take(f"{name}.weight", size, num_inputs) for name, size in sizes.items()])

    def stack_bias(self, sizes: Mapping[str, int]) -> Tensor | None:
        """The biases in the order of the projections, or None where the checkpoint has none of them."""
        if not any(f"{name}.bias" in self._tensors for name in sizes):
            return None
        return torch.cat([self.take(f"{name}.bias", size) for name, size in sizes.items()])

    def ignore(self, name: str) -> None:
        self._tensors.pop(name, None)

    def refuse_leftovers(self) -> None:
        if self._tensors:
            some = ", ".join(sorted(self._tensors)[:3])
            raise UsageError(
                f"the checkpoint has {len(self._tensors)} tensors that a Llama decoder does not use ({some}); "
                "it is another architecture, so its logits would be wrong"
            )


def _read_tensors(directory: Path) -> Iterator[tuple[str, Tensor]]:
    for file in _tensor_files(directory):
        try:
            with safe_open(file, framework="pt") as opened:
                for name in opened.keys():  # noqa: SIM118 - not a dict: it has no iterator of its own
                    yield name, opened.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise UsageError(f"{file} cannot be read as safetensors ({error}); download or write it again") from error


def _tensor_files(directory: Path) -> list[Path]:
    if (directory / INDEX_FILE).is_file():
        weight_map = _read_json(directory / INDEX_FILE).get("weight_map", {})
        files = [directory / name for name in sorted(set(weight_map.values()))]
        for file in files:
            if not file.is_file():
                raise UsageError(f"{directory / INDEX_FILE} names {file.name}, which is not there; download it too")
        return files
    if (directory / SINGLE_FILE).is_file():
        return [directory / SINGLE_FILE]
    raise UsageError(
        f"{directory} holds neither {SINGLE_FILE} nor {INDEX_FILE}; give a Hugging Face checkpoint directory"
    )


def _read_json(file: Path) -> dict[str, Any]:
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{file} is not there; give a Hugging Face checkpoint directory") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read as JSON ({error})") from error
    if not isinstance(fields, dict):
        raise UsageError(f"{file} holds a {type(fields).__name__}; it must hold a JSON object")
    return fields
