"""Every engine fault is caught by the checks that name it; every correct engine is left alone."""

from __future__ import annotations

import pytest

from specverify import catalogue
from specverify.core.outcomes import Kind, Outcome
from specverify.faults import engine
from specverify.faults.engine_parts import probe_engine
from specverify.runner import run_checks

FAULTS = {fault.name: fault for fault in engine.FAULTS}
CORRECT = {subject.name: subject for subject in engine.CORRECT}


def exact_checks_naming(name):
    """Those of test_messages.py, which runs each check on its first fault, and of the self-test left out."""
    return [
        one.id
        for one in catalogue.all_checks()
        if name in one.catches[1:] and one.kind is Kind.EXACT and "sequence" not in one.id
    ]


@pytest.mark.parametrize("name", [name for name in sorted(FAULTS) if exact_checks_naming(name)])
def test_a_fault_is_caught_by_the_exact_checks_that_name_it(name):
    """A check that promises to catch a fault catches it."""
    ids = exact_checks_naming(name)

    report = run_checks(FAULTS[name].make(), ids=ids)

    assert dict.fromkeys(ids, Outcome.FAILED) == {result.check_id: result.outcome for result in report.results}


@pytest.mark.parametrize("fault", engine.FAULTS, ids=lambda fault: fault.name)
def test_every_fault_names_its_report(fault):
    """The public report it stands for, a sentence, and a subject that can be built."""
    assert fault.report.count("/") >= 1
    assert fault.sentence.endswith(".")
    assert fault.make().name.startswith(fault.name)


def test_rows_sampled_like_the_first_are_seen_in_single_precision():
    """Rounding is no excuse for every row of a batch."""
    fault = FAULTS["batch-sampling-of-first-row"].make()
    single = probe_engine("single", parts=fault.parts, dtype="float32")

    (result,) = run_checks(single, ids=["seed.repeats"]).results

    assert result.outcome is Outcome.FAILED
    assert "sampled otherwise" in result.findings[0].headline
