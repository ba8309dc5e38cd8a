"""The figures of a run add up."""

from __future__ import annotations

from specverify.core.types import Request, SamplingParams
from specverify.reference.engine import ReferenceEngine
from specverify.reference.proposers import AntiProposer, SelfProposer
from specverify.reference.statistics import Statistics, run_statistics
from tests.reference import tiny


def figures(proposer: type[SelfProposer] | type[AntiProposer]) -> Statistics:
    target = tiny.model()
    engine = ReferenceEngine(target, proposer(target), num_draft_tokens=3)
    return run_statistics(engine.generate([Request((1, 2), 21, SamplingParams(temperature=0.0))], speculate=True))


def test_perfect_drafter_gives_k_plus_one_tokens_a_pass() -> None:
    """20 tokens after the prefill's, 4 a step."""
    assert figures(SelfProposer) == Statistics(num_steps=5, num_proposed=15, num_accepted=15, num_tokens=20)
    assert figures(SelfProposer).tokens_per_target_pass == 4.0


def test_hopeless_drafter_gives_one_token_a_pass() -> None:
    """Never worse than plain decoding in passes; the drafts near the limit are shorter."""
    run = figures(AntiProposer)

    assert (run.num_steps, run.num_accepted, run.tokens_per_target_pass, run.acceptance_rate) == (20, 0, 1.0, 0.0)


def test_nothing_is_not_divided_by() -> None:
    """No steps, no figures."""
    assert (run_statistics([]).acceptance_rate, run_statistics([]).tokens_per_target_pass) == (0.0, 0.0)
