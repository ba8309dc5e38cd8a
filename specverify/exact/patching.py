"""Replaces a library's random functions for a while, wherever they were imported to."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

# Packages whose modules keep the originals: they draw nothing for the program, or are the libraries themselves.
_SKIPPED = frozenset(
    {"numpy", "random", "math", "torch", "scipy", "sympy", "pytest", "_pytest", "hypothesis", *sys.stdlib_module_names}
) - {"__main__", "this"}
_FIXTURES = ("specverify.laws", "specverify.core", "specverify.probe", "specverify.stats")


@contextmanager
def replaced(replacements: Mapping[tuple[Any, str], Any], *, everywhere: bool = True) -> Iterator[None]:
    """Sets attributes (owner, name) for a while. everywhere: also in modules that hold the same object by any name.

    `from numpy.random import default_rng` binds the original; without this, such a module would draw real numbers.
    """
    undo: list[tuple[Any, str, Any]] = []
    try:
        originals = {}
        for (owner, name), value in replacements.items():
            original = vars(owner)[name] if name in vars(owner) else getattr(owner, name)
            originals[id(original)] = (original, value)
            undo.append((owner, name, original))
            setattr(owner, name, value)
        if everywhere:
            undo.extend(_replace_copies(originals))
        yield
    finally:
        for owner, name, original in reversed(undo):
            setattr(owner, name, original)


def _replace_copies(originals: dict[int, tuple[Any, Any]]) -> list[tuple[Any, str, Any]]:
    undo = []
    ids = frozenset(originals)
    for module_name, module in list(sys.modules.items()):
        if module is None or _keeps_originals(module_name):
            continue
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict) or ids.isdisjoint(map(id, names.values())):
            continue
        for name, value in list(names.items()):
            found = originals.get(id(value))
            if found is not None and found[0] is value:
                undo.append((module, name, value))
                names[name] = found[1]
    return undo


@functools.lru_cache(maxsize=65536)
def _keeps_originals(module_name: str) -> bool:
    return module_name.partition(".")[0] in _SKIPPED or module_name.startswith("specverify.exact")


def is_library_import(frame: FrameType | None) -> bool:
    """Whether a library that draws nothing for the program is being imported: sympy draws a number while it is."""
    while frame is not None and _package(frame) in _SKIPPED:
        if frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def is_own_caller(frame: FrameType) -> bool:
    """Whether code of specverify's laws and fixtures asks: these make their tables from real, seeded generators."""
    return str(frame.f_globals.get("__name__", "")).startswith(_FIXTURES)
