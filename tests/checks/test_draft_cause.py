"""What a wrong draft law is put down to: one guess that the oracle confirms, or none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specverify.adapters.resolve import as_subject
from specverify.core.outcomes import Outcome
from specverify.core.types import SamplingParams
from specverify.faults.engine_parts import DeclaresDraftSampling, Planted
from specverify.runner import run_checks
from specverify.selftest import specimens

CHECKS = ("acceptance.matches-laws", "draft.law-as-computed-afresh")
SPECIMENS = {one.name: one for one in specimens()}
plant = Planted()


@plant("declares-a-cooler-law", "")
class _Cooler:
    """Declares its law at 0.8 times the temperature that it draws at."""

    def declared_law(self, batch, law, logits):
        return (logits / 0.8).softmax(dim=-1)


def causes_of(subject):
    results = run_checks(subject, ids=CHECKS, seed=0, effort=0.25).results
    assert all(result.outcome is Outcome.FAILED for result in results)
    return [result.findings[0].likely_cause for result in results]


def made(name):
    return as_subject(SPECIMENS[name].make(), name)


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("draft-kv-not-rolled-back", "the row of a rejected draft token stays in the draft model's cache"),
        ("position-draft-ahead", "computes the draft tokens one position too far"),
        ("position-draft-stays", "computes every draft token at the position of the first"),
        ("draft-rotary-stretched", "as if positions were divided by 4"),
        ("draft-rotary-yarn", "before any cache row was left behind"),
        ("draft-quantised-scale-missing", "before any cache row was left behind"),
    ],
)
def test_the_cause_is_named(fault, cause):
    assert all(cause in said for said in causes_of(made(fault)))


def test_another_temperature_is_named_with_its_value():
    fault = next(one for one in plant.faults if one.name == "declares-a-cooler-law")

    held_to_requests = DeclaresDraftSampling(as_subject(fault.make(), fault.name), SamplingParams())
    assert all("at 0.8 times the temperature" in said for said in causes_of(held_to_requests))


@pytest.mark.parametrize("fault", ["batch-draft-neighbour", "draft-kv-row-stale"])
def test_nothing_is_named_where_no_guess_fits(fault):
    assert causes_of(made(fault)) == ["", ""]


def test_a_cause_is_one_sentence_about_this_engine():
    """It follows "Most likely:"."""
    subject = made("draft-rotary-stretched")
    (said, _) = causes_of(replace(subject, name="another"))

    assert said.endswith(".")
    assert said[0].islower()
