"""Commands that a message tells its reader to type: what changes a verdict is in them, what does not is left out."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specverify.stats.budget import DEFAULT_ALPHA

DEFAULT_EFFORT = 1.0


def check_command(
    subject: str,
    options: Mapping[str, Any] | None = None,
    *,
    alpha: float = DEFAULT_ALPHA,
    effort: float = DEFAULT_EFFORT,
    known_failures: Path | None = None,
    salvage: bool = False,
) -> str:
    """`specverify check` of this subject, to which a rerun adds a check and a seed: see rerun_command."""
    words = ["specverify", "check", subject]
    for key, value in (options or {}).items():
        words += ["--model", str(value)] if key == "model" else ["--option", f"{key}={value}"]
    if alpha != DEFAULT_ALPHA:
        words += ["--alpha", f"{alpha!r}"]
    if effort != DEFAULT_EFFORT:
        words += ["--effort", f"{effort!r}"]
    if known_failures is not None:
        words += ["--known-failures", str(known_failures)]
    if salvage:
        words.append("--salvage")
    return shlex.join(words)


def rerun_command(command: str, check_id: str, seed: int) -> str:
    """The command with this check and this seed; empty where there is no command."""
    return f"{command} --select {check_id} --seed {seed}" if command else ""
