"""From what a caller names to models: a probe pair, checkpoint directories, GGUF files, or models as they are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from specverify.core.errors import UsageError
from specverify.probe import ProbePair, default_probe, load_probe
from specverify.reference.checkpoints import choose_device, load_model
from specverify.reference.model import Model

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def models_and_probe(
    probe: ProbePair | str | Path | None,
    target: Model | str | Path | None,
    draft: Model | str | Path | None,
    *,
    dtype: str,
    device: str,
) -> tuple[Model, Model | None, ProbePair | None]:
    """Target, draft (None where there is none) and probe pair (None where other checkpoints were named).

    Raises UsageError where both a probe and a target are named, or a dtype that is none.
    """
    if dtype not in DTYPES:
        raise UsageError(f"dtype {dtype!r} is unknown; choose from {', '.join(DTYPES)}")
    if target is None:
        if draft is not None:
            raise UsageError("a draft is named without a target; name both, or neither for a probe pair")
        pair = default_probe() if probe is None else probe if isinstance(probe, ProbePair) else load_probe(probe)
        return load_shared(pair.target_dir, dtype, device), load_shared(pair.draft_dir, dtype, device), pair
    if probe is not None:
        raise UsageError("both a probe pair and a target are named; name one of them")
    return load_shared(target, dtype, device), None if draft is None else load_shared(draft, dtype, device), None


def read_tokenizers(sources: Mapping[str, Model | str | Path | None]) -> dict[str, Any] | None:
    """The tokenizers of checkpoint directories, by the same names; None unless every one of them has a tokenizer.json.

    They are of the kind that the tokenizers package reads.
    """
    from tokenizers import Tokenizer

    files = {name: Path(s) / "tokenizer.json" for name, s in sources.items() if isinstance(s, str | Path)}
    if len(files) < len(sources) or not all(file.is_file() for file in files.values()):
        return None
    return {name: Tokenizer.from_file(str(file)) for name, file in files.items()}


def load_shared(source: Model | str | Path, dtype: str, device: str) -> Model:
    """The model that source names; the same object each time in one process."""
    if isinstance(source, Model):
        return source
    return _load_once(Path(source).resolve(), _stamp(Path(source)), dtype, str(choose_device(device)))


def _stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of the files: a checkpoint written anew is loaded anew."""
    files = sorted(path.iterdir()) if path.is_dir() else [path] if path.is_file() else []
    return tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)


# Models hold no state, so all subjects of a process share them: a kill matrix builds dozens on one probe pair.
@lru_cache(maxsize=8)
def _load_once(path: Path, stamp: tuple[tuple[str, int, int], ...], dtype: str, device: str) -> Model:
    return load_model(path, dtype=DTYPES[dtype], device=device)
