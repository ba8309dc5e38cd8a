"""The decoder computes what transformers computes, whatever the shape and the rope scaling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from specverify.reference.cached_model import CachedModel
from specverify.reference.checkpoints import load_model
from specverify.reference.model import Model
from tests.reference import tiny

# The claim of the README. Measured 2e-5 at logits near 10: transformers rounds angles and norms to float32.
TRANSFORMERS_TOLERANCE = 1e-4
# Nothing but the order of additions.
FLOAT64_TOLERANCE = 1e-12
NUM_TOKENS = 50

ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 10000.0},
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
    "yarn": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16},
    "yarn-mscale": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "mscale": 0.7,
        "mscale_all_dim": 0.3,
        "beta_fast": 16,
        "truncate": False,
    },
}
SHAPE = {
    "vocab_size": 32,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
    "initializer_range": 0.3,
}


def logits_of(model: Model, token_ids: torch.Tensor) -> torch.Tensor:
    cached = CachedModel(model, num_rows=1, capacity=token_ids.shape[1])
    with torch.inference_mode():
        return model.logits(cached.compute(token_ids, first_positions=[0], num_new=[token_ids.shape[1]]))


def transformers_logits(hugging_face: Any, token_ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return hugging_face(token_ids).logits


def saved(directory: Path, kind: str = "Llama", shard_size: str = "5GB", **fields: Any) -> Any:
    """A random transformers model, written to the directory; biases are filled too."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config_class = getattr(transformers, f"{kind}Config")
    model = getattr(transformers, f"{kind}ForCausalLM")(config_class(**{**SHAPE, **fields})).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(directory, max_shard_size=shard_size)
    return model


@pytest.fixture
def token_ids() -> torch.Tensor:
    return torch.randint(0, 32, (1, NUM_TOKENS), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("rope", ROPES)
def test_logits_equal_transformers_for_every_rope_scaling(
    rope: str, dtype: torch.dtype, token_ids: torch.Tensor, tmp_path: Path
) -> None:
    """Grouped-query attention and each rope kind, beyond the trained length too."""
    theirs = saved(tmp_path, num_key_value_heads=2, rope_parameters=ROPES[rope]).to(dtype)

    ours = load_model(tmp_path, dtype=dtype, device="cpu")

    assert (transformers_logits(theirs, token_ids) - logits_of(ours, token_ids)).abs().max() < TRANSFORMERS_TOLERANCE


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("Llama", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1}),
        ("Llama", {"tie_word_embeddings": True, "num_key_value_heads": 4, "head_dim": 8}),
        ("Mistral", {"sliding_window": None, "num_key_value_heads": 2}),
        ("Qwen2", {"num_key_value_heads": 2}),
    ],
    ids=["biases", "tied, head_dim apart from hidden_size", "mistral", "qwen2"],
)
def test_logits_equal_transformers_for_every_architecture(
    kind: str, fields: dict[str, Any], token_ids: torch.Tensor, tmp_path: Path
) -> None:
    """Biases, tied embeddings and the two relatives of Llama."""
    theirs = saved(tmp_path, kind, **fields)

    ours = load_model(tmp_path, device="cpu")

    assert (transformers_logits(theirs, token_ids) - logits_of(ours, token_ids)).abs().max() < TRANSFORMERS_TOLERANCE


def test_sharded_checkpoint_is_the_same_model(token_ids: torch.Tensor, tmp_path: Path) -> None:
    """Tensors are found through the index of a checkpoint in several files."""
    theirs = saved(tmp_path, shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1

    ours = load_model(tmp_path, device="cpu")

    assert (transformers_logits(theirs, token_ids) - logits_of(ours, token_ids)).abs().max() < TRANSFORMERS_TOLERANCE


def test_config_in_the_spelling_of_transformers_4_is_read_alike(token_ids: torch.Tensor, tmp_path: Path) -> None:
    """rope_theta and rope_scaling at the top level mean the same as rope_parameters."""
    saved(tmp_path, rope_parameters=ROPES["llama3"])
    wanted = logits_of(load_model(tmp_path, device="cpu"), token_ids)
    fields = json.loads((tmp_path / "config.json").read_text())
    rope = fields.pop("rope_parameters")
    fields["rope_theta"] = rope.pop("rope_theta")
    rope["type"] = rope.pop("rope_type")
    fields["rope_scaling"] = rope
    (tmp_path / "config.json").write_text(json.dumps(fields))

    assert torch.equal(wanted, logits_of(load_model(tmp_path, device="cpu"), token_ids))


def test_bfloat16_is_close_to_float64() -> None:
    """The low precision path computes the same function."""
    text = torch.arange(12)[None]
    wanted = logits_of(tiny.model(), text)

    low = logits_of(tiny.model(dtype=torch.bfloat16), text)

    assert torch.bfloat16 == low.dtype
    # Two layers of bfloat16 rounding, 2^-9 relative each; logits reach 4.
    assert (wanted - low).abs().max() < 0.25


def test_a_pass_over_cached_rows_equals_one_pass_over_everything() -> None:
    """Computing 5 tokens, then 3, then 1 gives the logits of computing 9 at once."""
    model, text = tiny.model(), torch.randint(0, 16, (1, 9), generator=torch.Generator().manual_seed(1))
    wanted = logits_of(model, text)
    cached = CachedModel(model, num_rows=1, capacity=9)

    parts, start = [], 0
    for size in (5, 3, 1):
        hidden = cached.compute(text[:, start : start + size], first_positions=[start], num_new=[size])
        parts.append(model.logits(hidden))
        start += size

    assert (wanted - torch.cat(parts, dim=1)).abs().max() < FLOAT64_TOLERANCE


def test_tree_mask_and_positions_make_siblings_independent() -> None:
    """Two branches in one pass, each seeing its own path only, equal two chains: trees need no other model."""
    model, prompt = tiny.model(), [3, 1, 4, 1]
    branches = [[5, 9], [2, 6]]
    wanted = [logits_of(model, torch.tensor([prompt + branch]))[0, -1] for branch in branches]

    cached = CachedModel(model, num_rows=1, capacity=16)
    cached.compute(torch.tensor([prompt]), first_positions=[0], num_new=[4])
    mask = torch.full((1, 4, 8), -torch.inf, dtype=torch.float64)
    mask[:, :, :4] = 0.0
    for node, ancestors in enumerate([[0], [0, 1], [2], [2, 3]]):
        for ancestor in ancestors:
            mask[0, node, 4 + ancestor] = 0.0
    hidden = model.forward(
        torch.tensor([[5, 9, 2, 6]]),
        positions=torch.tensor([[4, 5, 4, 5]]),
        slots=torch.tensor([[4, 5, 6, 7]]),
        mask=mask,
        cache=cached.cache,
    )
    logits = model.logits(hidden)[0]

    assert (wanted[0] - logits[1]).abs().max() < FLOAT64_TOLERANCE
    assert (wanted[1] - logits[3]).abs().max() < FLOAT64_TOLERANCE


def test_first_layers_share_weights() -> None:
    """A cut model is the same model without its last layers."""
    whole = tiny.model(num_layers=3)

    cut = whole.first_layers(2)

    assert cut.config.num_layers == 2
    assert cut.weights.layers[1] is whole.weights.layers[1]
    assert torch.equal(
        logits_of(tiny.model(num_layers=3).first_layers(2), torch.tensor([[1, 2, 3]])),
        logits_of(cut, torch.tensor([[1, 2, 3]])),
    )
