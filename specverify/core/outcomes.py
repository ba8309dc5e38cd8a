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

    claim: the sentence that the check holds the subject to.
    worth: what a pass was worth (steps, rejections, smallest total variation it would have caught).
    reason: why the check was inconclusive, unsupported or crashed.
    figures: numbers for the JSON report. known_failure: the reason the user gave for expecting the failure.
    rerun: the command that runs this check on this subject again.
    """

    check_id: str
    subject: str
    outcome: Outcome
    claim: str = ""
    findings: Sequence[Finding] = ()
    worth: str = ""
    reason: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    known_failure: str = ""
    rerun: str = ""

    @property
    def is_new_failure(self) -> bool:
        return self.outcome is Outcome.FAILED and not self.known_failure


@dataclass(frozen=True)
class Report:
    """Everything one run found. The three uses, the CLI and the HTML page all print this.

    required: ids of checks that must be decided (a profile); undecided ones turn the exit status into 3.
    interrupted: why the run ended early, if it did; what had been found by then is kept.
    """

    results: Sequence[CheckResult]
    seed: int
    alpha: float
    seconds: float = 0.0
    required: frozenset[str] = frozenset()
    interrupted: str = ""

    def count(self, outcome: Outcome) -> int:
        return sum(1 for result in self.results if result.outcome is outcome)

    @property
    def undecided(self) -> Sequence[CheckResult]:
        """Inconclusive results, and required checks that the subject does not support."""
        return [
            result
            for result in self.results
            if result.outcome is Outcome.INCONCLUSIVE
            or (result.outcome is Outcome.UNSUPPORTED and result.check_id in self.required)
        ]

    @property
    def exit_status(self) -> int:
        """0 passed, 1 a finding, 3 something undecided or nothing decided at all, 4 the subject crashed."""
        if any(result.is_new_failure for result in self.results):
            return 1
        if self.count(Outcome.CRASHED):
            return 4
        decided = self.count(Outcome.PASSED) + self.count(Outcome.FAILED)
        if self.undecided or not decided or self.interrupted:
            return 3
        return 0
