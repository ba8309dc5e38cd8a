"""Verify functions of other people, each wrapped by one call and judged as it stands.

`make third-party` puts the packages into a folder of their own and runs these; elsewhere what is missing is skipped.
"""

from __future__ import annotations

import importlib
import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from specverify import verified
from specverify.core.outcomes import Outcome

pytestmark = pytest.mark.third_party


def package(name: str) -> Any:
    """The module; where the packages were installed for these tests, one that is missing is an error, not a skip."""
    if os.environ.get("SPECVERIFY_THIRD_PARTY"):
        return importlib.import_module(name)
    return pytest.importorskip(name)


def outcomes(function: Any) -> dict[str, Outcome]:
    report = function.specverify.check()
    return {result.check_id: result.outcome for result in report.results}


def assert_exactly_lossless(function: Any) -> None:
    """Its law was enumerated, and it is the target's."""
    report = function.specverify.check(ids=["lossless.step-law"])
    (result,) = report.results
    assert result.outcome is Outcome.PASSED, repr(report)
    assert result.figures["mode"] == "enumeration"


def test_transformers_speculative_sampling():
    """transformers' rule is lossless, exactly, with nothing to be told but the function."""
    utils = package("transformers.generation.utils")

    assert_exactly_lossless(verified(utils._speculative_sampling))


def test_transformers_accepts_an_impossible_token_at_uniform_zero():
    """It compares with <=: a uniform of exactly 0 accepts a token that the target forbids."""
    utils = package("transformers.generation.utils")

    report = verified(utils._speculative_sampling).specverify.check(ids=["lossless.step-edges"])

    assert report.results[0].outcome is Outcome.FAILED
    assert "impossible" in report.results[0].findings[0].where[0]


def test_transformers_ensemble_is_lossy():
    """assistant_ensemble_weight mixes the laws on purpose; the mixture is found and named."""
    utils = package("transformers.generation.utils")

    report = verified(constants={"assistant_ensemble_weight": 0.7})(utils._speculative_sampling).specverify.check(
        ids=["lossless.step-law"]
    )

    assert report.results[0].outcome is Outcome.FAILED
    assert report.results[0].figures["mode"] == "enumeration"


@pytest.mark.parametrize("name", ["rejection_step", "rejection_sample", "rejection_step_onehot"])
def test_flashspec_rejection(name):
    """Batched rules with a generator; with and without bonus token; with and without draft law."""
    rejection = package("flashspec.sampling.rejection")

    assert_exactly_lossless(verified(getattr(rejection, name)))


def test_flashspec_reference_accept_test():
    """Takes the uniforms as an argument and only decides how many drafts to accept."""
    reference = package("flashspec.kernels._reference")

    assert_exactly_lossless(verified(reference.verify_tokens_reference))


def test_dflash_rejection_sample():
    """A batch axis that must be 1, and the global torch generator."""
    model = package("dflash.model")

    assert_exactly_lossless(verified(model._rejection_sample))


def selector_for(source: Any) -> Any:
    """economize's sampler, drawing from the generator under test."""
    selectors = package("economize.decoding.selectors")
    sampler = selectors.TopPSampler()
    sampler._generators[torch.device("cpu")] = source.torch_generator()
    return sampler


def economize_verifier() -> Any:
    verifiers = package("economize.decoding.verifiers")
    config = package("economize.decoding.config")
    return verifiers.VERIFIERS.get("rejection")(config.DecodeConfig(verifier="rejection"))


def test_economize_verify():
    """A bound method whose generator sits inside a selector object."""
    verify = verified(
        target_logits="logits",
        draft_token_ids="drafts",
        draft_probs="probs",
        arguments={
            "selector": lambda case, source: selector_for(source),
            "history": lambda case, source: torch.zeros(8, dtype=torch.long),
        },
        constants={"end": 2},
    )(economize_verifier().verify)

    assert_exactly_lossless(verify)


