"""Loads transformers models and tokenizers for the adapter, quietly and with errors that say what to do."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from specverify.core.errors import UsageError

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def import_transformers() -> Any:
    """The transformers package. Raises UsageError where it is missing or too old."""
    try:
        import transformers
    except ImportError as error:
        raise UsageError(
            f"transformers cannot be imported ({error}); install it with: pip install 'specverify[transformers]'"
        ) from error
    # Version 5 renamed torch_dtype to dtype and rewrote the KV cache; 4.x would need its own adapter.
    if int(transformers.__version__.split(".")[0]) < 5:
        raise UsageError(f"transformers {transformers.__version__} is installed; this adapter needs 5.0 or newer")
    return transformers


@contextmanager
def quiet() -> Iterator[None]:
    """Silences transformers' warnings and progress bars inside, and restores what was set before."""
    settings = import_transformers().utils.logging
    verbosity, had_bars = settings.get_verbosity(), settings.is_progress_bar_enabled()
    settings.set_verbosity_error()
    settings.disable_progress_bar()
    try:
        yield
    finally:
        settings.set_verbosity(verbosity)
        if had_bars:
            settings.enable_progress_bar()


@contextmanager
def without_advice() -> Iterator[None]:
    """Silences generate()'s hints about how it was called.

    It gives them to its own calls of the drafter, and no caller can avoid them. Switching the logger off costs
    nothing; setting a level clears every logger's cache, 2 ms each time.
    """
    logger = logging.getLogger("transformers.generation.utils")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Runs torch with that many threads inside; None leaves the setting alone."""
    before = torch.get_num_threads()
    if count is not None and count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count is not None and count != before:
            torch.set_num_threads(before)


def load_model(source: Any, *, dtype: str, device: str | None, role: str) -> Any:
    """A causal language model from a checkpoint directory, or the model itself where one is handed over.

    A model handed over is used as it is, dtype and device included; only its generation_config is replaced by a
    neutral one (no end token, no sampling defaults), because those come with each request.
    Raises UsageError for a directory that is missing or holds no checkpoint, and for an unknown dtype.
    """
    if isinstance(source, (str, os.PathLike)):
        model = _load_directory(Path(source), dtype, role)
    elif hasattr(source, "generate"):
        model = source
    else:
        raise UsageError(f"{role} is a {type(source).__name__}; give a checkpoint directory or a transformers model")
    model.eval()
    model.generation_config = _neutral_config(model)
    return model.to(device) if device is not None else model


def _load_directory(directory: Path, dtype: str, role: str) -> Any:
    if dtype not in DTYPES:
        raise UsageError(f"dtype {dtype!r} is unknown; choose from {', '.join(DTYPES)}")
    if not directory.is_dir():
        raise UsageError(
            f"{role} checkpoint {directory} is no directory; write a probe pair with: specverify probe DIR"
        )
    if not (directory / "config.json").is_file():
        raise UsageError(
            f"{role} checkpoint {directory} holds no config.json; give a Hugging Face checkpoint directory"
        )
    transformers = import_transformers()
    try:
        with quiet():
            return transformers.AutoModelForCausalLM.from_pretrained(
                directory, dtype=DTYPES[dtype], local_files_only=True
            )
    except (OSError, ValueError, RuntimeError) as error:
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(f"{role} checkpoint {directory} does not load: {first_line}") from error


def load_tokenizer(source: Any) -> Any | None:
    """The tokenizer of a checkpoint directory, or None where it has none."""
    if not isinstance(source, (str, os.PathLike)) or not (Path(source) / "tokenizer_config.json").is_file():
        return None
    transformers = import_transformers()
    with quiet():
        return transformers.AutoTokenizer.from_pretrained(source, local_files_only=True)


def _neutral_config(model: Any) -> Any:
    """A generation config without the checkpoint's own end tokens, pad token and sampling defaults.

    generate() fills every option that a call leaves open from the model's config: SmolLM2's checkpoint carries an end
    token, and a request that names none would stop at it. Where there is a pad token, it masks every one it finds in
    the text: SmolLM2 pads with the token that ends each turn of a chat.
    """
    return import_transformers().GenerationConfig(bos_token_id=model.generation_config.bos_token_id)


@contextmanager
def first_layers(model: Any, num_layers: int) -> Iterator[Any]:
    """The model cut off after so many layers inside, and whole again afterwards."""
    config = getattr(model, model.base_model_prefix).config
    whole, config.num_hidden_layers = config.num_hidden_layers, num_layers
    try:
        yield model
    finally:
        config.num_hidden_layers = whole


@contextmanager
def seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Seeds torch inside and restores its generators afterwards; without a seed nothing is touched."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
