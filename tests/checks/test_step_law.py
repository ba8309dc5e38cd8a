"""The law of verify steps: correct rules pass whatever their style, planted mistakes are caught and named."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from specverify.adapters.function import FunctionSubject
from specverify.catalogue import check_by_id
from specverify.checks.registry import CheckContext
from specverify.checks.step_enumerate import enumerate_step, enumerate_steps
from specverify.checks.step_sample import sample_step
from specverify.checks.step_scenarios import dyadic_scenario, scenarios_for, standard_scenarios
from specverify.core.outcomes import Outcome
from specverify.core.randomness import Streams
from specverify.exact.errors import NotEnumerable
from specverify.faults.verify import CORRECT, FAULTS
from specverify.faults.verify_correct import TokenwiseVerifier, greedy, vectorised
from specverify.laws.residual import acceptance_efficiency
from specverify.runner import run_checks

FAULT = {fault.name: fault for fault in FAULTS}


def subject_of(name: str, **options: Any) -> FunctionSubject:
    return FunctionSubject(FAULT[name].make(), name=name, **FAULT[name].options, **options)


def law_result(function: Any, **options: Any) -> Any:
    subject = FunctionSubject(function, name="subject", **options)
    return run_checks(subject, checks=[check_by_id("lossless.step-law")]).results[0]


class SystemRandom:
    """Randomness straight from the operating system: real, and out of an enumeration's reach."""

    def random(self) -> float:
        return int.from_bytes(os.urandom(6), "big") / 2.0**48

    def choice(self, size: int, p: Any) -> int:
        return min(int(np.searchsorted(np.cumsum(p), self.random(), side="right")), size - 1)


def hidden(function: Any) -> Any:
    """The same function with its randomness where no enumeration can follow it."""

    def verify(draft_token_ids, draft_probs, target_probs):
        return function(draft_token_ids, draft_probs, target_probs, SystemRandom())

    return verify


@pytest.mark.parametrize("correct", CORRECT, ids=[one.name for one in CORRECT])
def test_correct_rules_have_an_exact_law(correct):
    """Every lossless rule is enumerated to 1e-12 in every case, and its form holds."""
    subject = FunctionSubject(correct.make(), name=correct.name, **correct.options)

    results = enumerate_steps(subject, list(scenarios_for(subject)), cross_check_calls=0)

    assert max(result.distance.tv for result in results) < 1e-12
    assert len(results) >= 13


def test_greedy_function_is_held_to_the_argmax():
    """A function for temperature 0 passes as one, and fails when it is asked to sample."""
    assert law_result(greedy, is_greedy=True).outcome is Outcome.PASSED
    assert law_result(greedy).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("verify-ratio-inverted", "accepts with draft / target instead of target / draft"),
        ("verify-residual-argmax", "takes the argmax of max(target - draft, 0)"),
        ("verify-accepts-slightly-more", "multiplies the accept ratio by 1.02"),
        ("verify-target-in-float16", "rounds the target law to float16"),
        ("verify-block-stops-at-first", "runs block verification, but stops at the first test that fails"),
        ("verify-uniform-reused", "with the uniform that rejected the draft token"),
    ],
)
def test_mistake_is_named(name, words):
    """The likely cause is the planted one, and no other."""
    result = run_checks(subject_of(name), checks=[check_by_id("lossless.step-law")]).results[0]

    assert result.outcome is Outcome.FAILED
    assert words in result.findings[0].likely_cause
    assert "None of the" in result.findings[0].likely_cause


def test_mistake_that_nobody_listed_is_not_named():
    """A fault outside the catalogue fails without a story."""

    class Odd(TokenwiseVerifier):
        def accept_ratio(self, draft, target, position, token):
            return super().accept_ratio(draft, target, position, token) ** 1.3

    result = law_result(Odd())

    assert result.outcome is Outcome.FAILED
    assert result.findings[0].likely_cause == ""


def test_two_generators_of_one_seed_are_named():
    """What replaces a rejected token comes from a second generator, which begins with the numbers of the first."""

    def verify(draft_token_ids, draft_probs, target_probs, seed):
        tests, draws = np.random.default_rng(seed), np.random.default_rng(seed)
        for position, token in enumerate(draft_token_ids):
            if tests.random() * draft_probs[position, token] >= target_probs[position, token]:
                mass = np.maximum(target_probs[position] - draft_probs[position], 0.0)
                return [*draft_token_ids[:position], draws.choice(len(mass), p=mass / mass.sum())]
        return [*draft_token_ids, draws.choice(target_probs.shape[1], p=target_probs[-1])]

    result = law_result(verify)

    assert result.outcome is Outcome.FAILED
    assert "read twice" in result.findings[0].likely_cause


def test_undeclared_greedy_function_is_told_so():
    """Without a draft law there is no catalogue to compare with; that it takes the likeliest token is seen."""
    finding = law_result(greedy).findings[0]

    assert "is_greedy=True" in finding.likely_cause


