"""Write, load and cache a probe pair: two tiny checkpoints whose exact laws are known, and their manifest."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from specverify.core.errors import UsageError
from specverify.probe import weights
from specverify.probe.files import MAX_POSITIONS, write_checkpoint
from specverify.probe.measure import measurements
from specverify.probe.oracle import Oracle
from specverify.probe.shape import LlamaShape

FORMAT = "specverify-probe"
# Raise it with every change of the recipe or the manifest: caches go by it.
FORMAT_VERSION = 1
# Of the first six seeds the one whose least visible fault moves the law most (mean total variation .131).
DEFAULT_SEED = 3
MANIFEST = "manifest.json"


@dataclass(frozen=True, eq=False)
class ProbePair:
    """A target and a draft checkpoint in Hugging Face format, and what is known of them.

    manifest: digests, seed, prompts, laws and sensitivity, as JSON types.
    """

    directory: Path
    manifest: Mapping[str, Any]
    vocab_size: int = weights.VOCAB_SIZE
    bos_token_id: int = weights.BOS
    eos_token_id: int = weights.EOS
    pad_token_id: int = weights.PAD
    max_positions: int = MAX_POSITIONS

    @property
    def target_dir(self) -> Path:
        return self.directory / "target"

    @property
    def draft_dir(self) -> Path:
        return self.directory / "draft"

    @property
    def seed(self) -> int:
        return int(self.manifest["seed"])

    @cached_property
    def target_oracle(self) -> Oracle:
        return Oracle.from_checkpoint(self.target_dir)

    @cached_property
    def draft_oracle(self) -> Oracle:
        return Oracle.from_checkpoint(self.draft_dir)

    @property
    def prompts(self) -> tuple[tuple[int, ...], ...]:
        """Standard prompts: a begin token and words drawn from the target's own law, of several lengths."""
        return _prompts(self.manifest["prompts"])

    @property
    def lookup_prompts(self) -> tuple[tuple[int, ...], ...]:
        """Prompts in which every word occurs before its likeliest successor, so that prompt lookup always drafts."""
        return _prompts(self.manifest["lookup_prompts"])


def write_probe(directory: str | Path, *, seed: int = DEFAULT_SEED) -> ProbePair:
    """Writes a probe pair and its manifest; the same seed gives the same bytes.

    Raises UsageError where the directory holds something else.
    """
    folder = Path(directory).expanduser()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; give a directory to write the probe pair to")
    if folder.exists() and any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        raise UsageError(f"{folder} is not empty and holds no probe pair; give a new or an empty directory")
    if seed < 0:
        raise UsageError(f"seed is {seed}; give 0 or a positive whole number")
    target, draft = weights.build_weights(seed)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made ({error.strerror}); give a directory that can be written") from error
    write_checkpoint(folder / "target", target, num_layers=weights.TARGET_LAYERS)
    write_checkpoint(folder / "draft", draft, num_layers=weights.DRAFT_LAYERS)
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "seed": seed,
        "files": {
            path.relative_to(folder).as_posix(): {"sha256": _digest(path.read_bytes()), "bytes": path.stat().st_size}
            for path in sorted([*(folder / "target").iterdir(), *(folder / "draft").iterdir()])
        },
        **measurements(
            Oracle(_shape(weights.TARGET_LAYERS), target), Oracle(_shape(weights.DRAFT_LAYERS), draft), seed=seed
        ),
    }
    manifest = {**content, "sha256": _digest(_canonical(content))}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return ProbePair(folder, manifest)


def load_probe(directory: str | Path) -> ProbePair:
    """The probe pair in a directory, every file held against its digest.

    Raises UsageError where the pair is missing, truncated or altered, or of another format version.
    """
    folder = Path(directory).expanduser()
    again = f"write it again with: specverify probe {folder}"
    if not (folder / MANIFEST).is_file():
        raise UsageError(f"{folder} holds no probe pair (no {MANIFEST}); write one with: specverify probe {folder}")
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        content = {key: value for key, value in manifest.items() if key != "sha256"}
        is_whole = manifest.get("format") == FORMAT and manifest.get("sha256") == _digest(_canonical(content))
    except (ValueError, AttributeError) as error:
        raise UsageError(f"{folder / MANIFEST} is not readable ({error}); {again}") from error
    if manifest.get("format_version", FORMAT_VERSION) != FORMAT_VERSION:
        raise UsageError(
            f"{folder} is a probe pair of format version {manifest['format_version']}, this specverify reads version "
            f"{FORMAT_VERSION}; {again}"
        )
    if not is_whole:
        raise UsageError(f"{folder / MANIFEST} was altered: it does not match its own digest; {again}")
    for name, wanted in manifest["files"].items():
        _check_file(folder / name, wanted, again)
    return ProbePair(folder, manifest)


