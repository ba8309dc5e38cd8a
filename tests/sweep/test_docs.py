"""The measured half of docs/economics.md."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_tables_are_those_of_the_stored_sweeps():
    """Nobody edits a measured figure by hand: the page is what docs/sweep_tables.py writes."""
    spec = importlib.util.spec_from_file_location("sweep_tables", DOCS / "sweep_tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    text = (DOCS / "economics.md").read_text(encoding="utf-8")

    assert tables.filled(text, tables.stored()) == text