def test_smallest_case_is_shown_with_both_laws():
    """The message begins with the smallest case, observed beside wanted, split by the draft token's fate."""
    finding = run_checks(subject_of("verify-residual-argmax"), ids=["lossless.step-law"]).results[0].findings[0]

    assert "vocabulary 3, one draft token" in finding.headline
    assert ["target law", ".500", ".100", ".400", ""] in [list(row) for row in finding.table.rows]
    assert ["emitted", ".600", ".100", ".300", ""] in [list(row) for row in finding.table.rows]
    assert any("always token 0; should be tokens 0, 2 at .750, .250" in line for line in finding.where)


def test_function_in_float32_is_given_its_rounding():
    """A function that computes in float32 inside passes; its tolerance is measured, not asked for."""

    def rounds(draft_token_ids, draft_probs, target_probs, rng):
        draft = draft_probs.astype(np.float32).astype(np.float64)
        target = target_probs.astype(np.float32).astype(np.float64)
        return TokenwiseVerifier()(draft_token_ids, draft, target / target.sum(axis=1, keepdims=True), rng)

    result = law_result(rounds)

    assert result.outcome is Outcome.PASSED
    assert "float32" in result.worth


def test_a_tiny_mistake_is_not_excused_because_float32_laws_are_refused():
    """numpy's choice refuses laws that sum to 1 in float32 only: that crash says nothing about rounding."""

    def offset(draft_token_ids, draft_probs, target_probs, rng):
        for position, token in enumerate(draft_token_ids):
            if rng.random() >= target_probs[position][token] / draft_probs[position][token]:
                mass = np.maximum(target_probs[position] - draft_probs[position], 0.0) + 1e-6
                return [*draft_token_ids[:position], rng.choice(len(mass), p=mass / mass.sum())]
        return [*draft_token_ids, rng.choice(len(target_probs[-1]), p=target_probs[-1])]

    result = law_result(offset)

    assert result.outcome is Outcome.FAILED
    assert "adds 1e-06 to every entry of the residual" in result.findings[0].likely_cause
    assert any("to within" in line for line in result.findings[0].where)


def test_float32_laws_are_judged_as_the_function_gets_them():
    """dtype='float32' compares with the law that float32 numbers hold."""
    assert law_result(vectorised, dtype="float32").outcome is Outcome.PASSED


def test_slow_but_lossless_is_said():
    """A rule that ignores the draft law passes and is told what it leaves on the table."""

    def point_mass(draft_token_ids, draft_probs, target_probs, rng):
        for position, token in enumerate(draft_token_ids.tolist()):
            if rng.random() >= target_probs[position, token]:
                mass = target_probs[position].copy()
                mass[token] = 0.0
                final = int(rng.choice(len(mass), p=mass / mass.sum()))
                return [*draft_token_ids[:position].tolist(), final], position
        return [*draft_token_ids.tolist(), int(rng.choice(target_probs.shape[1], p=target_probs[-1]))], len(
            draft_token_ids
        )

    result = law_result(point_mass)

    assert result.outcome is Outcome.PASSED
    assert "lossless, but slower" in result.worth


def test_hidden_randomness_falls_to_sampling_and_says_why():
    """What cannot be enumerated is sampled: not refuted, with the error that would have shown."""
    result = law_result(hidden(TokenwiseVerifier()))

    assert result.outcome is Outcome.PASSED
    assert "not refuted" in result.worth
    assert "could not be enumerated" in result.worth


@pytest.mark.parametrize("check_id", ["lossless.step-law", "random.draws-independent"])
def test_a_handful_of_hidden_calls_decides_nothing(check_id):
    """So few calls could not have shown even a gross mistake."""
    subject = FunctionSubject(hidden(TokenwiseVerifier()), name="subject")

    (result,) = run_checks(subject, ids=[check_id], effort=0.005).results

    assert result.outcome is Outcome.INCONCLUSIVE, result
    assert "--effort" in result.reason


def test_sampling_catches_a_gross_mistake():
    """The fallback fails what it should, with the evidence in the message."""
    result = law_result(hidden(FAULT["verify-resamples-from-target"].make()))

    assert result.outcome is Outcome.FAILED
    assert "Evidence against losslessness" in result.findings[0].not_noise
    assert "replaces a rejected token by a draw from the target law" in result.findings[0].likely_cause


def test_sampled_process_stays_quiet_on_correct_functions():
    """Forty seeded processes on a correct function: no evidence beyond one in a thousand."""
    subject = FunctionSubject(TokenwiseVerifier(), name="correct")
    scenario = next(iter(scenarios_for(subject)))

    for seed in range(40):
        step = sample_step(subject, scenario, np.random.default_rng(seed), alpha=1e-9, effort=0.125)
        assert step.log_e < np.log(1000.0)


