"""Subjects and checks made for testing the runner: each does one thing on purpose."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from specverify.checks.registry import Check, CheckContext, CheckFunction, Exercised, Inconclusive
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table


class FakeSubject:
    """A subject that declares whatever it is told to."""

    def __init__(self, name: str = "fake", *capabilities: Capability, lossy_by_design: str = "") -> None:
        self.name = name
        self.capabilities = frozenset(capabilities)
        self.lossy_by_design = lossy_by_design


def fake_check(
    judge: CheckFunction,
    check_id: str = "fake.holds",
    *,
    needs: tuple[Capability, ...] = (),
    kind: Kind = Kind.EXACT,
    exercised_by: tuple[Exercised, ...] = (),
    runs_alone: bool = False,
) -> Check:
    """A check that is not registered anywhere."""
    return Check(
        id=check_id,
        claim="A fake claim must hold.",
        kind=kind,
        needs=frozenset(needs),
        exercised_by=exercised_by,
        catches=("fake-fault",),
        source="made up",
        judge=judge,
        runs_alone=runs_alone,
    )


def passes(subject: Any, context: CheckContext) -> Iterator[Finding]:
    context.worth("three steps seen")
    yield from ()


def fails(subject: Any, context: CheckContext) -> Iterator[Finding]:
    yield Finding(
        headline="Token 3 was emitted.",
        table=Table([["observed", "3"], ["wanted", "4"]]),
        not_noise="Not noise.",
        likely_cause="an off-by-one row.",
        details={"observed": [0.0, 1.0], "wanted": [1.0, 0.0]},
    )


def cannot_decide(subject: Any, context: CheckContext) -> Iterator[Finding]:
    raise Inconclusive("nothing was drafted")
    yield


def crashes(subject: Any, context: CheckContext) -> Iterator[Finding]:
    int("not a number")
    yield from ()


def finds_then_crashes(subject: Any, context: CheckContext) -> Iterator[Finding]:
    yield Finding(headline="Found before the crash.")
    raise RuntimeError("engine went away")


def interrupts(subject: Any, context: CheckContext) -> Iterator[Finding]:
    raise KeyboardInterrupt
    yield


def kills_the_process(subject: Any, context: CheckContext) -> Iterator[Finding]:
    os.kill(os.getpid(), 9)
    yield from ()
