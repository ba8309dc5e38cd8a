"""Accept rules, causes and scoring: the numbers behind the statistical engine checks."""

from __future__ import annotations

import numpy as np
import pytest
from engine_handmade import PROMPT

from specverify.checks import accept_rules, places, samples, sequence_cause
from specverify.checks.slots import num_slots_of, slots_of
from specverify.core.types import Request, SamplingParams, Step, Trace
from specverify.laws.mistakes import mistake_named
from specverify.laws.sequence import sequence_law, total_variation
from specverify.laws.steps import block_step, chain_step, point_mass_step
from specverify.laws.tree import ConditionalTree

VOCAB = 4
TARGET = ConditionalTree(VOCAB, 1)
DRAFT = ConditionalTree(VOCAB, 2)
REQUEST = Request(PROMPT, 4)


def rows(tree, tokens):
    return np.stack([tree(tokens[:i]) for i in range(len(tokens) + 1)])


@pytest.mark.parametrize(
    ("name", "rule"), [("token-wise", chain_step), ("point-mass", point_mass_step), ("block", block_step)]
)
def test_accepted_laws_are_those_of_the_rules(name, rule):
    """The law of the number of accepted tokens follows from what the rule emits."""
    tokens = (2, 0, 3)
    step = Step(0, 5, tokens, (), 0)
    emitted = rule(tokens, rows(DRAFT, tokens)[:-1], rows(TARGET, tokens))
    wanted = np.zeros(4)
    for output, probability in emitted.items():
        wanted[len(output) - 1] += probability

    law = accept_rules.accepted_laws(step, rows(DRAFT, tokens)[:-1], rows(TARGET, tokens))[name]

    np.testing.assert_allclose(law, wanted, atol=1e-12)


def test_the_right_rule_predicts_the_target_s_own_law():
    """A call of correct steps, of any length, follows the target."""
    law = sequence_cause.sequence_law_of_rule(chain_step, DRAFT, TARGET, REQUEST, num_draft_tokens=2, room=1)

    assert total_variation(law, sequence_law(TARGET, 4)) < 1e-12


@pytest.mark.parametrize("name", ["always-accepts", "resamples-from-target", "target-rows-late"])
def test_a_named_mistake_is_recognised_in_a_whole_call(name):
    """The law that the mistake predicts for the call is the law that was seen: it is named."""
    mistake = mistake_named(name)
    law = sequence_cause.sequence_law_of_rule(mistake.rule, DRAFT, TARGET, REQUEST, num_draft_tokens=2, room=1)

    cause = sequence_cause.likely_cause(law, REQUEST, TARGET, DRAFT, (0,), num_draft_tokens=2, tolerance=1e-9)

    assert mistake.sentence.rstrip(".") in cause


def test_a_mixture_with_the_draft_law_is_called_lossy():
    """Seven tenths target, three tenths draft: the share is found."""
    law = {
        (a, b): float(TARGET(())[a] * (0.7 * TARGET((a,))[b] + 0.3 * DRAFT((a,))[b]))
        for a in range(VOCAB)
        for b in range(VOCAB)
    }

    cause = sequence_cause.likely_cause(
        law, Request(PROMPT, 2), TARGET, DRAFT, (0,), num_draft_tokens=1, tolerance=1e-9
    )

    assert "lossy" in cause
    assert "0.3 x draft" in cause


def test_nothing_is_named_where_nothing_fits():
    """A law that no known mistake predicts has no likely cause."""
    law = {(a, b): 1.0 / VOCAB**2 for a in range(VOCAB) for b in range(VOCAB)}

    cause = sequence_cause.likely_cause(law, Request(PROMPT, 2), TARGET, DRAFT, (), num_draft_tokens=1, tolerance=1e-9)

    assert cause == ""


def test_slots_count_from_the_start_of_each_verify_call():
    """0 is prefill; a stratum that is known before the token is drawn."""
    trace = Trace(
        REQUEST,
        (9, 8, 7, 6, 5),
        (Step(0, 5, (8, 7), (8, 7), 2), Step(1, 7, (5,), (6,), 0), Step(2, 8, (), (5,), 0)),
    )

    assert slots_of(trace, 2).tolist() == [0, 1, 2, 1, num_slots_of(2) - 1]
    assert places.place_text(trace, 0) == "came from prefill, before any draft"
    assert places.place_text(trace, 2) == "was token 1 of its verify call"
    assert places.place_text(trace, 4) == "was token 0 of its verify call, which had no draft"


def test_a_token_at_the_edge_of_top_p_is_not_called_impossible():
    """float32 and float64 may disagree whether the cut is before or behind it."""
    logits = np.log(np.array([0.5, 0.3, 0.1, 0.1]))
    request = Request(PROMPT, 1, SamplingParams(top_p=0.8))
    trace = Trace(request, (2,))

    assert samples._is_at_the_edge(logits, 2, Trace(request, (2,)), 0, 1e-3)
    assert not samples._is_at_the_edge(np.log(np.array([0.5, 0.4, 0.05, 0.05])), 2, trace, 0, 1e-3)
