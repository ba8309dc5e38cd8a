"""Importing the package or its plugin costs nobody anything."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "scipy", "hypothesis", "transformers", "rich", "typer")


@pytest.mark.parametrize("module", ["specverify", "specverify.pytest_plugin"])
def test_import_is_light(module):
    """No heavy package is loaded by importing the package or by the plugin, which every pytest session loads."""
    code = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded.strip() == "[]"


def test_decorating_is_light():
    """A module that wraps its verify function pays for nothing until it checks."""
    code = (
        "import sys; from specverify import verified\n"
        "@verified\ndef verify(draft_token_ids, draft_probs, target_probs, rng): return []\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded.strip() == "[]"
