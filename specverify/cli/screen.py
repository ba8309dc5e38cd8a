"""What a person sees while and after a run: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from specverify.core.outcomes import CheckResult, Outcome, Report
from specverify.report.json import report_as_dict, write_json
from specverify.report.text import render_result, render_summary, wrapped
from specverify.report.unsupported import unsupported_text
from specverify.runner import Monitor

STYLES = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "bold red",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.UNSUPPORTED: "dim",
    Outcome.CRASHED: "bold magenta",
}


class Screen:
    """Results go to standard output; progress goes to standard error and vanishes when it is over."""

    def __init__(self) -> None:
        self.out = Console(highlight=False, soft_wrap=True)
        self.err = Console(stderr=True, highlight=False)
        self.monitor = Monitor(on_start=self._started, on_progress=self._progressed, on_result=self._ended)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=self.err,
            transient=True,
            disable=not self.err.is_terminal,
        )
        self._overall: TaskID | None = None
        self._tasks: dict[str, TaskID] = {}

    @contextlib.contextmanager
    def status(self, text: str) -> Iterator[None]:
        """Shows text with a spinner while the block runs; as a line where there is no terminal."""
        if self.err.is_terminal:
            with self.err.status(text):
                yield
        else:
            self.err.print(text, soft_wrap=True)
            yield

    def expect(self, num_checks: int) -> None:
        """Says how many checks will run."""
        self._overall = self._progress.add_task("checks", total=num_checks, note="")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with self._progress:
            yield

    def print_report(self, report: Report) -> None:
        """Subject by subject; checks that a subject does not support are counted, not listed."""
        for subject in dict.fromkeys(result.subject for result in report.results):
            self.out.print(Text(subject, style="bold"))
            own = [result for result in report.results if result.subject == subject]
            for result in own:
                if result.outcome is not Outcome.UNSUPPORTED or result.check_id in report.required:
                    self.out.print(coloured(result))
            # Those of a profile were printed one by one above.
            rest = [r.figures for r in own if r.outcome is Outcome.UNSUPPORTED and r.check_id not in report.required]
            if rest:
                text = "\n".join(wrapped(f"unsupported  {unsupported_text(rest)}", indent="", hanging="    "))
                self.out.print(Text(text, style="dim"))
            self.out.print()
        self.out.print(render_summary(report))

    def finish(self, report: Report, next_command: str, json_file: Path | None, html_file: Path | None) -> None:
        """Prints the report, writes it to the files that were asked for, and says what to do next."""
        self.print_report(report)
        if json_file is not None:
            write_json(report_as_dict(report), json_file)
        if html_file is not None:
            from specverify.report.html import write_html

            write_html(report, html_file, command=shlex.join(["specverify", *sys.argv[1:]]))
        self.print_next(next_command)

    def print_next(self, command: str) -> None:
        """The one obvious next command."""
        self.out.print(Text.assemble(("Next  ", "bold"), command))

    def _started(self, subject: str, check_id: str) -> None:
        if subject not in self._tasks:
            self._tasks[subject] = self._progress.add_task(subject, total=None, note="")
        self._progress.update(self._tasks[subject], total=None, completed=0, note=check_id)

    def _progressed(self, subject: str, label: str, done: int, total: int) -> None:
        if subject in self._tasks:
            self._progress.update(self._tasks[subject], total=total or None, completed=done, note=label)

    def _ended(self, result: CheckResult) -> None:
        if self._overall is not None:
            self._progress.advance(self._overall)
        if not self.err.is_terminal and result.outcome is not Outcome.UNSUPPORTED:
            self.err.print(
                f"{result.outcome.value:12} {result.check_id}  {result.subject}  {result.seconds:.1f} s", soft_wrap=True
            )


def coloured(result: CheckResult) -> Text:
    """The result as text with its first word in the colour of the outcome."""
    text = Text(render_result(result))
    word = len(result.outcome.value)
    text.stylize(STYLES[result.outcome], 0, word)
    if result.outcome is Outcome.FAILED:
        text.stylize("bold", word, len(text.plain.split("\n", 1)[0]))
    return text
