"""Heads on disk: a safetensors file, and a manifest that ties it to the one target it was trained for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from specverify.core.errors import UsageError
from specverify.reference.heads import EagleHead, MedusaHeads, as_target, untrained_eagle, untrained_medusa
from specverify.reference.model import Model
from specverify.reference.weights import named_tensors, with_tensors, write_json

MANIFEST, TENSORS = "head.json", "model.safetensors"
KINDS = ("eagle", "medusa")
_FORMAT = 1

Head = EagleHead | MedusaHeads


@lru_cache(maxsize=8)
def target_digest(target: Model) -> str:
    """A digest of the target's weights, the same in float32, float64 and bfloat16: bfloat16 is what is hashed."""
    digest = hashlib.sha256()
    for name, tensor in named_tensors(target.weights):
        rounded = tensor.detach().to("cpu", torch.bfloat16).contiguous()
        digest.update(f"{name} {tuple(rounded.shape)}\n".encode())
        digest.update(rounded.view(torch.int16).numpy().tobytes())
    return digest.hexdigest()


def write_head(directory: Path, head: Head, *, dtype: torch.dtype, notes: Mapping[str, Any] = {}) -> None:
    """Writes the head's own weights and its manifest; notes: how it was trained, for the reader."""
    directory.mkdir(parents=True, exist_ok=True)
    stored = {name: tensor.detach().to(dtype).contiguous() for name, tensor in named_tensors(head.own)}
    save_file(stored, directory / TENSORS, metadata={"format": "pt"})
    shape: dict[str, Any] = {"num_heads": head.num_heads} if isinstance(head, MedusaHeads) else {
        "taps": list(head.taps), "intermediate_size": head.config.intermediate_size
    }  # fmt: skip
    write_json(
        directory / MANIFEST,
        {
            "format": _FORMAT,
            "kind": "medusa" if isinstance(head, MedusaHeads) else "eagle",
            "shape": shape,
            "target": {"sha256": target_digest(head.target), **_sizes(head.target)},
            "tensors_sha256": _file_digest(directory / TENSORS),
            "notes": dict(notes),
        },
    )


@lru_cache(maxsize=8)
def load_head(directory: Path, kind: str, target: Model) -> Head:
    """The head of a directory, in the target's type and on its device.

    Raises UsageError where it is missing, damaged, of another kind, or was trained for another target.
    """
    manifest = _read_manifest(directory, kind)
    wanted, sizes = manifest["target"], _sizes(target)
    if {key: wanted.get(key) for key in sizes} != sizes or wanted["sha256"] != target_digest(target):
        was = ", ".join(f"{key} {wanted.get(key)}" for key in sizes)
        now = ", ".join(f"{key} {value}" for key, value in sizes.items())
        raise UsageError(
            f"the {kind} head in {directory} was trained for another target: its target has {was}, "
            f"weights {wanted['sha256'][:12]}; this one has {now}, weights {target_digest(target)[:12]}. "
            f"Train one for it: specverify train {kind} TARGET_DIR --out DIR"
        )
    made: Head = (
        untrained_eagle(target, **manifest["shape"])
        if kind == "eagle"
        else untrained_medusa(target, **manifest["shape"])
    )
    try:
        tensors = load_file(directory / TENSORS)
    except (SafetensorError, OSError) as error:
        raise UsageError(f"{directory / TENSORS} cannot be read as safetensors ({error}); train it again") from error
    shapes = {name: tuple(tensor.shape) for name, tensor in named_tensors(made.own)}
    if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != shapes:
        raise UsageError(f"{directory / TENSORS} does not hold what {MANIFEST} says; train it again")
    if isinstance(made, MedusaHeads):
        return MedusaHeads(target, as_target(with_tensors(made.own, tensors), target))
    return EagleHead(target, as_target(with_tensors(made.own, tensors), target), made.taps)


def _read_manifest(directory: Path, kind: str) -> dict[str, Any]:
    file = directory / MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        found, version = manifest["kind"], manifest["format"]
        damaged = manifest["tensors_sha256"] != _file_digest(directory / TENSORS)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{directory} holds no readable head ({error}); give a folder that `specverify train {kind}` wrote"
        ) from error
    if version != _FORMAT or found != kind:
        raise UsageError(f"{directory} holds a head of kind {found!r}, format {version}; wanted {kind!r}, {_FORMAT}")
    if damaged:
        raise UsageError(f"{directory / TENSORS} is not the file that {MANIFEST} was written for; train it again")
    return dict(manifest)


def _sizes(target: Model) -> dict[str, int]:
    config = target.config
    return {"layers": config.num_layers, "hidden": config.hidden_size, "vocabulary": config.vocab_size}


def _file_digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
