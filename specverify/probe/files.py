"""A checkpoint directory in Hugging Face format, with its word-level tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.probe import weights as recipe

SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
WORDS = (*SPECIAL_TOKENS, *"abcdefghijklmnopqrstuvwxyz01")
MAX_POSITIONS = 512


def write_checkpoint(directory: Path, tensors: Mapping[str, NDArray[np.float64]], *, num_layers: int) -> None:
    """Writes weights (float32), config, generation config and tokenizer; the same bytes every time."""
    from safetensors.numpy import save_file

    directory.mkdir(parents=True, exist_ok=True)
    stored = {name: np.ascontiguousarray(tensor, dtype=np.float32) for name, tensor in tensors.items()}
    save_file(stored, directory / "model.safetensors", metadata={"format": "pt"})
    _write_json(directory / "config.json", _config(num_layers))
    _write_json(
        directory / "generation_config.json",
        {"bos_token_id": recipe.BOS, "eos_token_id": recipe.EOS, "pad_token_id": recipe.PAD},
    )
    (directory / "tokenizer.json").write_text(_tokenizer_json(), encoding="utf-8")
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), SPECIAL_TOKENS, strict=True))
    _write_json(directory / "special_tokens_map.json", names)
    _write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": MAX_POSITIONS,
            "clean_up_tokenization_spaces": False,
            **names,
        },
    )


def _config(num_layers: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": recipe.BOS,
        "eos_token_id": recipe.EOS,
        "pad_token_id": recipe.PAD,
        "head_dim": recipe.HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": recipe.HIDDEN_SIZE,
        "initializer_range": 0.02,
        "intermediate_size": recipe.INTERMEDIATE_SIZE,
        "max_position_embeddings": MAX_POSITIONS,
        "mlp_bias": False,
        "num_attention_heads": recipe.NUM_HEADS,
        "num_hidden_layers": num_layers,
        "num_key_value_heads": recipe.NUM_KV_HEADS,
        "rms_norm_eps": recipe.RMS_NORM_EPS,
        "rope_scaling": None,
        # Both spellings: transformers 5 reads rope_parameters, most other engines the top-level rope_theta.
        "rope_parameters": {"rope_type": "default", "rope_theta": recipe.ROPE_THETA},
        "rope_theta": recipe.ROPE_THETA,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "use_cache": True,
        "vocab_size": recipe.VOCAB_SIZE,
    }


def _tokenizer_json() -> str:
    """Words separated by spaces; the begin token is put in front, as Llama tokenizers do."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", recipe.BOS)]
    )
    return str(tokenizer.to_str(pretty=True)) + "\n"


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