def test_economize_verify_batch():
    """A batch whose drafts travel in an object of the package's own."""
    protocols = package("economize.decoding.protocols")

    def draft(cases: Any, source: Any) -> Any:
        rows = cases if isinstance(cases, (list, tuple)) else [cases]
        tokens = torch.tensor([case.draft_token_ids for case in rows])
        probs = torch.from_numpy(np.stack([case.draft_probs for case in rows]))
        return protocols.Draft(tokens, [len(case.draft_token_ids) for case in rows], None, probs)

    def per_row(value: Any) -> Any:
        return lambda cases, source: [value] * (len(cases) if isinstance(cases, (list, tuple)) else 1)

    verify = verified(
        target_logits="logits",
        batched=True,
        arguments={
            "draft": draft,
            "selector": lambda cases, source: selector_for(source),
            "seq": lambda cases, source: torch.zeros(len(per_row(0)(cases, source)), 8, dtype=torch.long),
            "ends": per_row(2),
        },
    )(economize_verifier().verify_batch)

    assert_exactly_lossless(verify)


def test_economize_verify_tree():
    """Draft trees in an object of the package's own; what comes back is a path of nodes and a token."""
    protocols = package("economize.decoding.protocols")

    def draft(cases: Any, source: Any) -> Any:
        rows = cases if isinstance(cases, (list, tuple)) else [cases]
        return protocols.Draft(
            torch.tensor([case.draft_token_ids for case in rows]),
            [len(case.draft_token_ids) for case in rows],
            torch.tensor([case.parents for case in rows]),
            torch.from_numpy(np.stack([case.draft_probs for case in rows])),
        )

    verify = verified(
        target_logits="logits",
        batched=True,
        is_tree=True,
        arguments={"draft": draft, "selector": lambda cases, source: selector_for(source)},
    )(economize_verifier().verify_tree)

    assert verify.specverify.subject.dialect.returns.names == ("accepted_nodes", "final_token_id")
    assert_exactly_lossless(verify)


def test_specdec_verify_is_lossless_and_changes_its_input():
    """The target sits behind a model, which setup replaces; the law is right, but the caller's list is extended."""
    decoder_module = package("specdec.decoder")
    decoder = decoder_module.SpecDecoder.__new__(decoder_module.SpecDecoder)
    decoder.device = "cpu"

    def serve(case: Any) -> None:
        rows = torch.from_numpy(np.vstack([np.ones_like(case.target_probs[:1]), case.target_probs])).log()
        decoder.big_model = lambda sequence: SimpleNamespace(logits=rows[None])

    verify = verified(
        draft_token_ids="gen_toks",
        draft_probs="small_model_distributions",
        kind={"gen_toks": "list", "small_model_distributions": "torch rows [1, vocab]"},
        arguments={"inp": lambda case, source: torch.tensor([[1, 0]])},
        setup=serve,
    )(decoder.verify)
    found = outcomes(verify)

    assert found["lossless.step-law"] is Outcome.PASSED
    assert found["random.draws-independent"] is Outcome.PASSED
    assert found["tokens.step-form"] is Outcome.FAILED


def test_mini_infer_whole_step():
    """A function that drafts and verifies: step= serves it both models, and the law of whole steps is exact."""
    verifier = package("mini_infer.speculative.verifier")

    def step(draft: Any, target: Any, num_draft_tokens: int, source: Any) -> Any:
        def model(law: Any) -> Any:
            def logits(ids: Any) -> Any:
                tokens = tuple(ids[0, 1:].tolist())
                rows = [law(tokens[:length]) for length in range(len(tokens) + 1)]
                return torch.from_numpy(np.stack(rows)).log()[None], None

            return logits

        return verifier.speculative_step(model(target), model(draft), torch.tensor([[0]]), num_draft_tokens, 1.0)

    assert_exactly_lossless(verified(step=step)(verifier.speculative_step))


def test_core_deepinfer_greedy():
    """A greedy rule on finite logits, held to the target's argmax."""
    speculative = package("core_deepinfer.speculative")

    assert_exactly_lossless(verified(is_greedy=True)(speculative.verify_greedy))
