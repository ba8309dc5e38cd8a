"""The accept rules do what the closed forms say."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch

from specverify.core.types import Request
from specverify.laws.residual import residual
from specverify.laws.steps import chain_step, point_mass_step
from specverify.reference.batch import Batch, RunningRequest
from specverify.reference.draws import RequestStreams
from specverify.reference.proposers import Drafts
from specverify.reference.verifiers import GreedyVerifier, RejectionVerifier

CPU = torch.device("cpu")
VOCAB, K = 4, 2
NUM_CALLS = 40_000
# The largest of a dozen cells strays this many standard deviations less than once in 10^9 runs; seeds are fixed too.
DEVIATIONS = 6.5


def laws(seed: int, rows: int) -> torch.Tensor:
    return torch.softmax(
        torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 1.5, -1
    )


def batch_of(num_rows: int) -> Batch:
    request = Request((0,), 4)
    return Batch([RunningRequest(request, 0, [0], RequestStreams(None, CPU)) for _ in range(num_rows)], VOCAB, CPU)


def emitted(drafts: tuple[int, ...], draft_probs: torch.Tensor | None, target_probs: torch.Tensor) -> Counter:
    """Emitted tuples of NUM_CALLS calls, made as one batch of equal rows."""
    torch.manual_seed(11)
    num = len(drafts)
    repeated = Drafts(
        torch.tensor([drafts]).expand(NUM_CALLS, num),
        [num] * NUM_CALLS,
        None if draft_probs is None else draft_probs.expand(NUM_CALLS, *draft_probs.shape),
    )
    verdict = RejectionVerifier().verify(batch_of(NUM_CALLS), repeated, target_probs.expand(NUM_CALLS, num + 1, VOCAB))
    pairs = zip(verdict.num_accepted.tolist(), verdict.final_token_ids.tolist(), strict=True)
    return Counter((*drafts[:accepted], final) for accepted, final in pairs)


@pytest.mark.parametrize("drafts", [(0, 1), (2, 2), (3, 0)])
@pytest.mark.parametrize("has_law", [True, False], ids=["draft law", "point mass"])
def test_rejection_emits_the_closed_form_law(drafts: tuple[int, ...], has_law: bool) -> None:
    """Every emitted tuple as often as the law of the step says, for a draft law and for a point mass."""
    draft_probs, target_probs = laws(1, K), laws(2, K + 1)
    rule = chain_step if has_law else point_mass_step
    wanted = rule(drafts, draft_probs.numpy() if has_law else None, target_probs.numpy())

    counts = emitted(drafts, draft_probs if has_law else None, target_probs)

    assert set(counts) <= set(wanted)
    for tokens, probability in wanted.items():
        spread = math.sqrt(NUM_CALLS * probability * (1 - probability)) + 1e-9
        assert abs(counts[tokens] - NUM_CALLS * probability) < DEVIATIONS * spread + 1, tokens


def test_residual_law_is_the_one_of_the_suite() -> None:
    """Also where the two laws are equal and nothing is left."""
    draft, target = laws(3, 5), laws(4, 5)
    draft[2] = target[2]

    law = RejectionVerifier().residual_law(draft, target)

    np.testing.assert_allclose(law.numpy(), residual(draft.numpy(), target.numpy()), atol=1e-15)


def test_impossible_draft_token_is_rejected() -> None:
    """A token that the target cannot emit is never accepted, and never drawn as the final token."""
    target = torch.tensor([[0.0, 0.5, 0.5, 0.0], [0.25] * 4], dtype=torch.float64)

    counts = emitted((0,), torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64), target)

    assert {(1,), (2,)} == set(counts)


def test_ragged_rows_are_padded_without_a_trace() -> None:
    """A row with fewer draft tokens gets its own bonus row, and its padding is never accepted."""
    sure = torch.eye(VOCAB, dtype=torch.float64)
    target = torch.stack([sure[[0, 1, 2]], sure[[0, 3, 2]], sure[[2, 0, 0]]])
    drafts = Drafts(torch.tensor([[0, 1], [0, 0], [0, 0]]), [2, 1, 0], sure[torch.tensor([[0, 1], [0, 0], [0, 0]])])

    for verifier in (RejectionVerifier(), GreedyVerifier()):
        verdict = verifier.verify(batch_of(3), drafts, target)

        assert verdict.num_accepted.tolist() == [2, 1, 0], verifier.name
        assert verdict.final_token_ids.tolist() == [2, 3, 2], verifier.name


def test_greedy_stops_at_the_first_mismatch() -> None:
    """A later match behind a mismatch does not count."""
    target = torch.eye(VOCAB, dtype=torch.float64)[torch.tensor([[1, 2, 3, 0]])]
    drafts = Drafts(torch.tensor([[1, 0, 3]]), [3])

    verdict = GreedyVerifier().verify(batch_of(1), drafts, target)

    assert (verdict.num_accepted.tolist(), verdict.final_token_ids.tolist()) == ([1], [2])


def test_greedy_rows_among_sampled_ones_are_decided_by_argmax() -> None:
    """The rejection rule on point masses accepts the best token and emits the best token otherwise."""
    sure = torch.eye(VOCAB, dtype=torch.float64)
    target = torch.stack([sure[[1, 2]], laws(5, 2)])
    drafts = Drafts(torch.tensor([[3], [0]]), [1, 1], torch.stack([sure[[3]], laws(6, 1)]))

    for _ in range(20):
        verdict = RejectionVerifier().verify(batch_of(2), drafts, target)
        assert (verdict.num_accepted[0].item(), verdict.final_token_ids[0].item()) == (0, 1)
