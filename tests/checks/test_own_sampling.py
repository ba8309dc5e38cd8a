"""A drafter with a way of sampling of its own: held to what it declares, undecided where it declares nothing."""

from __future__ import annotations

import numpy as np
import pytest

from specverify.checks.own_sampling import draft_sampling, undeclared_text
from specverify.core.errors import UsageError
from specverify.core.outcomes import Outcome
from specverify.core.types import SamplingParams
from specverify.faults.engine_correct import OwnSampling
from specverify.faults.engine_parts import DeclaresDraftSampling, probe_engine
from specverify.laws.sampling import law_from_logits
from specverify.reference.subject import Parts
from specverify.runner import run_checks

CHECKS = ("acceptance.self-drafter-accepts", "draft.law-as-computed-afresh", "acceptance.matches-laws")


class _Engine:
    name = "drafts in its own way"


def rows(sampling: SamplingParams, num: int = 40, vocab_size: int = 32) -> tuple[np.ndarray, np.ndarray]:
    logits = np.random.default_rng(5).normal(size=(num, vocab_size)) * 2.0
    return law_from_logits(logits, sampling), law_from_logits(logits, SamplingParams())


def subject():
    return probe_engine("own sampling", every_option=False, parts=Parts(proposer_mixin=OwnSampling))


@pytest.fixture(scope="module")
def undeclared():
    return run_checks(subject(), ids=CHECKS, seed=0, effort=0.06).results


@pytest.mark.parametrize(
    ("sampling", "told"),
    [
        (SamplingParams(temperature=0.6), "(temperature=0.6)"),
        (SamplingParams(top_k=4), "(top_k=4)"),
        (SamplingParams(temperature=1.4, top_k=10), "(temperature=1.4, top_k=10)"),
        (SamplingParams(temperature=0.7, min_p=0.05), "min_p=0.0"),
        (SamplingParams(top_p=0.8), "(top_p=0."),
    ],
)
def test_a_way_of_sampling_is_told_from_the_laws_alone(sampling: SamplingParams, told: str) -> None:
    given, plain = rows(sampling)

    assert told in undeclared_text(_Engine(), list(given), list(plain), 1e-4)


def test_a_few_stale_rows_do_not_hide_it_and_are_no_way_of_sampling_themselves() -> None:
    given, plain = rows(SamplingParams(temperature=0.6))
    given[[3, 17, 31]] = given[[4, 18, 32]]
    assert "temperature=0.6" in undeclared_text(_Engine(), list(given), list(plain), 1e-4)

    stale, plain = np.roll(plain, 1, axis=0), plain
    assert undeclared_text(_Engine(), list(stale), list(plain), 1e-4) == ""


def test_the_requests_own_way_needs_no_declaration() -> None:
    given, plain = rows(SamplingParams())

    assert undeclared_text(_Engine(), list(given), list(plain), 1e-4) == ""


@pytest.mark.parametrize("check_id", CHECKS)
def test_undeclared_it_is_undecided_and_told_what_to_declare(undeclared, check_id: str) -> None:
    result = next(one for one in undeclared if one.check_id == check_id)

    assert result.outcome is Outcome.INCONCLUSIVE
    assert "draft_sampling = SamplingParams(temperature=0.6, top_k=3)" in result.reason


@pytest.mark.parametrize("check_id", CHECKS)
def test_another_way_than_the_declared_one_is_a_finding(check_id: str) -> None:
    wrong = DeclaresDraftSampling(subject(), SamplingParams(temperature=0.8))

    (result,) = run_checks(wrong, ids=[check_id], seed=0, effort=0.06).results
    assert result.outcome is Outcome.FAILED


def test_what_is_declared_must_be_sampling_params() -> None:
    with pytest.raises(UsageError, match=r"draft_sampling is a dict; give specverify.core.types.SamplingParams"):
        draft_sampling(DeclaresDraftSampling(_Engine(), {"temperature": 0.6}), SamplingParams())  # type: ignore[arg-type]
