"""Declares a check once; test ids, skip reasons, listings, docs and the kill matrix all come from here."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from specverify.core.capabilities import Capability
from specverify.core.errors import UsageError
from specverify.core.outcomes import Finding, Kind
from specverify.core.randomness import Streams

_ID_FORM = re.compile(r"[a-z]+(-[a-z]+)*\.[a-z]+(-[a-z]+)*")


class Inconclusive(Exception):
    """Raised by a check that cannot decide; its text is the reason that the user reads."""


@dataclass(frozen=True)
class Exercised:
    """What must have happened for a pass to mean anything: a counter of the context, and how often."""

    counter: str
    at_least: int = 1

    @property
    def wanted(self) -> str:
        """As a reader is told: some rejections; at least 30 drafted tokens."""
        amount = "some" if self.at_least == 1 else f"at least {self.at_least}"
        return f"{amount} {self.counter.replace('-', ' ')}"


@dataclass
class CheckContext:
    """What a check is handed besides its subject.

    alpha: the share of the run's alarm budget that this check may spend.
    effort: 1.0 is the default amount of sampling; profiles scale it.
    streams: named random streams. counters: what was exercised. figures: numbers for the report.
    shared: evidence collected once for several checks (for instance standard traces), by name.
    progress: called with (label, done, total) on anything that may take over two seconds.
    """

    alpha: float
    streams: Streams
    effort: float = 1.0
    counters: Counter[str] = field(default_factory=Counter)
    figures: dict[str, Any] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    worth_lines: list[str] = field(default_factory=list)
    progress: Callable[[str, int, int], None] = lambda label, done, total: None

    def exercised(self, counter: str, times: int = 1) -> None:
        self.counters[counter] += times

    def worth(self, line: str) -> None:
        """Says what a pass is worth: how much was seen and what it would have caught."""
        self.worth_lines.append(line)


CheckFunction = Callable[[Any, CheckContext], Iterator[Finding]]


@dataclass(frozen=True)
class Check:
    """One claim about a subject, and how to judge it.

    needs: capabilities without which the check is UNSUPPORTED. exercised_by: conditions without which a pass is
    INCONCLUSIVE. catches: names of the planted faults it must catch. statistical checks spend from the budget.
    per_call: it can judge live traffic, one call at a time. runs_alone: it takes long and shares no evidence with
    other checks, so that another process may run it.
    """

    id: str
    claim: str
    kind: Kind
    needs: frozenset[Capability]
    exercised_by: tuple[Exercised, ...]
    catches: tuple[str, ...]
    source: str
    judge: CheckFunction
    per_call: bool = False
    runs_alone: bool = False
    origin: str = "specverify"

    @property
    def claims_losslessness(self) -> bool:
        """Whether a subject that declares itself lossy is excused from this check."""
        return self.id.startswith(("lossless.", "greedy.")) or self.id == "acceptance.matches-laws"

    @property
    def description(self) -> str:
        return (self.judge.__doc__ or "").strip()

    def missing(self, capabilities: Iterable[Capability]) -> frozenset[Capability]:
        return self.needs - frozenset(capabilities)


_CHECKS: dict[str, Check] = {}


def check(
    check_id: str,
    *,
    claim: str,
    kind: Kind,
    needs: Iterable[Capability],
    catches: Iterable[str],
    source: str,
    exercised_by: Exercised | tuple[Exercised, ...] = (),
    per_call: bool = False,
    runs_alone: bool = False,
    origin: str = "specverify",
) -> Callable[[CheckFunction], CheckFunction]:
    """Registers the function below as a check.

    The function takes (subject, context) and yields findings; raising Inconclusive ends it undecided.
    Raises UsageError where the declaration is malformed or the id is taken.
    """

    def register(function: CheckFunction) -> CheckFunction:
        if not _ID_FORM.fullmatch(check_id):
            raise UsageError(f"check id {check_id!r} is not of the form family.what-must-hold; use lower-case words")
        if check_id in _CHECKS:
            raise UsageError(f"check id {check_id!r} is registered twice; rename one of the two")
        for name, value in (("claim", claim), ("source", source), ("catches", tuple(catches))):
            if not value:
                raise UsageError(f"check {check_id!r} has no {name}; every check states one")
        conditions = exercised_by if isinstance(exercised_by, tuple) else (exercised_by,)
        _CHECKS[check_id] = Check(
            id=check_id,
            claim=claim,
            kind=kind,
            needs=frozenset(needs),
            exercised_by=conditions,
            catches=tuple(catches),
            source=source,
            judge=function,
            per_call=per_call,
            runs_alone=runs_alone,
            origin=origin,
        )
        return function

    return register


def registered() -> dict[str, Check]:
    """Every check registered so far, by id. Use specverify.catalogue.all_checks, which loads the modules first."""
    return _CHECKS