def test_deterministic_function_is_not_called_exact_when_it_hides_draws():
    """A function without a visible random call must repeat; this one does not."""
    state = np.random.default_rng(0)
    scenario = standard_scenarios()[0]

    def verify(draft_token_ids, draft_probs, target_probs):
        return [int(state.bit_generator.random_raw() % 2)]

    with pytest.raises(NotEnumerable):
        enumerate_step(FunctionSubject(verify), scenario, cross_check_calls=0)


def test_acceptance_reaches_what_the_laws_allow():
    """Token-wise rejection accepts the first draft token with the sum of minima."""
    result = enumerate_step(FunctionSubject(TokenwiseVerifier()), dyadic_scenario(), cross_check_calls=0)
    scenario = result.scenario

    accepted = sum(p for (drafted, emitted, _), p in result.joint.items() if emitted[0] == drafted[0])

    assert accepted == pytest.approx(float(acceptance_efficiency(scenario.draft(()), scenario.target(()))), abs=1e-12)


def test_scenarios_cover_the_corners():
    """Zeros, equal rows, one-hot rows, certain rejections, short and long drafts, ids beyond a byte: all occur."""
    scenarios = standard_scenarios()
    rows = [
        (scenario.draft(prefix), scenario.target(prefix))
        for scenario in scenarios
        for prefix in [(), *((token,) for token in range(scenario.vocab_size))]
    ]

    assert {1, 2, 3, 4, 8} == {scenario.num_draft_tokens for scenario in scenarios}
    assert {2, 3, 4, 5, 6, 8, 300} == {scenario.vocab_size for scenario in scenarios}
    assert any((target == 0.0).any() for _, target in rows)
    assert any(np.array_equal(draft, target) for draft, target in rows)
    assert any(target.max() == 1.0 for _, target in rows)
    assert any(((draft > 0.0) & (target == 0.0)).any() for draft, target in rows)
    assert any(0.0 < np.abs(draft - target).max() < 5e-3 for draft, target in rows)


def test_evidence_is_the_same_for_the_same_seed():
    """A verdict can be rerun: streams are named and seeded."""
    subject = FunctionSubject(hidden(TokenwiseVerifier()), name="subject")
    check = check_by_id("lossless.step-chi-square")

    statistics = []
    for _ in range(2):
        context = CheckContext(alpha=1e-10, streams=Streams(5))
        seeded = FunctionSubject(TokenwiseVerifier(), name="subject")
        assert list(check.judge(seeded, context)) == []
        statistics.append(context.figures["statistic"])

    assert statistics[0] == statistics[1]
    assert subject.takes_draft_law


def test_opaque_function_with_given_uniforms_is_counted_on_a_lattice():
    """Where symbols cannot pass but uniforms can be chosen, every cell of a grid is fed: exact counts, no samples."""

    def opaque(draft_token_ids, draft_probs, target_probs, uniforms):
        values = [float(str(float(uniform))) for uniform in uniforms]
        for position, token in enumerate(draft_token_ids.tolist()):
            if values[position] * draft_probs[position, token] >= target_probs[position, token]:
                mass = np.maximum(target_probs[position] - draft_probs[position], 0.0)
                break
            position += 1
        else:
            position, mass = len(draft_token_ids), target_probs[-1]
        final = np.searchsorted(np.cumsum(mass), values[-1] * mass.sum(), side="right")
        return [*draft_token_ids[:position].tolist(), int(final)]

    def wrong(draft_token_ids, draft_probs, target_probs, uniforms):
        return opaque(draft_token_ids, draft_probs, target_probs, 0.9 * np.asarray([float(u) for u in uniforms]))

    right = law_result(opaque)

    assert right.outcome is Outcome.PASSED
    assert right.figures["mode"] == "lattice"
    assert "every count right on a lattice" in right.worth
    assert law_result(wrong).outcome is Outcome.FAILED


def test_a_crash_takes_no_finding_with_it():
    """The law is wrong in the first cases and a later one crashes: the wrong law is reported, and the crash with it."""

    def verify(draft_token_ids, draft_probs, target_probs, rng):
        if 0.125 in target_probs:
            raise ValueError("no such law was tried by hand")
        return FAULT["verify-resamples-from-target"].make()(draft_token_ids, draft_probs, target_probs, rng)

    result = law_result(verify)

    assert result.outcome is Outcome.FAILED
    assert "no such law was tried by hand" in " ".join(result.findings[0].where)


def test_a_crash_alone_is_a_crash():
    """Nothing was wrong before it: the outcome is the crash, not a pass on the cases that went through."""

    def verify(draft_token_ids, draft_probs, target_probs, rng):
        if 0.125 in target_probs:
            raise ValueError("no such law was tried by hand")
        return TokenwiseVerifier()(draft_token_ids, draft_probs, target_probs, rng)

    assert law_result(verify).outcome is Outcome.CRASHED
