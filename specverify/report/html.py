"""A report as one self-contained HTML page: no network, readable on a phone and in the dark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from specverify import __version__
from specverify.core.errors import UsageError
from specverify.core.outcomes import CheckResult, Outcome, Report
from specverify.report.json import plain
from specverify.report.plots import law_plot
from specverify.report.text import render_result, render_summary


def render_html(report: Report, *, command: str = "") -> str:
    """The page as text. command: what was typed, for who reads the page later."""
    template = resources.files("specverify.report").joinpath("template.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    subjects = [
        {
            "name": name,
            "results": list(_in_reading_order(report, name)),
            "unsupported": list(_unsupported(report, name)),
        }
        for name in dict.fromkeys(result.subject for result in report.results)
    ]
    return environment.from_string(template).render(
        subjects=subjects,
        summary=render_summary(report),
        counts=[(outcome.value, report.count(outcome)) for outcome in Outcome],
        origin=f"specverify {__version__}, {datetime.now().astimezone():%Y-%m-%d %H:%M %Z}",
        command=command,
        failed=report.count(Outcome.FAILED) > 0,
    )


# What a reader looks for first comes first.
_READING_ORDER = (Outcome.FAILED, Outcome.CRASHED, Outcome.INCONCLUSIVE, Outcome.PASSED)


def _in_reading_order(report: Report, subject: str) -> Iterator[Mapping[str, Any]]:
    for outcome in _READING_ORDER:
        for result in report.results:
            if result.subject == subject and result.outcome is outcome:
                yield _view(result)


def _unsupported(report: Report, subject: str) -> Iterator[Mapping[str, Any]]:
    for result in report.results:
        if result.subject == subject and result.outcome is Outcome.UNSUPPORTED:
            yield {"id": result.check_id, "reason": result.reason}


def write_html(report: Report, path: Path, *, command: str = "") -> None:
    """Writes the page. Raises UsageError where path cannot be written."""
    try:
        path.write_text(render_html(report, command=command), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}; give --html a file in a folder that exists"
        ) from error


def _view(result: CheckResult) -> Mapping[str, Any]:
    return {
        "id": result.check_id,
        "outcome": result.outcome.value,
        "claim": result.claim,
        "text": result.worth if result.outcome is Outcome.PASSED else result.reason,
        "message": render_result(result) if result.outcome is Outcome.FAILED else result.figures.get("traceback", ""),
        "more": [_finding_view(finding) for finding in result.findings],
        "figures": _figures(result.figures),
        "seconds": f"{result.seconds:.1f}",
        "known": result.known_failure,
        "rerun": result.rerun,
    }


def _finding_view(finding: Any) -> Mapping[str, Any]:
    return {
        "headline": finding.headline,
        "rows": finding.table.rows if finding.table else (),
        "not_noise": finding.not_noise,
        "where": finding.where,
        "likely_cause": finding.likely_cause,
        "plot": law_plot(finding.details),
    }


def _figures(figures: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    return [
        (name.replace("_", " "), f"{value:.4g}" if isinstance(value, float) else str(plain(value)))
        for name, value in figures.items()
        if name != "traceback"
    ]
