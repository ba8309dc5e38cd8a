"""Text to train on: files that the user names, or the source files of Python's standard library.

Files are held out by the hash of their name, so the split is the same on every machine, in every order, and for every
version of a file.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from specverify.core.errors import UsageError

HELD_OUT_SHARE = 0.1
# Its tests repeat themselves, and these three hold tables rather than programs.
_LEFT_OUT = ("test", "tests", "idlelib", "site-packages", "encodings", "lib2to3", "pydoc_data")


@dataclass(frozen=True)
class Corpus:
    """Texts by name. train and held_out share no file."""

    train: dict[str, str]
    held_out: dict[str, str]


def standard_library() -> Corpus:
    """The .py files of the standard library of this Python, without tests and tables.

    Raises UsageError where this Python comes without sources.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    names = [file.relative_to(root) for file in root.rglob("*.py")]
    files = {name.as_posix(): root / name for name in names if not set(name.parts) & set(_LEFT_OUT)}
    if not files:
        raise UsageError(f"{root} holds no .py files; name your own text with --text")
    return _split(files)


def read_corpus(paths: Sequence[str | Path]) -> Corpus:
    """The named files, and all .py, .txt, .md and .rst files below the named folders; nothing named: the library.

    Raises UsageError where a path is not there, or all text falls on one side of the split.
    """
    if not paths:
        return standard_library()
    files: dict[str, Path] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise UsageError(f"{path} is not there; name a text file or a folder of them")
        found = [path] if path.is_file() else [file for kind in _KINDS for file in path.rglob(f"*.{kind}")]
        files |= {file.relative_to(path.parent).as_posix(): file for file in found}
    corpus = _split(files)
    if not corpus.train or not corpus.held_out:
        raise UsageError(
            f"{len(files)} files split into {len(corpus.train)} to train on and {len(corpus.held_out)} held out; "
            "one file in ten is held out by its name, so name more of them (or cut yours into parts)"
        )
    return corpus


_KINDS = ("py", "txt", "md", "rst")


def _split(files: Mapping[str, Path]) -> Corpus:
    corpus = Corpus({}, {})
    for name in sorted(files):
        text = files[name].read_text(encoding="utf-8", errors="replace")
        if text.strip():
            (corpus.held_out if is_held_out(name) else corpus.train)[name] = text
    return corpus


def is_held_out(name: str) -> bool:
    """Whether a file of this name is kept for measuring."""
    return hashlib.sha256(name.encode()).digest()[0] < 256 * HELD_OUT_SHARE
