"""`specverify check`: builds the subjects, runs the checks on all cores, prints what was found and what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specverify.adapters.resolve import resolve_subjects
from specverify.catalogue import select as select_checks
from specverify.cli.screen import Screen
from specverify.core.errors import UsageError
from specverify.core.outcomes import Outcome, Report
from specverify.known_failures import read_known_failures
from specverify.parallel import run_on_cores
from specverify.profiles import profile as profile_ids
from specverify.report.commands import check_command
from specverify.selftest import specimens, subject_of


def run_check(
    subject: str, *, select: Sequence[str] | None, seed: int, alpha: float, effort: float, profile: str | None,
    known_failures: Path | None, options: Mapping[str, Any], jobs: int, salvage: bool, json_file: Path | None,
    html_file: Path | None,
) -> int:  # fmt: skip
    """Runs it and returns the exit status of the report."""
    if not 0.0 < alpha < 1.0:
        raise UsageError(f"--alpha is {alpha:g}; give the chance of a false alarm per run, between 0 and 1")
    if effort <= 0.0:
        raise UsageError(f"--effort is {effort:g}; give a factor above 0 (1 is the default)")
    for file in (json_file, html_file):
        if file is not None and not file.absolute().parent.is_dir():
            raise UsageError(f"cannot write {file}: there is no folder {file.absolute().parent}")
    checks = select_checks(select)
    required = profile_ids(profile) if profile else ()
    known = read_known_failures(known_failures) if known_failures else None
    rerun = check_command(subject, options, alpha=alpha, effort=effort, known_failures=known_failures, salvage=salvage)
    screen = Screen()
    with screen.status(f"loading {subject}"):
        subjects = _subjects(subject, options, salvage)
    screen.expect(len(subjects) * len(checks))
    with screen.running():
        report = run_on_cores(
            subjects, checks, jobs=jobs, monitor=screen.monitor, alpha=alpha, seed=seed, effort=effort,
            required=required, known_failures=known, rerun=rerun,
        )  # fmt: skip
    screen.finish(report, _next_command(report, subject, options, rerun, html_file), json_file, html_file)
    return report.exit_status


def _subjects(subject: str, options: Mapping[str, Any], salvage: bool) -> Sequence[Any]:
    """What the word names; a fault or a correct subject of the self-test too, so that the commands of docs work."""
    specimen = next((one for one in specimens() if one.name == subject), None) if _may_be_specimen(subject) else None
    if specimen is None:
        return resolve_subjects(subject, options=options, salvage=salvage)
    if options:
        raise UsageError(f"{subject} is a subject of the self-test, which takes no options")
    return [subject_of(specimen)]


def _may_be_specimen(subject: str) -> bool:
    """Spares everybody else the import of all faults: their names are words with hyphens."""
    return subject.replace("-", "").isalnum() and "-" in subject and not Path(subject).exists()


def _next_command(report: Report, subject: str, options: Mapping[str, Any], rerun: str, html_file: Path | None) -> str:
    """One obvious next command."""
    failed = [result for result in report.results if result.is_new_failure]
    if not failed and report.count(Outcome.CRASHED) and html_file is None:
        return f"{rerun} --html report.html    (has the tracebacks)"
    if failed or report.undecided:
        return f"specverify explain {(failed or report.undecided)[0].check_id}"
    if subject == "transformers" and "assistant_ensemble_weight" not in options:
        return "specverify check transformers --option assistant_ensemble_weight=0.7    (a lossy switch: see it fail)"
    return "specverify list" if html_file is not None else f"{rerun} --html report.html"
