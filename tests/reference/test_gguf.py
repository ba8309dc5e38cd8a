"""GGUF files give back the checkpoint they were made from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from specverify.adapters.reference import reference_engine
from specverify.adapters.smollm2 import smollm2_paths
from specverify.core.errors import UsageError
from specverify.core.types import Request, SamplingParams
from specverify.reference.checkpoints import load_model
from specverify.reference.gguf import _LAYER_NAMES
from tests.reference import tiny
from tests.reference.test_model import logits_of

gguf = pytest.importorskip("gguf")
GREEDY = SamplingParams(temperature=0.0)


def permuted(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Rows of each head interleaved, as llama.cpp's converter stores queries and keys."""
    halves = weight.view(num_heads, 2, weight.shape[0] // num_heads // 2, weight.shape[1])
    return halves.transpose(1, 2).reshape(weight.shape)


def write_gguf(path: Path, architecture: str = "llama", **extra: Any) -> None:
    shape = tiny.config(num_layers=1)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(shape.max_positions)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_feed_forward_length(shape.intermediate_size)
    writer.add_head_count(shape.num_heads)
    writer.add_head_count_kv(shape.num_kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(shape.rms_norm_eps)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_vocab_size(shape.vocab_size)
    for name, add in extra.items():
        getattr(writer, name)(add)
    names = {f"model.layers.0.{theirs}.weight": f"blk.0.{ours}.weight" for ours, theirs in _LAYER_NAMES.items()}
    names |= {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    for name, tensor in tiny.tensors(shape, 0).items():
        heads = {"q_proj": shape.num_heads, "k_proj": shape.num_kv_heads}.get(name.split(".")[-2], 0)
        stored = permuted(tensor, heads) if heads else tensor
        writer.add_tensor(names[name], stored.to(torch.float32).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_small_file_is_the_model_it_was_made_from(tmp_path: Path) -> None:
    """Names, sizes and the permutation of queries and keys are undone."""
    write_gguf(tmp_path / "tiny.gguf")
    text = torch.tensor([[3, 1, 4, 1, 5]])

    model = load_model(tmp_path / "tiny.gguf", device="cpu")

    assert (logits_of(tiny.model(num_layers=1, dtype=torch.float32), text) - logits_of(model, text)).abs().max() < 1e-5


def test_other_architecture_is_refused(tmp_path: Path) -> None:
    """A file of another model is not computed as a Llama."""
    write_gguf(tmp_path / "tiny.gguf", architecture="falcon")

    with pytest.raises(UsageError, match="architecture 'falcon'"):
        load_model(tmp_path / "tiny.gguf")


def test_broken_file_is_refused(tmp_path: Path) -> None:
    """Neither a traceback of the gguf package nor a wrong model."""
    (tmp_path / "tiny.gguf").write_bytes(b"GGUX" + b"\0" * 100)

    with pytest.raises(UsageError, match="cannot be read as GGUF"):
        load_model(tmp_path / "tiny.gguf")


def test_missing_file_is_refused(tmp_path: Path) -> None:
    """The path is named."""
    with pytest.raises(UsageError, match=r"nowhere.gguf is not there"):
        load_model(tmp_path / "nowhere.gguf")


@pytest.mark.smollm2
def test_smollm2_writes_the_same_greedy_tokens_as_transformers() -> None:
    """The whole chain on a real model: Q4_1 blocks, permutation, tied head, speculation on."""
    transformers = pytest.importorskip("transformers")
    try:
        paths = smollm2_paths()
    except UsageError as error:
        pytest.skip(str(error))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(paths.target_dir, dtype=torch.float32).eval()
    prompt = (504, 3575, 282, 4649, 314)  # "The capital of France is"
    with torch.inference_mode():
        wanted = theirs.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=12)[0, len(prompt) :].tolist()

    engine = reference_engine(model="smollm2", proposer="n-gram")
    trace = engine.generate([Request(prompt, 12, GREEDY, eos_token_ids=(2,))], speculate=True)[0]

    assert wanted[: len(trace.token_ids)] == list(trace.token_ids)
    with torch.inference_mode():
        logits = theirs(torch.tensor([prompt])).logits[0]
    ours = logits_of(engine.target, torch.tensor([prompt]))[0]
    # Measured 4.5e-5 at logits up to 27, which is also how far float32 is from float64 here.
    assert (logits - ours).abs().max() < 1e-4
