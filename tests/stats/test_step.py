"""Step processes: quiet on every lossless rule, loud on a broken one, exact on expectation."""

import math

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.laws.residual import accept_ratio
from specverify.laws.steps import assembled_law, block_step, chain_step, point_mass_step, step_law
from specverify.laws.tree import DRAFT_SPECIALS, TARGET_SPECIALS, ConditionalTree
from specverify.stats.directions import DIRECTIONS, Portfolio, direction_rows
from specverify.stats.step import StepProcess

ALARM = math.log(1e9)


def resampling_step(tokens, draft, target):
    """The classic mistake: a rejected token is replaced by a draw from the target instead of the residual."""
    positions = np.arange(len(tokens))
    return assembled_law(
        tokens, accept_ratio(draft[positions, tokens], target[positions, tokens]), target[:-1], target[-1]
    )


def process_after(rule, num_calls, *, seed=1, vocab_size=5, specials=False):
    target = ConditionalTree(vocab_size, seed, specials=TARGET_SPECIALS if specials else ())
    draft = target.draft(seed + 1, specials=DRAFT_SPECIALS if specials else ())
    law = step_law(rule, draft, target, 2)
    counts = np.random.default_rng(seed).multinomial(num_calls, np.array(list(law.values())) / sum(law.values()))
    process = StepProcess(target, draft, 2)
    process.update(dict(zip(law, counts, strict=True)))
    return process


@pytest.mark.parametrize("rule", [chain_step, block_step, point_mass_step])
@pytest.mark.parametrize("specials", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_lossless_rules_gain_nothing(rule, specials, seed):
    """Token-wise, block and point-mass verification all look the same to the process: fine."""
    process = process_after(rule, 50_000, seed=seed, specials=specials)

    assert process.log_e < 5.0
    assert not process.impossible


def test_resampling_is_found_within_the_stated_power():
    """A broken rule whose first-token error exceeds the stated detectable TV raises the alarm."""
    process = process_after(resampling_step, 3_000)

    assert process.log_e > ALARM
    assert min(process.detail().values()) > ALARM


def test_the_suspects_are_named():
    """The prefix with most evidence comes first, with its counts."""
    prefix, log_e, counts = process_after(resampling_step, 20_000).suspects()[0]

    assert prefix == ()
    assert log_e > ALARM
    assert counts.sum() == 20_000


def test_impossible_token_is_proof():
    """A token that the target forbids makes the evidence infinite and is named with its prefix."""
    target = ConditionalTree(4, 1, support=2)
    forbidden = int(np.flatnonzero(target(()) == 0.0)[0])
    process = StepProcess(target, None, 1)
    process.update([(forbidden,), (99,)])

    assert process.log_e == math.inf
    assert {(forbidden,): 1, (99,): 1} == dict(process.impossible)


def test_too_many_tokens_are_refused():
    """A call cannot emit more than the drafts and one."""
    with pytest.raises(UsageError, match="2 draft tokens allow 3"):
        process_after(chain_step, 10).update([(0, 0, 0, 0)])


@pytest.mark.parametrize("rule", [chain_step, block_step])
def test_bets_have_expectation_one(rule):
    """For every direction and weight the product over a call's emitted tokens averages to exactly 1."""
    target = ConditionalTree(3, 4)
    draft = target.draft(5)
    total = 0.0
    for output, probability in step_law(rule, draft, target, 2).items():
        portfolio = Portfolio(3)
        for i, token in enumerate(output):
            rows = direction_rows(
                target(output[:i])[None],
                draft(output[:i])[None] if i < 2 else None,
                target(output[: i - 1])[None] if i else None,
            )[:, 0]
            portfolio.update(i, [token], [1.0], target(output[:i]), rows)
        total += probability * math.exp(portfolio.log_e)

    assert total == pytest.approx(1.0, abs=1e-12)


def test_the_best_bet_points_at_the_mistake():
    """Tokens from a mixture with the draft: the draft, or where it exceeds the target, gains most."""
    target = ConditionalTree(5, 1)
    draft = target.draft(2)
    portfolio = Portfolio(1)
    counts = 10_000 * (0.5 * target(()) + 0.5 * draft(()))
    portfolio.update(0, np.arange(5), counts, target(()), direction_rows(target(())[None], draft(())[None])[:, 0])

    assert portfolio.best()[0] in ("draft", "draft-above-target")


def test_directions_are_laws():
    """Every direction is a probability law, with and without draft and previous rows."""
    target = np.array([[0.5, 0.3, 0.2, 0.0]])
    for draft in (None, np.array([[0.1, 0.2, 0.3, 0.4]]), np.full((1, 4), np.nan)):
        rows = direction_rows(target, draft, target[:, ::-1])

        assert len(DIRECTIONS) == len(rows)
        np.testing.assert_allclose(rows.sum(axis=-1), 1.0)
