"""An engine that shows less than ours: every check still judges it, or says what is missing, and none crashes."""

from __future__ import annotations

from typing import Any

import pytest

from specverify.adapters.reference import reference_engine
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.runner import run_checks


class Hiding:
    """An engine with some of its abilities hidden; without LOAD_CHECKPOINT it has no checkpoint either."""

    def __init__(self, engine: Any, hidden: frozenset[Capability]) -> None:
        self._engine = engine
        self._hidden = hidden

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self._engine.capabilities - self._hidden

    def __getattr__(self, name: str) -> Any:
        if name == "checkpoint" and Capability.LOAD_CHECKPOINT in self._hidden:
            raise AttributeError(name)
        return getattr(self._engine, name)

    def with_proposer(self, drafter: str) -> Hiding:
        return Hiding(self._engine.with_proposer(drafter), self._hidden)

    def quiet(self) -> Hiding:
        return Hiding(self._engine.quiet(), self._hidden)


@pytest.mark.parametrize(
    "hidden",
    [
        {Capability.LOAD_CHECKPOINT},
        {Capability.LOAD_CHECKPOINT, Capability.SCORE},
        {Capability.LOAD_CHECKPOINT, Capability.TARGET_PROBS, Capability.IN_PROCESS_RANDOMNESS},
    ],
    ids=lambda hidden: "-".join(sorted(one.name for one in hidden)),
)
def test_hidden_abilities_crash_no_check(hidden):
    """A correct engine is never crashed on or found wrong for what it cannot show."""
    report = run_checks(Hiding(reference_engine(), frozenset(hidden)), effort=0.05)

    bad = {Outcome.CRASHED, Outcome.FAILED}
    assert [(result.check_id, result.reason) for result in report.results if result.outcome in bad] == []
    assert sum(result.outcome is Outcome.PASSED for result in report.results) > 15
