"""Form, independence, edges and chi-square of verify steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from specverify.adapters.function import FunctionSubject
from specverify.adapters.function_traffic import RecordedCalls, VerifyCall
from specverify.catalogue import check_by_id
from specverify.checks.step_form import broken_rules
from specverify.core.outcomes import Outcome
from specverify.core.types import VerifyInput, VerifyOutput
from specverify.faults.verify import CORRECT, FAULTS
from specverify.faults.verify_correct import TokenwiseVerifier, accept_test_only
from specverify.runner import run_checks

FAULT = {fault.name: fault for fault in FAULTS}
CORRECT_BY_NAME = {one.name: one for one in CORRECT}


def result_of(check_id: str, function: Any, **options: Any) -> Any:
    subject = FunctionSubject(function, name="subject", **options)
    return run_checks(subject, checks=[check_by_id(check_id)]).results[0]


@pytest.mark.parametrize("name", ["tokenwise-numpy", "tokenwise-torch-batched", "sampler-match", "accept-test-only"])
@pytest.mark.parametrize("check_id", ["random.draws-independent", "lossless.step-edges", "tokens.step-form"])
def test_correct_functions_pass(name, check_id):
    """Correct functions of different styles are left alone."""
    assert result_of(check_id, CORRECT_BY_NAME[name].make()).outcome is Outcome.PASSED


def test_reused_noise_is_a_finding_with_its_line():
    """Noise that decides two things is reported with the operation that used it again."""
    finding = result_of("random.draws-independent", FAULT["verify-noise-reused"].make()).findings[0]

    assert "two things" in finding.headline
    assert any(line.startswith("Operation") for line in finding.where)


def test_rows_that_share_uniforms_are_dependent():
    """Each row alone is right; the joint law of two rows is not the product."""
    result = result_of("random.draws-independent", FAULT["verify-uniforms-shared-by-rows"].make())

    assert result.outcome is Outcome.FAILED
    assert "two rows of one batch" in result.findings[0].headline
    assert result_of("lossless.step-law", FAULT["verify-uniforms-shared-by-rows"].make()).outcome is Outcome.PASSED


def test_generator_seeded_in_every_call_is_dependent():
    """A function that seeds its own generator the same way each time repeats itself."""

    def verify(draft_token_ids, draft_probs, target_probs):
        return TokenwiseVerifier()(draft_token_ids, draft_probs, target_probs, np.random.default_rng(0))

    result = result_of("random.draws-independent", verify)

    assert result.outcome is Outcome.FAILED
    assert "two calls in a row" in result.findings[0].headline


def test_seeds_that_callers_choose_are_not_a_dependence():
    """A function that takes a seed gets another one each call."""

    def verify(draft_token_ids, draft_probs, target_probs, seed):
        return TokenwiseVerifier()(draft_token_ids, draft_probs, target_probs, np.random.default_rng(seed))

    assert result_of("random.draws-independent", verify).outcome is Outcome.PASSED
    assert result_of("lossless.step-law", verify).outcome is Outcome.PASSED


@pytest.mark.parametrize("name", ["verify-accepts-impossible-at-zero", "verify-inverse-cdf-overruns"])
def test_edges_show_what_the_continuum_hides(name):
    """A token that comes once in 2^24 draws is found, with the draws that give it."""
    finding = result_of("lossless.step-edges", FAULT[name].make()).findings[0]

    assert "uniforms" in finding.headline
    assert finding.details["num_failures"] > 0


@pytest.mark.parametrize(
    ("output", "changed", "words"),
    [
        (VerifyOutput((1, 2, 0), 2), (), ""),
        (VerifyOutput((1, 2), 2), (), ""),
        (VerifyOutput((0,), 0), (), "target probability 0"),
        (VerifyOutput((2,), None), (), ""),
        (VerifyOutput((3,), None), (), "not in the vocabulary"),
        (VerifyOutput((-1,), None), (), "not in the vocabulary"),
        (VerifyOutput((1, 2, 0, 0), None), (), "4 tokens came back for 2 drafts"),
        (VerifyOutput((2, 2), None), (), "is not the draft's 1"),
        (VerifyOutput((1, 0), 0), (), "2 tokens came back; 0 or 1 would fit"),
        (VerifyOutput((1, 0), 2), (), "do not begin with the first 2"),
        (VerifyOutput((1, 2, 0), 3), (), "3 accepted of 2"),
        (VerifyOutput((1, 2, 0), 2), ("target_probs",), "changed its argument target_probs"),
    ],
)
def test_rules_of_a_single_call(output, changed, words):
    """Each rule names what broke it; a correct call breaks none."""
    target = np.array([[0.0, 0.7, 0.3], [0.3, 0.3, 0.4], [0.2, 0.2, 0.6]])
    case = VerifyInput((1, 2), None, target)

    problems = broken_rules(case, output, changed, vocab_size=3)

    assert words in " ".join(problems)
    assert bool(words) == bool(problems)


def test_recorded_calls_are_judged_like_live_ones():
    """A record of calls is a subject of the form check and of no other."""
    case = VerifyInput((1,), None, np.array([[0.0, 1.0], [0.5, 0.5]]))
    calls = RecordedCalls("recorded", [VerifyCall(case, VerifyOutput((0,), 0))])

    form = run_checks(calls, checks=[check_by_id("tokens.step-form")]).results[0]
    law = run_checks(calls, checks=[check_by_id("lossless.step-law")]).results[0]

    assert form.outcome is Outcome.FAILED
    assert law.outcome is Outcome.UNSUPPORTED


def test_chi_square_says_what_it_would_have_caught():
    """The planned sample, the threshold and the detectable error are in the pass line."""
    result = result_of("lossless.step-chi-square", TokenwiseVerifier())

    assert result.outcome is Outcome.PASSED
    assert "would have caught total variation 0.1" in result.worth
    assert result.figures["num_samples"] > 1000


def test_chi_square_counts_impossible_tokens_apart():
    """A single impossible continuation fails, whatever the statistic."""

    class Rarely(TokenwiseVerifier):
        def bonus_token(self, target, rng):
            return 3 if rng.random() < 0.01 else super().bonus_token(target, rng)

    result = result_of("lossless.step-chi-square", Rarely(), returns=("token_ids", "num_accepted"))

    assert result.outcome is Outcome.FAILED
    assert "impossible" in result.findings[0].not_noise


def test_accept_only_function_is_completed_by_its_caller():
    """Only decisions come back: the law of the step is judged with the residual drawn by the caller."""
    subject = FunctionSubject(accept_test_only)

    assert subject.decides_only
    assert result_of("lossless.step-law", accept_test_only).outcome is Outcome.PASSED


def test_accept_only_function_with_a_wrong_test_fails():
    """The residual cannot repair a wrong accept test."""

    def always(draft_token_ids, draft_probs, target_probs, uniforms):
        for position, token in enumerate(draft_token_ids):
            if uniforms[position] >= 1.05 * target_probs[position, token] / draft_probs[position, token]:
                return position
        return len(draft_token_ids)

    assert result_of("lossless.step-law", always).outcome is Outcome.FAILED


def test_library_draws_pass_the_edges():
    """torch.multinomial gives 0 / 0 for an exponential of exactly 0, once in 2^53 draws: that is no finding."""

    def verify(draft_token_ids, draft_probs, target_probs, generator):
        num_draft_tokens = draft_token_ids.shape[0]
        rows = torch.arange(num_draft_tokens)
        ratios = target_probs[rows, draft_token_ids] / draft_probs[rows, draft_token_ids]
        rejected = (torch.rand(num_draft_tokens, generator=generator, dtype=ratios.dtype) >= ratios).nonzero()
        accepted = int(rejected[0]) if len(rejected) else num_draft_tokens
        mass = target_probs[accepted]
        if accepted < num_draft_tokens:
            mass = (mass - draft_probs[accepted]).clamp(min=0)
        return torch.cat([draft_token_ids[:accepted], torch.multinomial(mass, 1, generator=generator)])

    assert result_of("lossless.step-edges", verify).outcome is Outcome.PASSED


def test_tensors_are_tried_in_float32_at_the_edges():
    """At most, for below, in a test that is float64 in the cases and float32 in an engine: found in float32."""

    def verify(draft_token_ids, draft_probs, target_probs, generator):
        accepted = 0
        for position, token in enumerate(draft_token_ids.tolist()):
            uniform = torch.rand((), generator=generator, dtype=target_probs.dtype)
            if not uniform * draft_probs[position, token] <= target_probs[position, token]:
                break
            accepted += 1
        mass = target_probs[accepted]
        if accepted < len(draft_token_ids):
            mass = (mass - draft_probs[accepted]).clamp(min=0)
        return torch.cat([draft_token_ids[:accepted], torch.multinomial(mass, 1, generator=generator)])

    finding = result_of("lossless.step-edges", verify).findings[0]

    assert "impossible" in finding.details["reason"]
