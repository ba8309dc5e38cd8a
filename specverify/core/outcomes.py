"""What a check can say, and what it says it with."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class Outcome(enum.Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"  # the situation the claim is about never arose, or the sample could not decide
    UNSUPPORTED = "unsupported"  # a capability is missing
    CRASHED = "crashed"  # the subject raised


class Kind(enum.Enum):
    """Whether a check can be wrong by luck."""

    EXACT = "exact"
    STATISTICAL = "statistical"


@dataclass(frozen=True)
class Table:
    """A few rows of numbers or words, printed in columns. Cells are already rounded for reading."""

    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Finding:
    """One broken claim, as data, in the order in which a reader needs it.

    headline: the smallest case, in one sentence.
    table: observed beside wanted.
    not_noise: why neither luck nor rounding explains it.
    where: in which step, slot, row or prefix, a line each.
    likely_cause: only if the law that this cause predicts fits; empty otherwise.
    details: figures for the JSON and HTML reports (JSON types only).
    """

    headline: str
    table: Table | None = None
    not_noise: str = ""
    where: Sequence[str] = ()
    likely_cause: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckResult:
    """How one check ended on one subject.

    worth: what a pass was worth (steps, rejections, smallest total variation it would have caught).
    reason: why the check was inconclusive, unsupported or crashed.
    figures: numbers for the JSON report.
    """

    check_id: str
    subject: str
    outcome: Outcome
    findings: Sequence[Finding] = ()
    worth: str = ""
    reason: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    known_failure: str = ""


@dataclass(frozen=True)
class Report:
    """Everything one run found. The three uses, the CLI and the HTML page all print this."""

    results: Sequence[CheckResult]
    seed: int
    alpha: float
    seconds: float = 0.0
    command: str = ""

    def count(self, outcome: Outcome) -> int:
        return sum(1 for result in self.results if result.outcome is outcome)

    @property
    def exit_status(self) -> int:
        """0 passed, 1 a finding, 3 nothing decided or a required ability missing, 4 the subject crashed."""
        if any(r.outcome is Outcome.FAILED and not r.known_failure for r in self.results):
            return 1
        if self.count(Outcome.CRASHED):
            return 4
        # Unsupported checks alone are no problem: an engine shows what it can. Deciding nothing is.
        if self.count(Outcome.INCONCLUSIVE) or not self.count(Outcome.PASSED):
            decided = self.count(Outcome.PASSED) + self.count(Outcome.FAILED)
            if self.count(Outcome.INCONCLUSIVE) or not decided:
                return 3
        return 0
