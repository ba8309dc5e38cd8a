"""Why a program's law could not be enumerated: the reason, the operation and the user's own source line."""

from __future__ import annotations

import linecache
import os
import sys
from pathlib import Path

from specverify.core.errors import SpecverifyError

_OWN_PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep
_SPECIMENS = os.path.join(_OWN_PACKAGE, "faults") + os.sep
_PROGRAM_CALLERS = tuple(os.path.join("exact", name) for name in ("search.py", "cross_check.py", "edge.py"))
_MAX_CODE = 70
_SKIPPED_PACKAGES = ("numpy", "torch", "scipy", "importlib", "contextlib.py", "random.py", "bisect.py")


class NotEnumerable(SpecverifyError):
    """The exact law of this program is out of reach; judge it in another mode.

    reason: one sentence. operation: what the program called, "" where no single call is to blame.
    source_line: "file:line: code" of the user's own code, "" where there is none on the stack.
    """

    def __init__(self, reason: str, operation: str = "", source_line: str = "") -> None:
        self.reason = reason
        self.operation = operation
        self.source_line = source_line
        parts = [reason]
        if operation:
            parts.append(f"operation: {operation}")
        if source_line:
            parts.append(f"at {source_line}")
        super().__init__("; ".join(parts))


class ReusedRandomness(NotEnumerable):
    """One random value decided two things that must be independent. This is a finding about the program."""


class UnsoundEnumeration(NotEnumerable):
    """Ordinary calls contradict the enumerated law: the enumerator was fooled, and its law must not be used."""


def source_line() -> str:
    """The innermost line of the user's own code on the stack: outside specverify, numpy and torch."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.endswith(_PROGRAM_CALLERS):
            return ""  # raised after the program had returned: what calls the enumeration is not its code
        if not _is_library(path):
            return _described(path, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def source_line_of(error: BaseException) -> str:
    """The innermost line of the user's own code in the traceback of an error."""
    found = ""
    trace = error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not _is_library(path):
            found = _described(path, trace.tb_lineno)
        trace = trace.tb_next
    return found


def _described(path: str, line: int) -> str:
    """file:line: code, the file relative to the current folder where it lies in it, long code cut."""
    here = os.getcwd() + os.sep
    text = linecache.getline(path, line).strip()
    shown = text if len(text) <= _MAX_CODE else text[: _MAX_CODE - 3] + "..."
    return f"{path.removeprefix(here)}:{line}: {shown}" if shown else f"{path.removeprefix(here)}:{line}"


def _is_library(path: str) -> bool:
    if path.startswith(_SPECIMENS):
        return False  # planted bugs stand in for the user's code
    if path.startswith((_OWN_PACKAGE, "<frozen", "<__array_function__")):
        return True
    parts = path.split(os.sep)
    if parts[-1] in _SKIPPED_PACKAGES:
        return True
    return "site-packages" in parts and parts[parts.index("site-packages") + 1] in _SKIPPED_PACKAGES
