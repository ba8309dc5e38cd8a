"""`specverify play`: writes the page and opens it."""

from __future__ import annotations

import tempfile
import webbrowser
from pathlib import Path

from rich.console import Console
from rich.text import Text

from specverify.playground.page import write_page


def run_play(trace_file: Path | None, out: Path | None) -> None:
    """With out only writes the file; otherwise writes one among the temporary files and opens it in the browser."""
    path = out
    if path is None:
        path = Path(tempfile.mkdtemp(prefix="specverify-play-")) / "play.html"
    file = write_page(path, trace_file=trace_file)
    console = Console(highlight=False, soft_wrap=True)
    if file is not None:
        steps = sum(len(trace.steps) for trace in file.traces)
        note = "" if file.is_complete else "; the file was cut short, this is what is there"
        console.print(f"trace   {trace_file}   {len(file.traces)} requests, {steps} steps{note}")
    console.print(f"page    {path}   one file, no network")
    if out is None and not webbrowser.open(path.resolve().as_uri()):
        console.print("No browser could be opened here: open that file in one.")
    salvage = "" if file is None or file.is_complete else " --salvage"
    hint = "specverify play TRACE_FILE" if trace_file is None else f"specverify check {trace_file}{salvage}"
    note = "    (step through a run that specverify record wrote)" if trace_file is None else ""
    console.print(Text.assemble(("Next  ", "bold"), f"{hint}{note}"))
