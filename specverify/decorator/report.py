"""Runs the checks of one verify function, and turns broken invariants of live calls into errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specverify import catalogue
from specverify.adapters.function_traffic import RecordedCalls, VerifyCall
from specverify.core.errors import CheckFailed
from specverify.core.outcomes import Outcome, Report
from specverify.core.randomness import kept_global_randomness
from specverify.report.commands import check_command
from specverify.report.text import render_report, render_result
from specverify.runner import run_checks


@dataclass(frozen=True, repr=False)
class FunctionReport(Report):
    """A report that prints as text: `print(verify.specverify.check())`."""

    def __repr__(self) -> str:
        return render_report(self)

    @property
    def passed(self) -> bool:
        """Whether everything that could be decided passed, and something could."""
        return self.exit_status == 0

    def raise_if_failed(self) -> FunctionReport:
        """Raises CheckFailed with the text of every failure and crash; returns the report otherwise."""
        bad = [result for result in self.results if result.is_new_failure or result.outcome is Outcome.CRASHED]
        if bad:
            raise CheckFailed("\n\n".join(render_result(result) for result in bad))
        return self


def run_function_checks(subject: Any, *, ids: Sequence[str] | None, **options: Any) -> FunctionReport:
    """Runs the checks whose needs a verify function can meet; the caller's global random state is kept."""
    chosen = [one for one in catalogue.select(ids) if not one.missing(subject.capabilities) or ids is not None]
    settings = {name: options[name] for name in ("alpha", "effort") if name in options}
    rerun = check_command(subject.name, **settings) if ":" in subject.name else ""
    with kept_global_randomness():
        report = run_checks(subject, checks=chosen, rerun=rerun, **options)
    return FunctionReport(**{name: getattr(report, name) for name in report.__dataclass_fields__})


def require_invariants(name: str, calls: Sequence[VerifyCall]) -> None:
    """Judges live calls by every check that can judge single calls. Raises CheckFailed with the message."""
    subject = RecordedCalls(name, calls)
    chosen = [one for one in catalogue.all_checks() if one.per_call and not one.missing(subject.capabilities)]
    report = run_checks(subject, checks=chosen)
    failed = [result for result in report.results if result.outcome in (Outcome.FAILED, Outcome.CRASHED)]
    if failed:
        raise CheckFailed("\n\n".join(render_result(result) for result in failed))


__all__ = ["FunctionReport", "require_invariants", "run_function_checks"]
