"""int8 weights: what is rounded and what is not, the law that a rounded model has, and what it does to a pairing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specverify.core.errors import UsageError
from specverify.core.outcomes import Outcome
from specverify.core.types import Request
from specverify.reference.int8 import Int8Weight
from specverify.reference.model import project
from specverify.reference.pairings import ROUNDED, measure_pairings
from specverify.reference.quantize import modes_by_model, num_bytes, quantized, rounded
from specverify.reference.subject import reference_subject
from specverify.runner import run_checks
from tests.reference import tiny

# The product in float32 is off by 2e-7 of the largest output; a dense one by 4e-7.
PRODUCT = {torch.float32: 1e-6, torch.bfloat16: 1e-2}


def matrix(rows=24, columns=40, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def test_an_entry_is_off_by_half_a_step_at_most():
    """Rounding to the nearest of 255 levels, each row on its own scale."""
    weight = matrix()

    entries, scales = rounded(weight)

    gap = (weight.double() - entries.double() * scales.double()[:, None]).abs()
    assert bool((gap <= 0.5001 * scales.double()[:, None]).all())
    assert entries.abs().amax(dim=1).tolist() == [127] * len(weight)


def test_a_row_of_zeros_stays_zero():
    """No division by nothing."""
    entries, scales = rounded(torch.zeros(3, 8))

    assert not entries.any()
    assert bool(torch.isfinite(scales).all())


@pytest.mark.parametrize("dtype", list(PRODUCT))
def test_the_product_is_that_of_the_rounded_weights(dtype):
    """Activations lose nothing beyond what their type loses."""
    entries, scales = rounded(matrix())
    inputs = matrix(5, 40, seed=1).to(dtype)

    product = project(inputs, Int8Weight(entries, scales, dtype))

    wanted = inputs.double() @ (entries.double() * scales.double()[:, None]).T
    assert product.dtype == dtype
    assert float((product.double() - wanted).abs().max() / wanted.abs().max()) < PRODUCT[dtype]


def test_a_row_comes_out_the_same_in_any_company():
    """To the bit: a verify pass computes what plain decoding computes."""
    entries, scales = rounded(matrix())
    weight, inputs = Int8Weight(entries, scales, torch.float32), matrix(7, 40, seed=1)

    together = project(inputs, weight)

    assert all(torch.equal(together[row], project(inputs[row : row + 1], weight)[0]) for row in range(7))


def test_int8_weights_are_for_products_only():
    """What would silently widen them is refused."""
    weight = Int8Weight(*rounded(matrix()), torch.float32)

    with pytest.raises(UsageError, match="for products with activations only"):
        weight + 1


def test_a_model_keeps_its_embedding_and_norms():
    """Matrices of layers and head are rounded, and take a quarter of the memory."""
    model = tiny.model(dtype=torch.float32)

    small = quantized(model)

    assert small.weights.embedding is model.weights.embedding
    assert isinstance(small.weights.head, Int8Weight)
    assert num_bytes(small) < 0.4 * num_bytes(model)


@pytest.mark.parametrize("rounded_models", ROUNDED[1:], ids="+".join)
def test_a_quantised_engine_follows_the_rounded_target_exactly(rounded_models):
    """Every path of a call, against the float64 oracle of the rounded weights."""
    from specverify.faults.engine_parts import probe_engine

    subject = probe_engine("int8", quantize=dict.fromkeys(rounded_models, "int8"), every_option=False)

    (result,) = run_checks(subject, ids=["lossless.sequence-law-exact"]).results

    assert result.outcome is Outcome.PASSED, result.reason


def test_the_oracle_of_a_rounded_pair_is_the_engines_law():
    """And it is not the law of the pair as it was."""
    subject, plain = reference_subject(quantize="int8"), reference_subject()
    prompt = subject.checkpoint.prompts[1]

    law = np.exp(subject.score(prompt[:-1], prompt[-1:])[0])

    def oracle(pair):
        logits = pair.target_oracle.logits(np.asarray(prompt[:-1]))[-1]
        return np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()

    assert np.abs(law - oracle(subject.checkpoint)).max() < 1e-9
    assert np.abs(law - oracle(plain.checkpoint)).max() > 1e-6


def test_rounding_an_equal_draft_costs_acceptance_and_rounding_both_does_not():
    """A draft that is the target itself: accepted in full where both have the same weights, and only there."""
    target = reference_subject(dtype="float32").target
    requests = [Request((1, 5, 9), 24, seed=seed) for seed in range(6)]

    pairings = measure_pairings(target, target, requests, repeats=1)

    accepted = {pairing.rounded: pairing.accepted for pairing in pairings}
    assert accepted[()] == accepted["target", "draft"] == 1.0
    assert max(accepted["target",], accepted["draft",]) < 1.0


@pytest.mark.parametrize(
    ("quantize", "sentence"), [("int4", "choose from int8"), ({"head": "int8"}, "choose from target, draft")]
)
def test_what_cannot_be_quantised_is_refused(quantize, sentence):
    """An unknown mode or model."""
    with pytest.raises(UsageError, match=sentence):
        modes_by_model(quantize)
