"""Verify functions and half precision: coarse uniforms are named, with their exact cost; coarse laws are no mistake."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch

from specverify.adapters.function import FunctionSubject
from specverify.core.outcomes import Outcome
from specverify.exact.torch_coarse import _drawn_cells
from specverify.faults.verify_halves import CastToHalf, DrawnInHalf, HalfRowsVerifier
from specverify.report.text import MAX_LINES, render_result
from specverify.runner import run_checks
from tests.checks.test_messages import SNAPSHOTS, shape

CAUSE = "random numbers are drawn in {}, or rounded to it"


def law_result(function: Any, **options: Any) -> Any:
    subject = FunctionSubject(function, name="subject", **options)
    return run_checks(subject, ids=["lossless.step-law"], seed=7).results[0]


class DrawnInSingle(HalfRowsVerifier):
    def uniforms(self, like, generator):
        return torch.rand(like.shape, generator=generator)


class CoarseMultinomial(HalfRowsVerifier):
    def draw(self, mass, generator):
        return torch.multinomial(torch.tensor(mass, dtype=torch.bfloat16), 1, generator=generator).item()


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_coarse_uniforms_are_named_whatever_the_type_of_the_laws(dtype):
    """The only mistake is the rounding of the uniforms: it is told from that of the laws, by an exact law."""

    class Coarse(HalfRowsVerifier):
        def uniforms(self, like, generator):
            return torch.rand(like.shape, dtype=torch.bfloat16, generator=generator)

    result = law_result(Coarse(), dtype=dtype)

    assert result.outcome is Outcome.FAILED
    assert result.figures["mode"] == "enumeration"
    assert CAUSE.format("bfloat16") in result.findings[0].likely_cause
    assert "torch.rand(like.shape, dtype=torch.bfloat16" in result.findings[0].likely_cause


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("function", [HalfRowsVerifier, DrawnInSingle])
def test_half_precision_laws_alone_are_no_mistake(function, dtype):
    """Laws of any type, draws in float64 or float32: passed by enumeration, against the laws that were given."""
    result = law_result(function(), dtype=dtype)

    assert result.outcome is Outcome.PASSED
    assert result.figures["mode"] == "enumeration"
    assert max(case["total_variation"] for case in result.figures["cases"]) < 1e-6


def test_cost_of_drawing_in_half_is_exact():
    """First case: draft (.7, .3), target (.4, .6) in bfloat16. Only token 0 is ever rejected, and too rarely."""
    result = law_result(DrawnInHalf(), dtype="bfloat16")
    draft, target = (torch.tensor(row).bfloat16().double() for row in ([0.7, 0.3], [0.4, 0.6]))
    draft, target = draft / draft.sum(), target / target.sum()
    edges, values = _drawn_cells(torch.bfloat16, "cpu")
    chances = np.diff(edges, prepend=0.0, append=1.0)

    accepted = float(chances[values.double().numpy() < float(target[0] / draft[0])].sum())

    cost = result.figures["cases"][0]["total_variation"]
    assert cost == pytest.approx(float(draft[0]) * accepted - float(target[0]), abs=1e-12)
    assert 1.5e-3 < cost < 2.5e-3
    assert f"total variation {cost:.3g}" in result.findings[0].not_noise


@pytest.mark.parametrize(("function", "dtype"), [(CastToHalf, "float64"), (CoarseMultinomial, "bfloat16")])
def test_other_ways_to_be_coarse_are_named(function, dtype):
    """A cast of float32 uniforms, and noise that torch.multinomial draws in the type of its weights."""
    result = law_result(function(), dtype=dtype)

    assert result.outcome is Outcome.FAILED
    assert CAUSE.format("bfloat16") in result.findings[0].likely_cause


def test_numpy_casts_are_named_too():
    """astype(np.float16) of the uniforms costs a tenth as much and is found all the same."""

    def verify(draft_token_ids, draft_probs, target_probs, rng):
        places = np.arange(len(draft_token_ids))
        uniforms = rng.random(len(places)).astype(np.float16)
        is_rejected = uniforms >= target_probs[places, draft_token_ids] / draft_probs[places, draft_token_ids]
        accepted = int(np.argmax(is_rejected)) if is_rejected.any() else len(places)
        mass = target_probs[accepted].copy()
        if accepted < len(places):
            mass = np.maximum(mass - draft_probs[accepted], 0.0)
            # A uniform of 1 rejects where the two laws are equal.
            mass = mass if mass.any() else target_probs[accepted]
        return [*draft_token_ids[:accepted], rng.choice(len(mass), p=mass / mass.sum())]

    result = law_result(verify)

    assert result.outcome is Outcome.FAILED
    assert CAUSE.format("float16") in result.findings[0].likely_cause
    assert max(case["total_variation"] for case in result.figures["cases"]) < 1e-3


def test_zero_accepts_what_is_impossible():
    """u <= 0 holds once in 512 draws: the impossible token is proof, and the case that shows it is among the wrong."""

    class Loose(DrawnInHalf):
        def is_accepted(self, uniform, ratio):
            return uniform <= ratio

    result = law_result(Loose(), dtype="bfloat16")

    assert result.outcome is Outcome.FAILED
    assert CAUSE.format("bfloat16") in result.findings[0].likely_cause


def test_single_precision_inside_does_not_hide_the_cause():
    """float64 laws, float32 arithmetic, bfloat16 uniforms: its tolerance is measured behind the coarse uniforms."""

    class SingleInside(DrawnInHalf):
        def __call__(self, draft_token_ids, draft_probs, target_probs, generator):
            return super().__call__(draft_token_ids, draft_probs.float(), target_probs.float(), generator)

        def uniforms(self, like, generator):
            return torch.rand(like.shape, dtype=torch.bfloat16, generator=generator)

    finding = law_result(SingleInside()).findings[0]

    assert CAUSE.format("bfloat16") in finding.likely_cause


def test_another_mistake_is_still_named():
    """Behind the coarse uniforms the law is wrong in a way that has a name."""

    class FromTarget(HalfRowsVerifier):
        def uniforms(self, like, generator):
            return torch.rand(like.shape, dtype=torch.bfloat16, generator=generator)

        def is_accepted(self, uniform, ratio):
            return uniform < 1.02 * ratio

    finding = law_result(FromTarget()).findings[0]

    assert "multiplies the accept ratio by 1.02" in finding.likely_cause


def test_coarse_numbers_that_do_no_harm_are_no_mistake():
    """A bfloat16 uniform that decides nothing but a fair coin leaves the law as it is."""

    class Harmless(HalfRowsVerifier):
        def is_accepted(self, uniform, ratio):
            return uniform < ratio if self.coin.item() < 0.5 else 1.0 - uniform < ratio

        def uniforms(self, like, generator):
            self.coin = torch.rand((), dtype=torch.bfloat16, generator=generator)
            return super().uniforms(like, generator)

    result = law_result(Harmless(), dtype="bfloat16")

    assert result.outcome is Outcome.PASSED
    assert result.figures["mode"] == "enumeration"


def test_the_failure_reads_as_it_did(monkeypatch):
    """SPECVERIFY_UPDATE_SNAPSHOTS=1 writes the file anew; read it before committing."""
    monkeypatch.chdir(SNAPSHOTS.parents[2])
    subject = FunctionSubject(DrawnInHalf(), name="verify-uniform-in-bfloat16", dtype="bfloat16")
    result = run_checks(subject, ids=["lossless.step-law"], seed=7, rerun=f"specverify check {subject.name}").results[0]
    path, text = SNAPSHOTS / "lossless.step-law.half-precision.txt", render_result(result) + "\n"

    if os.environ.get("SPECVERIFY_UPDATE_SNAPSHOTS"):
        path.write_text(text, encoding="utf-8")

    assert len(text.splitlines()) <= MAX_LINES
    assert shape(path.read_text(encoding="utf-8")) == shape(text)


def test_uniforms_handed_over_are_never_coarse():
    """A function with bfloat16 laws and its uniforms as an argument gets them in float32, as an engine would draw."""

    def accept(draft_token_ids, draft_probs, target_probs, uniforms):
        assert uniforms.dtype is torch.float32
        for position, token in enumerate(draft_token_ids.tolist()):
            ratio = target_probs[position, token].float() / draft_probs[position, token].float()
            if not uniforms[position] < ratio:
                return position
        return len(draft_token_ids)

    result = law_result(accept, dtype="bfloat16", kind="torch")

    assert result.outcome is Outcome.PASSED
