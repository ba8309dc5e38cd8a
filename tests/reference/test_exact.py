"""The law of a whole generate call, every path of it enumerated, is the target's sequence law."""

from __future__ import annotations

import pytest

from specverify.core.types import Request, SamplingParams
from specverify.exact.law import enumerate_law
from specverify.laws.sequence import total_variation
from specverify.reference.engine import ReferenceEngine
from specverify.reference.proposers import DraftModelProposer, NgramProposer, Proposer
from tests.reference import tiny
from tests.reference.test_engine import exact_law

PROMPT, NUM_TOKENS = (0, 1, 1, 0, 1), 4
SAMPLING = SamplingParams(temperature=0.8, repetition_penalty=1.3)
# Two float64 programs; measured 1e-15.
TOLERANCE = 1e-12


@pytest.mark.parametrize("drafter", ["draft-model", "n-gram"])
def test_enumerated_law_of_generate_is_the_targets(drafter: str) -> None:
    """Drafting, verification, rollback of both caches and penalties, on all paths: not one of them is off."""
    target = tiny.model(vocab_size=2)
    draft = tiny.model(4, vocab_size=2, num_layers=1)
    proposer: Proposer = DraftModelProposer(draft) if drafter == "draft-model" else NgramProposer()
    engine = ReferenceEngine(target, proposer, num_draft_tokens=2, record_probs=False)
    request = Request(PROMPT, NUM_TOKENS, SAMPLING)

    law = enumerate_law(lambda source: engine.generate([request])[0].token_ids, cross_check_calls=200)

    # Plain decoding has one path per text but its last token: more of them means that drafts were on the way.
    assert law.num_runs > 2 ** (NUM_TOKENS - 1)
    assert total_variation(law.probabilities, exact_law(target, PROMPT, NUM_TOKENS, SAMPLING)) < TOLERANCE


def test_enumeration_sees_a_broken_engine() -> None:
    """The same program with one accept test too generous has another law: the test above can fail."""

    class Generous(ReferenceEngine):
        def emitted_tokens(self, draft_token_ids: list[int], num_accepted: int, final_token_id: int) -> list[int]:
            return super().emitted_tokens(draft_token_ids, max(num_accepted, 1), final_token_id)

    target = tiny.model(vocab_size=2)
    engine = Generous(target, DraftModelProposer(tiny.model(4, vocab_size=2, num_layers=1)), num_draft_tokens=1)
    request = Request((0, 1), 3)

    law = enumerate_law(lambda source: engine.generate([request])[0].token_ids, cross_check_calls=200)

    assert total_variation(law.probabilities, exact_law(target, (0, 1), 3, SamplingParams())) > 0.01
