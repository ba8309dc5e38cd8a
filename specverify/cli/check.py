"""`specverify check`: builds the subjects, runs the checks on all cores, prints what was found and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specverify.adapters.resolve import resolve_subjects
from specverify.catalogue import select
from specverify.cli.screen import Screen
from specverify.core.errors import UsageError
from specverify.core.outcomes import Report
from specverify.known_failures import read_known_failures
from specverify.parallel import run_on_cores
from specverify.profiles import profile
from specverify.report.json import report_as_dict, write_json


@dataclass(frozen=True)
class CheckOptions:
    """The command line of `specverify check`, parsed."""

    subject: str
    select: tuple[str, ...] | None
    seed: int
    alpha: float
    effort: float
    profile: str | None
    known_failures: Path | None
    options: Mapping[str, Any]
    jobs: int
    json_file: Path | None
    html_file: Path | None


def run_check(given: CheckOptions) -> int:
    """Runs it and returns the exit status of the report."""
    if not 0.0 < given.alpha < 1.0:
        raise UsageError(f"--alpha is {given.alpha:g}; give the chance of a false alarm per run, between 0 and 1")
    if given.effort <= 0.0:
        raise UsageError(f"--effort is {given.effort:g}; give a factor above 0 (1 is the default)")
    for file in (given.json_file, given.html_file):
        if file is not None and not file.absolute().parent.is_dir():
            raise UsageError(f"cannot write {file}: there is no folder {file.absolute().parent}")
    checks = select(given.select)
    required = profile(given.profile) if given.profile else ()
    known = read_known_failures(given.known_failures) if given.known_failures else None
    screen = Screen()
    with screen.status(f"loading {given.subject}"):
        subjects = resolve_subjects(given.subject, options=given.options)
    screen.expect(len(subjects) * len(checks))
    with screen.running():
        report = run_on_cores(
            subjects, checks, jobs=given.jobs, monitor=screen.monitor, alpha=given.alpha, seed=given.seed,
            effort=given.effort, required=required, known_failures=known, rerun=rerun_command(given),
        )  # fmt: skip
    screen.print_report(report)
    if given.json_file is not None:
        write_json(report_as_dict(report), given.json_file)
    if given.html_file is not None:
        from specverify.report.html import write_html

        write_html(report, given.html_file)
    screen.print_next(next_command(report, given))
    return report.exit_status


def rerun_command(given: CheckOptions) -> str:
    """The command that was given, without what a rerun of one check replaces."""
    options = "".join(
        f" --model {value}" if key == "model" else f" --option {key}={value}" for key, value in given.options.items()
    )
    return f"specverify check {given.subject}{options}"


def next_command(report: Report, given: CheckOptions) -> str:
    """One obvious next command."""
    failed = next((result for result in report.results if result.is_new_failure), None)
    if failed is not None:
        return f"specverify explain {failed.check_id}"
    if report.undecided:
        return f"specverify explain {report.undecided[0].check_id}"
    if given.subject == "transformers" and "assistant_ensemble_weight" not in given.options:
        return "specverify check transformers --option assistant_ensemble_weight=0.7    (a lossy switch: see it fail)"
    if given.html_file is None:
        return f"{rerun_command(given)} --html report.html"
    return "specverify list"