def default_probe() -> ProbePair:
    """The probe pair of the default seed, from the user's cache ($SPECVERIFY_CACHE, or the usual place).

    Written on first use; a damaged copy is replaced, with a warning.
    """
    folder = cache_root() / f"probe-{FORMAT_VERSION}-seed-{DEFAULT_SEED}"
    is_damaged = False
    if folder.is_dir():
        try:
            return load_probe(folder)
        except UsageError as damage:
            is_damaged = True
            warnings.warn(f"the cached probe pair is damaged and is written again: {damage}", stacklevel=2)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and moved into place, so that a parallel process never sees half a pair.
        fresh = Path(tempfile.mkdtemp(prefix=folder.name + ".", dir=folder.parent))
    except OSError as error:
        raise UsageError(f"cannot write to the cache {folder.parent} ({error}); set SPECVERIFY_CACHE") from error
    write_probe(fresh, seed=DEFAULT_SEED)
    if is_damaged:
        # Moved aside first: a whole pair that another process has put there by now is never taken away from it.
        _move(folder, fresh.with_name(fresh.name + ".damaged"))
    if not _move(fresh, folder):
        # Another process was quicker; its pair has the same bytes.
        shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(fresh.with_name(fresh.name + ".damaged"), ignore_errors=True)
    return load_probe(folder)


def _move(source: Path, destination: Path) -> bool:
    try:
        source.rename(destination)
    except OSError:
        return False
    return True


def cache_root() -> Path:
    """Where the suite keeps what is made or fetched once: $SPECVERIFY_CACHE, or the user's cache folder."""
    import platformdirs

    return Path(os.environ.get("SPECVERIFY_CACHE") or platformdirs.user_cache_dir("specverify"))


def _check_file(path: Path, wanted: Mapping[str, Any], again: str) -> None:
    if not path.is_file():
        raise UsageError(f"{path} is missing; {again}")
    size = path.stat().st_size
    if size != wanted["bytes"]:
        state = "truncated" if size < wanted["bytes"] else "altered"
        raise UsageError(f"{path} is {state}: it has {size} bytes, the manifest says {wanted['bytes']}; {again}")
    if _digest(path.read_bytes()) != wanted["sha256"]:
        raise UsageError(f"{path} was altered: its sha256 is not the manifest's; {again}")


def _shape(num_layers: int) -> LlamaShape:
    return LlamaShape(
        weights.VOCAB_SIZE, weights.HIDDEN_SIZE, weights.INTERMEDIATE_SIZE, num_layers, weights.NUM_HEADS,
        weights.NUM_KV_HEADS, weights.HEAD_DIM, weights.ROPE_THETA, weights.RMS_NORM_EPS,
    )  # fmt: skip


def _prompts(stored: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(token) for token in prompt) for prompt in stored)


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def summary(pair: ProbePair) -> dict[str, list[tuple[str, str]]]:
    """Sections to rows of (label, value): files, laws, sensitivity."""
    manifest = pair.manifest
    laws = manifest["laws"]
    return {
        "files": [(name, f"{entry['bytes']:,} bytes") for name, entry in manifest["files"].items()],
        "laws": [
            ("vocabulary", f"{pair.vocab_size} tokens, end token {pair.eos_token_id}"),
            ("target entropy", f"{laws['target_entropy']:.2f} nats (uniform: 3.47)"),
            ("draft acceptance", f"{laws['draft_acceptance']:.3f}"),
            ("early-exit acceptance", f"{laws['early_exit_acceptance']:.3f}"),
            ("prompt-lookup acceptance", f"{laws['lookup_acceptance']:.3f}"),
        ],
        "sensitivity": [(name, _effect(figures)) for name, figures in manifest["sensitivity"].items()],
    }


def _effect(figures: dict[str, float]) -> str:
    if "acceptance_drop" in figures:
        return (
            f"moves the draft law by {figures['mean_tv']:.3f} on average (at most {figures['max_tv']:.3f}), "
            f"acceptance falls by {figures['acceptance_drop']:.3f}"
        )
    return f"moves the law by {figures['mean_tv']:.3f} on average (at most {figures['max_tv']:.3f})"
