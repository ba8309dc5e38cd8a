"""The benchmarks are run by hand, so that they may rot: what they build of the self-test's subjects is built here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

_BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def false_alarms(monkeypatch):
    monkeypatch.syspath_prepend(str(_BENCHMARKS))
    import false_alarms

    yield false_alarms
    for name in ("false_alarms", "false_alarms_page"):
        sys.modules.pop(name, None)


def test_every_correct_subject_can_be_made_for_a_run_of_false_alarms(false_alarms):
    names = false_alarms.names()
    for name in names:
        subject = false_alarms.made(name, seed=1)
        assert false_alarms.applicable(subject, is_full=False), name
    assert any(name.endswith(false_alarms.HIDDEN) for name in names)


def test_a_run_of_false_alarms_gets_prompts_of_its_own(false_alarms):
    one, other = (false_alarms.made("engine-tree", seed=seed) for seed in (1, 2))
    assert one.scenarios[0].prompts != other.scenarios[0].prompts
