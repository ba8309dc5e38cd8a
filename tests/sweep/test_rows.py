"""What one line of a sweep says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specverify.laws.economics import expected_tokens
from specverify.sweep.plan import Cell
from specverify.sweep.rows import round_model, row
from tests.sweep.made import SPEED, step

CELL = Cell("temperature", "0.7", output_length=2)


def test_acceptance_counts_judged_tokens_only():
    """Of four drafted tokens with one accepted, two were judged."""
    made = row(CELL, [[step(4, 1), step(4, 4)]], SPEED)

    assert made.acceptance == 5 / 6
    assert made.share_accepted == 5 / 8
    assert made.tokens_per_pass == 3.5


def test_theory_follows_ragged_drafts():
    """Rounds that drafted less are expected to yield less, each by its own length."""
    made = row(CELL, [[step(4, 4), step(2, 0)], [step(0, 0)]], SPEED)

    expected = [expected_tokens(made.acceptance, k) for k in (4, 2, 0)]
    assert made.tokens_per_pass_theory == pytest.approx(sum(expected) / 3)
    assert made.num_drafting == 2


def test_theory_of_speed_is_tokens_over_cost():
    """Two tokens' worth of a round that costs two plain steps gain nothing."""
    made = row(CELL, [[step(1, 1)]], SPEED)

    assert made.tokens_per_pass_theory == 2.0
    assert made.speedup_theory == pytest.approx(1.0)


def test_prompt_dilutes_the_speedup():
    """What speculation does not touch is in both runs."""
    slow = row(replace(CELL, output_length=11), [[step(4, 4)]], replace(SPEED, prompt=10.0))

    assert slow.speedup_theory == pytest.approx(20 / (10 + 10 / (5 / 2)))


def test_nothing_drafted():
    """A proposer that found nothing has no acceptance and no best k, and a round yields one token."""
    made = row(CELL, [[step(0, 0)] * 3], SPEED)

    assert (made.acceptance, made.best_k, made.tokens_per_pass_theory) == (None, None, 1.0)


def test_tree_is_judged_by_rank():
    """The second child was accepted in half of the rounds: its tree is expected to yield what it yielded."""
    parents = (-1, -1)
    steps = [step(2, 1, parents=parents, accepted_nodes=(1,)), step(2, 0, parents=parents, accepted_nodes=())]
    made = row(replace(CELL, num_nodes=2, proposer="tree"), [steps], SPEED)

    assert made.acceptance == 0.5
    assert made.tokens_per_pass_theory == pytest.approx(made.tokens_per_pass)
    assert made.best_k is None


def test_tree_without_branches_is_a_chain():
    """Heads draft chains as trees with one child each: same acceptance, and a best k."""
    drafted = [step(2, 1, parents=(-1, 0), accepted_nodes=(0,)), step(2, 2, parents=(-1, 0), accepted_nodes=(0, 1))]

    made = row(CELL, [drafted], SPEED)

    assert made == row(CELL, [[step(2, 1), step(2, 2)]], SPEED)
    assert made.best_k is not None


def test_round_model_returns_the_measured_round():
    """Costs taken apart and put together again are what was measured."""
    made = row(CELL, [[step(4, 2), step(4, 4)]], SPEED)

    model = round_model(made)

    assert model.cost + 4 * model.draft_cost == pytest.approx(SPEED.round)


def test_errors_are_over_requests():
    """A text that is easy throughout counts once, however many rounds it has."""
    alike = row(CELL, [[step(4, 4), step(4, 0)]] * 50, SPEED)
    unlike = row(CELL, [[step(4, 4)] * 2, [step(4, 0)] * 2] * 25, SPEED)

    assert alike.tokens_per_pass == unlike.tokens_per_pass
    assert alike.tokens_per_pass_error == 0.0
    assert unlike.tokens_per_pass_error == pytest.approx(2.0 / 50**0.5)
