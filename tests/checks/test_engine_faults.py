"""Every engine fault is caught by the checks that name it; every correct engine is left alone."""

from __future__ import annotations

import pytest

from specverify import catalogue
from specverify.core.outcomes import Kind, Outcome
from specverify.faults import engine
from specverify.runner import run_checks

FAULTS = {fault.name: fault for fault in engine.FAULTS}
CORRECT = {subject.name: subject for subject in engine.CORRECT}


def checks_naming(name):
    return [one.id for one in catalogue.all_checks() if name in one.catches]


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_fault_is_caught_by_the_exact_checks_that_name_it(name):
    """A check that promises to catch a fault catches it."""
    ids = [i for i in checks_naming(name) if catalogue.check_by_id(i).kind is Kind.EXACT and "sequence" not in i]
    if not ids:
        pytest.skip("named by statistical or enumerating checks only; the self-test runs those")

    report = run_checks(FAULTS[name].make(), ids=ids)

    assert dict.fromkeys(ids, Outcome.FAILED) == {result.check_id: result.outcome for result in report.results}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_every_fault_is_named_by_a_check(name):
    """A planted bug that no check promises to catch proves nothing."""
    assert checks_naming(name)


@pytest.mark.parametrize("fault", engine.FAULTS, ids=lambda fault: fault.name)
def test_every_fault_names_its_report(fault):
    """The public report it stands for, a sentence, and a subject that can be built."""
    assert fault.report.count("/") >= 1
    assert fault.sentence.endswith(".")
    assert fault.make().name.startswith(fault.name)
