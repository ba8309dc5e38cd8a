"""Engine checks that could not decide say so, and say why; and what passes on a correct engine is worth something."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest
import torch

from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.core.scenario import Purpose, Scenario
from specverify.core.types import SamplingParams
from specverify.exact.errors import ReusedRandomness
from specverify.faults import engine
from specverify.faults.engine_parts import DeclaredLossy, probe_engine
from specverify.reference.subject import Parts
from specverify.reference.verifiers import RejectionVerifier
from specverify.runner import run_checks

FAULTS = {fault.name: fault for fault in engine.FAULTS}
EXACT = "lossless.sequence-law-exact"


def outcome_of(check_id, subject, effort=0.05):
    (result,) = run_checks(subject, ids=[check_id], effort=effort).results
    return result


@cache
def silent_engine():
    """Speculation asked for, nothing ever drafted: its output is right."""
    return FAULTS["speculation-silently-off"].make()


class _Without:
    """A subject that lacks some capabilities."""

    def __init__(self, subject, *missing, **attributes):
        self._subject = subject
        self.capabilities = frozenset(subject.capabilities) - set(missing)
        self.__dict__.update(attributes)

    def __getattr__(self, name):
        return getattr(self._subject, name)


def narrow(**changes):
    """One exact scenario that takes a second."""
    sampling = changes.pop("sampling", SamplingParams(top_k=2))
    return (Scenario("narrow", Purpose.EXACT, sampling, ((1, 21),), 3, **changes),)


@pytest.mark.parametrize(
    "check_id",
    [
        "lossless.sequence-stream",
        "lossless.sequence-joint",
        "lossless.sequence-chi-square",
        "lossless.on-equals-off",
        "acceptance.matches-laws",
        "draft.declared-law-sampled",
        "random.draft-and-accept-independent",
        "acceptance.self-drafter-accepts",
    ],
)
def test_an_engine_that_drafts_nothing_decides_nothing(check_id):
    """Right tokens without a single draft are no evidence about speculation."""
    result = outcome_of(check_id, silent_engine())

    assert result.outcome is Outcome.INCONCLUSIVE, result
    assert "draft" in result.reason


def test_an_exact_law_without_a_draft_is_inconclusive():
    """The enumerated law is the target's, and nothing was drafted on any path."""
    subject = dataclasses.replace(silent_engine(), own_scenarios=narrow())

    result = outcome_of(EXACT, subject)

    assert result.outcome is Outcome.INCONCLUSIVE
    assert "nothing was drafted" in result.reason


def test_an_option_without_effect_is_inconclusive():
    """Top-p .999 behind top-k 2 removes nothing: the option was not tested."""
    scenarios = narrow(sampling=SamplingParams(top_k=2, top_p=0.9999), option="top_p")

    result = outcome_of(EXACT, probe_engine("unmoved", own_scenarios=scenarios))

    assert result.outcome is Outcome.INCONCLUSIVE
    assert "hardly depends on top_p" in result.reason


class _SortsUniforms(RejectionVerifier):
    def accept_uniforms(self, batch, drafts):
        return super().accept_uniforms(batch, drafts).sort(dim=-1).values


def test_what_cannot_be_enumerated_names_the_operation():
    """The reason says which operation stopped the enumeration, so that a reader can look."""
    subject = probe_engine("sorts", parts=Parts(make_verifier=_SortsUniforms), own_scenarios=narrow())

    result = outcome_of(EXACT, subject)

    assert result.outcome is Outcome.INCONCLUSIVE
    assert "sort" in result.reason
    assert ".sort(dim=-1)" in result.reason


def test_reused_randomness_is_a_finding_not_a_crash(monkeypatch):
    """The enumerator saw one value decide two things: that is a bug of the engine, with the line that does it."""

    def reuses(*args, **kwargs):
        raise ReusedRandomness("one noise field in two races", "argmax", "engine.py:7: return race.argmax()")

    monkeypatch.setattr("specverify.checks.sequence_exact.enumerate_law", reuses)
    subject = probe_engine("reuses", own_scenarios=narrow())

    result = outcome_of(EXACT, subject)

    assert result.outcome is Outcome.FAILED
    assert "one random value decides two things" in result.findings[0].headline
    assert any("engine.py:7" in line for line in result.findings[0].where)


def test_a_stream_without_laws_is_inconclusive():
    """Neither a probe checkpoint nor scores: nobody knows what the tokens should have been."""
    subject = _Without(probe_engine("blind"), Capability.LOAD_CHECKPOINT, Capability.SCORE)

    result = outcome_of("lossless.sequence-stream", subject)

    assert result.outcome is Outcome.INCONCLUSIVE
    assert "SCORE" in result.reason


def test_scores_are_enough_for_a_stream():
    """An engine without a probe checkpoint is judged by its own scores; penalties then go unjudged."""
    subject = _Without(probe_engine("scored"), Capability.LOAD_CHECKPOINT, checkpoint=None)

    result = outcome_of("lossless.sequence-stream", subject)

    assert result.outcome is Outcome.PASSED, result
    assert "6 scenarios" in result.worth


def test_declared_lossiness_that_never_bites_is_inconclusive():
    """Declared lossy, and exactly the target's tokens: the option did nothing, or need not be declared."""
    subject = DeclaredLossy(probe_engine("honest"), reason="thresholds relaxed")

    result = outcome_of("lossy.declared-distance", subject)

    assert result.outcome is Outcome.INCONCLUSIVE
    assert "did the lossy option ever bite" in result.reason


def test_a_lossy_engine_is_excused_from_lossless_checks_only_if_it_says_so():
    """The same engine, silent and honest about it."""
    honest = next(one for one in engine.CORRECT if one.name == "engine-lossy-and-says-so").make()

    assert outcome_of("lossless.sequence-chi-square", honest).outcome is Outcome.UNSUPPORTED
    assert outcome_of("lossy.declared-distance", honest, effort=1.0).outcome is Outcome.PASSED


def test_a_pass_states_what_it_would_have_caught():
    """The stated total variation, .06 or better at full effort."""
    result = outcome_of("lossless.sequence-stream", probe_engine("usual"), effort=1.0)

    assert result.outcome is Outcome.PASSED
    assert result.figures["detectable_tv"] <= 0.06


def test_a_check_leaves_the_global_generators_as_they_were():
    """Samples repeat with the root seed, and the caller's own random state is untouched."""
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)

    outcome_of("lossless.sequence-joint", probe_engine("usual"))

    assert expected.tolist() == torch.rand(3).tolist()


def test_a_run_with_the_same_seed_sees_the_same_samples():
    """A finding can be reproduced."""
    first, second = (outcome_of("lossless.sequence-joint", probe_engine("usual")).figures["log_e"] for _ in range(2))

    assert first == second
