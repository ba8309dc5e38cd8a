"""`specverify record` and `specverify replay`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from specverify.cli.screen import Screen
from specverify.core.outcomes import Outcome
from specverify.golden import record, replay
from specverify.trace.files import read_traces


def run_record(engine: str, recipe: Path, *, update: bool) -> int:
    """Records the recipe and says what was recorded."""
    screen = Screen()
    with screen.status(f"recording {recipe}"):
        path = record(engine, recipe, update=update)
    traces = read_traces(path).traces
    steps = [step for trace in traces for step in trace.steps]
    out = Console(highlight=False, soft_wrap=True)
    out.print(
        f"recorded  {path}   {len(traces)} requests, {len(steps)} steps, "
        f"{sum(step.is_rejection for step in steps)} with a rejection"
    )
    out.print(Text.assemble(("Next  ", "bold"), f"specverify replay {path} --engine {engine}"))
    return 0


def run_replay(traces: Path, engine: str, *, json_file: Path | None, html_file: Path | None) -> int:
    """Replays and prints the report; returns its exit status."""
    screen = Screen()
    with screen.status(f"replaying {traces}"):
        report = replay(traces, engine=engine)
    # What follows a failure is reading on: the command that was just typed would print the same again.
    wrong = [result for result in report.results if result.is_new_failure or result.outcome is Outcome.CRASHED]
    following = f"specverify explain {wrong[0].check_id}" if wrong else "specverify selftest"
    screen.finish(report, following, json_file, html_file)
    return report.exit_status
