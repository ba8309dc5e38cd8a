"""Joins template, style and scripts into one self-contained page: no network, works from a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from specverify.core.errors import UsageError
from specverify.laws.economics import SOURCES
from specverify.playground.traces import page_trace
from specverify.trace.files import READABLE_VERSIONS, TraceFile, read_traces

# In the order in which they need each other.
_SCRIPTS = ("economics.js", "trace.js", "rounds.js", "charts.js", "stepper.js", "page.js")


def render_page(trace: Mapping[str, Any] | None = None) -> str:
    """The page as text. trace: from traces.page_trace, to start with."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_file("page.html")).render(
        sources=SOURCES,
        css=_file("page.css"),
        scripts=[_file(name) for name in _SCRIPTS],
        data=_json({"sources": [asdict(source) for source in SOURCES], "versions": READABLE_VERSIONS, "trace": trace}),
    )


def write_page(path: Path, *, trace_file: Path | None = None) -> TraceFile | None:
    """Writes the page, with what the trace file holds if one is given, and returns that.

    A trace file that was cut short is shown as far as it goes.
    Raises UsageError where the trace file is none or is damaged, holds no steps, or where path cannot be written.
    """
    file = None if trace_file is None else read_traces(trace_file, salvage=True)
    if file is not None and not any(trace.steps for trace in file.traces):
        raise UsageError(f"{trace_file} holds no speculation steps to show; record a run with speculation switched on")
    text = render_page(None if file is None or trace_file is None else page_trace(file, name=trace_file.name))
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; give --out a file in a folder that exists") from error
    return file


def _file(name: str) -> str:
    return resources.files("specverify.playground").joinpath(name).read_text(encoding="utf-8")


def _json(data: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(data).replace("<", "\\u003c")
