"""Streams: uniform under the null whatever the contexts, loud on drift, slot-local bugs and impossible tokens."""

import math

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.stats.pit import PitStream

VOCAB_SIZE = 12
ALARM = math.log(1e9)


def drawn(laws, rng):
    return (laws.cumsum(axis=1) < rng.random(len(laws))[:, None]).sum(axis=1).clip(0, laws.shape[1] - 1)


def stream_after(num_tokens, emitted_law, *, seed=1):
    """A stream over random laws and drafts; emitted_law(target, draft, previous, slots) is what tokens follow."""
    rng = np.random.default_rng(seed)
    target = rng.dirichlet(np.full(VOCAB_SIZE, 0.5), num_tokens)
    draft = 0.5 * target + 0.5 * rng.dirichlet(np.full(VOCAB_SIZE, 0.5), num_tokens)
    draft[::3] = np.nan
    previous = np.concatenate([target[:1], target[:-1]])
    slots = np.arange(num_tokens) % 3
    tokens = drawn(emitted_law(target, draft, previous, slots), rng)
    stream = PitStream(VOCAB_SIZE, num_slots=3)
    stream.update(tokens, target, rng=rng, slots=slots, draft_laws=draft, previous_laws=previous)
    return stream


def test_the_orders_that_were_looked_at_are_named():
    """Without a draft law there is no order by one, and the stated total variation is one between bins."""
    law, rng = np.full((1, VOCAB_SIZE), 1.0 / VOCAB_SIZE), np.random.default_rng(1)
    stream = PitStream(VOCAB_SIZE)
    stream.update([0], law, rng=rng, draft_laws=np.full_like(law, np.nan))
    blind = stream.detectable_text(0.05)
    stream.update([0], law, rng=rng, draft_laws=law)

    assert blind == "total variation 0.05 between 20 bins of the tokens, ordered by target law or a shuffle"
    assert stream.detectable_text(0.05).endswith("ordered by target law, draft / target or a shuffle")


def right(target, draft, previous, slots):
    return target


def drawn_from_draft_mixture(target, draft, previous, slots):
    return np.where(np.isnan(draft), target, 0.7 * target + 0.3 * draft)


def bonus_from_previous_row(target, draft, previous, slots):
    return np.where(slots[:, None] == 2, previous, target)


def hotter(target, draft, previous, slots):
    mass = target ** (1 / 1.15)
    return mass / mass.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(5))
def test_right_tokens_gain_nothing(seed):
    """Tokens that follow their laws leave every order uniform, and nothing certified."""
    stream = stream_after(20_000, right, seed=seed)

    assert stream.log_e < 5.0
    assert stream.certified_tv(1e-6) == 0.0


@pytest.mark.parametrize("wrong", [drawn_from_draft_mixture, bonus_from_previous_row, hotter])
def test_wrong_tokens_raise_the_alarm(wrong):
    """Drafts accepted too easily, a bonus row one too early and a wrong temperature are all found."""
    assert stream_after(20_000, wrong).log_e > ALARM


def test_the_slot_and_the_bet_are_named():
    """A bug of the bonus slot shows in that slot, and the bet on the previous row gains most."""
    detail = stream_after(5_000, bonus_from_previous_row).detail()

    direction, slot, _ = detail.best_bet
    assert (direction, slot) == ("previous-row", 2)
    assert detail.by_key["target", 2] > ALARM > 5.0 > detail.by_key["target", 0]


def test_impossible_token_is_proof_and_reported_apart():
    """A forbidden token makes the evidence infinite, and is left out where rounding may explain it."""
    laws = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    stream = PitStream(3)
    stream.update([0, 2], laws, rng=np.random.default_rng(1))

    assert stream.num_impossible == 1
    assert stream.log_e == math.inf
    assert math.isfinite(stream.log_e_of_possible)


def test_certified_distance_is_below_the_true_one_and_near_it():
    """The certified distance never exceeds the true average, and reaches most of what the orders can see."""
    stream = stream_after(100_000, hotter)
    rng = np.random.default_rng(1)
    target = rng.dirichlet(np.full(VOCAB_SIZE, 0.5), 100_000)
    true = 0.5 * np.abs(hotter(target, None, None, None) - target).sum(axis=1).mean()

    assert 0.5 * true < stream.certified_tv(1e-6) < true
    assert stream.log_e_within(true) < 0.0 < ALARM < stream.log_e_within(0.0)


def test_batches_give_the_same_evidence():
    """Splitting an update does not change what was seen (same random numbers apart)."""
    rng = np.random.default_rng(3)
    laws = rng.dirichlet(np.ones(4), 1_000)
    tokens = drawn(0.5 * laws + 0.5 * laws[::-1], rng)
    whole, parts = PitStream(4), PitStream(4)
    whole.update(tokens, laws, rng=np.random.default_rng(1))
    for start in range(0, 1_000, 100):
        parts.update(tokens[start : start + 100], laws[start : start + 100], rng=np.random.default_rng(start))

    assert whole.num_tokens == parts.num_tokens
    assert whole.detail().bets == pytest.approx(parts.detail().bets)


@pytest.mark.parametrize(
    ("tokens", "laws", "options", "says"),
    [
        ([0], np.full((2, 3), 1 / 3), {}, "one row for each token"),
        ([3], np.full((1, 3), 1 / 3), {}, "outside the vocabulary"),
        ([0], np.full((1, 3), 0.5), {}, "summing to 1"),
        ([0], np.full((1, 3), 1 / 3), {"slots": [1]}, "slots must hold"),
    ],
)
def test_bad_updates_are_refused(tokens, laws, options, says):
    """Each refusal says what to give."""
    with pytest.raises(UsageError, match=says):
        PitStream(3).update(tokens, laws, rng=np.random.default_rng(0), **options)


def test_an_unknown_key_is_refused_with_the_choices():
    """The orders to choose from are listed."""
    with pytest.raises(UsageError, match="choose from target, ratio, hash"):
        PitStream(3, keys=("size",))
