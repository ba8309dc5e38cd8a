"""Seeds that give one text: a bug, or chance."""

from __future__ import annotations

import numpy as np
import pytest

from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.core.types import Trace
from specverify.faults import engine
from tests.checks.engine_handmade import ScriptedEngine, result_of

CHECK = "seed.tells-seeds-apart"
FAULTS = {fault.name: fault for fault in engine.FAULTS}
CAPABILITIES = (Capability.GENERATE, Capability.SEED, Capability.SCORE)


def seeded(kept_bits, *, num_tokens=24, nats=3.0):
    """An engine whose text depends on some bits of the seed; each token has a log-probability of -nats."""

    def answer(requests, speculate):
        return [
            Trace(r, tuple((int(r.seed & kept_bits) * 7 + i) % 101 for i in range(r.max_new_tokens)), speculated=True)
            for r in requests
        ]

    def score(prompt, tokens):
        return np.full((len(tokens), 101), -nats)

    return ScriptedEngine(answer, capabilities=CAPABILITIES, max_new_tokens=num_tokens, score=score)


def test_seeds_with_texts_of_their_own_pass():
    """Eight seeds, eight texts; nobody is asked how likely they are."""
    result = result_of(CHECK, seeded(2**31 - 1))

    assert Outcome.PASSED is result.outcome


@pytest.mark.parametrize(
    ("kept_bits", "num_equal", "lost"), [(~0xFF, 5, "low bits"), (0xFFFF, 4, "high bits"), (0, 8, "seed is ignored")]
)
def test_seeds_that_share_an_unlikely_text_fail(kept_bits, num_equal, lost):
    """How many are equal, and which, says what became of the seed."""
    (finding,) = result_of(CHECK, seeded(kept_bits)).findings

    assert finding.headline.startswith(f"{num_equal} different seeds")
    assert lost in finding.likely_cause


@pytest.mark.parametrize(("num_tokens", "nats"), [(1, 2.0), (24, 0.01)])
def test_a_likely_text_may_be_shared_by_chance(num_tokens, nats):
    """Short, or nearly certain: several seeds may rightly give it."""
    assert Outcome.INCONCLUSIVE is result_of(CHECK, seeded(0, num_tokens=num_tokens, nats=nats)).outcome


def test_a_text_of_unknown_law_may_be_near_certain():
    """Without the target's law nothing is proved by equal texts: real models continue some prompts in one way only."""
    subject = seeded(0)
    subject.capabilities = frozenset(subject.capabilities) - {Capability.SCORE}

    result = result_of(CHECK, subject)

    assert result.outcome is Outcome.INCONCLUSIVE
    assert "declare SCORE" in result.reason


def test_an_engine_that_ignores_seeds_is_the_matter_of_another_check():
    """Its texts differ: what is wrong is that they do not repeat."""
    subject = FAULTS["seed-ignored"].make()

    assert Outcome.PASSED is result_of(CHECK, subject).outcome
    assert Outcome.FAILED is result_of("seed.repeats", subject).outcome
