"""A checkpoint is loaded whole and right, or refused with a sentence that says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from specverify.core.errors import UsageError
from specverify.reference.checkpoints import build_model, load_model
from specverify.reference.config import read_config
from tests.reference import tiny

FIELDS: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 16,
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(FIELDS))
    save_file(tiny.tensors(tiny.config(), 0), tmp_path / "model.safetensors")
    return tmp_path


def test_directory_written_by_hand_is_loaded(directory: Path) -> None:
    """The fixture of this file is a checkpoint; the errors below are not its fault."""
    model = load_model(directory, dtype=torch.float64, device="cpu")

    assert torch.equal(tiny.model().weights.layers[1].down, model.weights.layers[1].down)


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda d: (d / "config.json").unlink(), "config.json is not there"),
        (lambda d: (d / "config.json").write_text("{"), "cannot be read as JSON"),
        (lambda d: (d / "config.json").write_text("[]"), "must hold a JSON object"),
        (lambda d: (d / "model.safetensors").unlink(), "holds neither model.safetensors nor"),
        (lambda d: (d / "model.safetensors").write_bytes(b"x" * 100), "cannot be read as safetensors"),
        (
            lambda d: (d / "model.safetensors.index.json").write_text('{"weight_map": {"a": "part-2.safetensors"}}'),
            "names part-2.safetensors, which is not there",
        ),
    ],
    ids=["no config", "broken config", "config is a list", "no weights", "broken weights", "missing shard"],
)
def test_broken_files_are_refused(directory: Path, break_it: Callable[[Path], Any], message: str) -> None:
    """What is missing or broken is named."""
    break_it(directory)

    with pytest.raises(UsageError, match=message):
        load_model(directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2'; the decoder computes llama"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"model_type": "mistral", "sliding_window": 16}, "sliding window"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "rope type 'longrope'"),
        ({"partial_rotary_factor": 0.5}, "a part of each head"),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value)),
)
def test_other_architectures_are_refused(change: dict[str, Any], message: str) -> None:
    """A model that would be computed wrongly is not computed."""
    with pytest.raises(UsageError, match=message):
        read_config({**FIELDS, **change})


def test_config_without_sizes_is_refused() -> None:
    """Every missing size is named."""
    with pytest.raises(UsageError, match="lacks hidden_size, num_attention_heads"):
        read_config({k: v for k, v in FIELDS.items() if k not in ("hidden_size", "num_attention_heads")})


def test_unknown_tensor_is_refused() -> None:
    """A tensor that nobody uses means that this is another architecture."""
    tensors = tiny.tensors(tiny.config(), 0)
    tensors["model.layers.0.self_attn.q_norm.weight"] = torch.ones(8)

    with pytest.raises(UsageError, match=r"1 tensors .* does not use \(model.layers.0.self_attn.q_norm.weight\)"):
        build_model(tiny.config(), tensors)


def test_missing_tensor_is_refused() -> None:
    """Nothing is left at random."""
    tensors = tiny.tensors(tiny.config(), 0)
    del tensors["model.layers.1.mlp.up_proj.weight"]

    with pytest.raises(UsageError, match=r"no tensor 'model\.layers\.1\.mlp\.up_proj\.weight'"):
        build_model(tiny.config(), tensors)


def test_misshapen_tensor_is_refused() -> None:
    """Shapes follow from config.json."""
    tensors = tiny.tensors(tiny.config(), 0)
    tensors["lm_head.weight"] = torch.zeros(15, 24)

    with pytest.raises(UsageError, match=r"'lm_head.weight' has shape \(15, 24\); config.json implies \(16, 24\)"):
        build_model(tiny.config(), tensors)
