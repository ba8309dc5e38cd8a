"""Log-probabilities that an engine reports: which conventions pass, what is wrong, and what decides nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from specverify.checks.log_prob_readings import read
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.core.types import SamplingParams, Trace
from specverify.faults import engine
from specverify.faults.engine_parts import OwnDrafterOnly, probe_engine
from specverify.reference.engine import ReferenceEngine
from specverify.reference.subject import Parts
from tests.checks.engine_handmade import ScriptedEngine, honest_trace, result_of

CHECK = "logprobs.of-emitted-tokens"
FAULTS = {fault.name: fault for fault in engine.FAULTS}
NEEDED = (Capability.GENERATE, Capability.LOGPROBS)


class Reads(ReferenceEngine):
    """Reports by what it makes of the logits, the same on every path."""

    def report(self, batch, logits, rows, token_ids):
        super().report(batch, self.read(batch, logits), rows, token_ids)


class Processed(Reads):
    def read(self, batch, logits):
        return batch.sampling.law(logits).log()


class ProcessedButGreedy(Reads):
    def read(self, batch, logits):
        return logits if batch.sampling.is_greedy else batch.sampling.law(logits).log()


class Tempered(Reads):
    def read(self, batch, logits):
        temperatures = [running.request.sampling.temperature or 1.0 for running in batch.running]
        return logits / torch.tensor(temperatures, dtype=logits.dtype)[:, None, None]


class RawGreedilyCertain(Reads):
    def read(self, batch, logits):
        return batch.sampling.law(logits).log() if batch.sampling.is_greedy else logits


class WithoutLaws(OwnDrafterOnly):
    """An engine of which nobody knows the law."""

    def __init__(self, subject):
        super().__init__(subject)
        self.capabilities -= {Capability.SCORE, Capability.LOAD_CHECKPOINT}


class Edited(OwnDrafterOnly):
    """An engine whose traces are edited on their way out."""

    def __init__(self, edit, subject=None):
        super().__init__(subject or probe_engine("edited", max_new_tokens=24))
        self._edit = edit

    def generate(self, requests, *, speculate):
        return [self._edit(trace) for trace in self._subject.generate(requests, speculate=speculate)]


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize(
    ("engine_class", "name"),
    [(Processed, "processed, certain"), (ProcessedButGreedy, "processed"), (Tempered, "tempered")],
)
def test_every_convention_of_servers_passes(engine_class, name, dtype):
    """An engine may report what it likes, if it keeps to it."""
    result = result_of(CHECK, OwnDrafterOnly(probe_engine("own", parts=Parts(engine_class=engine_class), dtype=dtype)))

    assert result.outcome is Outcome.PASSED
    # Coarse numbers may not tell the temperature alone from the filters too.
    assert dtype == "bfloat16" or name == result.figures["convention"]


def test_two_conventions_in_one_engine_fail():
    """Raw where it samples, certain where it does not: nobody can compare the two."""
    subject = OwnDrafterOnly(probe_engine("two", parts=Parts(engine_class=RawGreedilyCertain)))

    assert Outcome.FAILED is result_of(CHECK, subject).outcome


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("log-probs-zero-when-accepted", "zeros are filled in for accepted draft tokens"),
        ("log-probs-of-row-late", "row i + 1 for token i"),
        ("log-probs-of-drafted-tokens", "every token that was drafted"),
        ("log-probs-of-draft-model", "those of the draft model"),
        ("log-probs-processed-when-speculating", "a convention of their own"),
    ],
)
def test_the_cause_is_named(name, cause):
    """Each planted fault predicts its values, and no other cause is named."""
    (finding,) = result_of(CHECK, FAULTS[name].make()).findings

    assert cause in finding.likely_cause


@pytest.mark.parametrize(
    ("edit", "cause"),
    [
        (lambda numbers: (*numbers[1:], numbers[-1]), "the token behind it"),
        (lambda numbers: (-9.0, *numbers[:-1]), "the token before it"),
        (lambda numbers: numbers[:-1], ""),
        (lambda numbers: tuple(2.0 * number for number in numbers), ""),
        (lambda numbers: None, "not filled in"),
    ],
)
def test_values_that_are_wrong_on_every_path_fail(edit, cause):
    """Shifted, too few, scaled or none at all."""
    result = result_of(CHECK, Edited(lambda trace: replace(trace, log_probs=edit(trace.log_probs))))

    assert result.outcome is Outcome.FAILED
    assert cause in result.findings[0].likely_cause
    assert cause or not result.findings[0].likely_cause


def test_one_entry_a_step_is_recognised():
    """Only one row is kept although several tokens are committed."""

    def edit(trace):
        steps = trace.steps
        return replace(trace, log_probs=trace.log_probs[: 1 + len(steps)]) if steps else trace

    (finding,) = result_of(CHECK, Edited(edit)).findings

    assert "one entry a step" in finding.likely_cause


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        (None, Outcome.PASSED),
        ("log-probs-zero-when-accepted", Outcome.FAILED),
        ("log-probs-of-row-late", Outcome.FAILED),
        ("log-probs-of-drafted-tokens", Outcome.FAILED),
    ],
)
def test_without_laws_greedy_values_are_held_against_plain_decoding(name, outcome):
    """Equal tokens behind equal texts."""
    subject = FAULTS[name].make() if name else probe_engine("plain")

    result = result_of(CHECK, WithoutLaws(subject))

    assert outcome is result.outcome
    assert "nobody knows the target's law" in (result.worth or "nobody knows the target's law")


def test_without_laws_certainty_says_nothing():
    """Zeros on both paths are a convention, and decide nothing."""
    subject = WithoutLaws(probe_engine("certain", parts=Parts(engine_class=Processed)))

    assert Outcome.INCONCLUSIVE is result_of(CHECK, subject).outcome


@pytest.mark.parametrize(
    ("accepted", "outcome", "reason"),
    [
        ([1, 3], Outcome.PASSED, ""),
        ([0, 0], Outcome.INCONCLUSIVE, "no draft token was accepted"),
        (None, Outcome.INCONCLUSIVE, "nothing was drafted"),
    ],
)
def test_a_pass_needs_speculation(accepted, outcome, reason):
    """Log-probabilities of an engine that does not speculate when they are asked for say nothing of speculation."""
    trace = honest_trace(accepted or [0])
    if accepted is None:
        trace = replace(trace, steps=(), num_proposed=0, num_accepted=0)

    def answer(requests, speculate):
        numbers = tuple(-1.0 - index for index in range(len(trace.token_ids)))
        steps = trace.steps if speculate else ()
        return [
            Trace(r, trace.token_ids, steps, speculate, num_proposed=trace.num_proposed, log_probs=numbers)
            for r in requests
        ]

    result = result_of(CHECK, ScriptedEngine(answer, capabilities=NEEDED))

    assert outcome is result.outcome
    assert reason in (result.reason or "")


def test_top_k_is_not_judged_where_rounding_decides_what_is_kept():
    """The third and the fourth token are equally likely: either may be cut."""
    logits = np.log([[0.4, 0.3, 0.15, 0.15], [0.4, 0.3, 0.2, 0.1]])

    rows = read(logits, SamplingParams(temperature=0.5, top_k=3), "processed", 1e-3)

    assert np.isnan(rows[0]).all()
    assert np.isfinite(rows[1]).tolist() == [True, True, True, False]
    assert np.exp(rows[1, :3]) == pytest.approx(np.array([16, 9, 4]) / 29)
