"""The certified distance: an e-value over the whole ball, quiet on noise within it, close to the truth beyond."""

import itertools
import math

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.stats.certified import CUTS, CertifiedTv, token_scores


@pytest.mark.parametrize("tolerance", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("num_tokens", [1, 2])
def test_expectation_is_at_most_one_for_the_worst_laws_in_the_ball(tolerance, num_tokens):
    """Moving the allowed mass from any stretch between cuts to any other keeps the e-value's mean at most 1."""
    edges = np.concatenate([[0.0], CUTS, [1.0]])
    widths, middles = np.diff(edges), (edges[1:] + edges[:-1]) / 2
    values = {}
    for places in itertools.product(range(len(middles)), repeat=num_tokens):
        process = CertifiedTv()
        process.update(middles[list(places)])
        values[places] = math.exp(process.log_e(tolerance))
    for taken, given in [(0, 13), (13, 0), (6, 7), (12, 3), (5, 13)]:
        law = widths.copy()
        moved = min(tolerance, law[taken])
        law[taken] -= moved
        law[given] += moved

        mean = sum(value * np.prod(law[list(places)]) for places, value in values.items())

        assert mean <= 1.0 + 1e-12


def noisy_stream(seed, noise, tolerance, num_tokens=20_000):
    """Tokens whose laws differ from the reference by noise in total variation, always in the same direction."""
    rng = np.random.default_rng(seed)
    law = np.array([0.4, 0.3, 0.2, 0.1])
    tokens = rng.choice(4, num_tokens, p=law + noise * np.array([1.0, 0.0, 0.0, -1.0]))
    process = CertifiedTv()
    process.update((law.cumsum() - law)[tokens] + rng.random(num_tokens) * law[tokens])
    return process.log_e(tolerance)


def test_noise_within_the_tolerance_raises_no_alarm():
    """A bias that fills the whole tolerance: the evidence is inside the ball in every one of 40 runs."""
    assert max(noisy_stream(seed, 0.02, 0.02) for seed in range(40)) < math.log(100)


def test_the_same_noise_is_an_alarm_for_the_naive_null():
    """Without the tolerance the same streams are refuted: the tolerance is what keeps them."""
    assert min(noisy_stream(seed, 0.02, 0.0) for seed in range(5)) > math.log(1e6)


def test_a_bug_beyond_the_noise_is_refuted():
    """Three times the tolerance is no noise."""
    assert noisy_stream(1, 0.06, 0.02) > math.log(1e9)


def test_evidence_falls_as_the_tolerance_grows():
    """More is forgiven, less is proven: so every tolerance can be read from the same data."""
    values = [noisy_stream(1, 0.05, tolerance) for tolerance in np.linspace(0.0, 1.0, 21)]

    assert values == sorted(values, reverse=True)


def test_impossible_tokens_are_certified():
    """A tenth of the tokens forbidden by the reference proves nearly a tenth of total variation."""
    process = CertifiedTv()
    process.update(np.linspace(0.0, 1.0, 9_000))
    process.add_impossible(1_000, 10_000)

    assert 0.075 < process.certified_tv(1e-9) < 0.1


def test_nothing_is_certified_without_data():
    """No tokens, no distance."""
    assert CertifiedTv().certified_tv(1e-6) == 0.0


def test_a_tolerance_is_a_total_variation():
    """A tolerance above 1 is refused."""
    with pytest.raises(UsageError, match=r"tolerance is 1\.5"):
        CertifiedTv().log_e(1.5)


TARGET = np.array([0.5, 0.3, 0.15, 0.05, 0.0])
DRAFT = np.array([0.2, 0.2, 0.3, 0.3, 0.0])


def scored(tokens, draft=DRAFT):
    """A process that was fed with the tests alone."""
    process = CertifiedTv()
    rows = np.broadcast_to(TARGET, (len(tokens), len(TARGET)))
    drafts = None if draft is None else np.broadcast_to(draft, rows.shape)
    process.add_scores(*token_scores(rows, drafts, np.asarray(tokens)))
    return process


@pytest.mark.parametrize("tolerance", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("draft", [DRAFT, None])
@pytest.mark.parametrize(("taken", "given"), list(itertools.permutations(range(5), 2)))
def test_expectation_of_the_tests_is_at_most_one_in_the_ball(tolerance, draft, taken, given):
    """Moving the allowed mass from any token to any other, impossible ones too, wins nothing on average."""
    law = TARGET.copy()
    moved = min(tolerance, law[taken])
    law[taken] -= moved
    law[given] += moved

    pairs = itertools.product(range(5), repeat=2)
    mean = sum(math.exp(scored(pair, draft).log_e(tolerance)) * law[list(pair)].prod() for pair in pairs)

    assert mean <= 1.0 + 1e-12


def mixture_tokens(seed, weight, num_tokens):
    return np.random.default_rng(seed).choice(5, num_tokens, p=(1.0 - weight) * TARGET + weight * DRAFT)


def test_the_certified_distance_is_below_the_true_one():
    """A mixture at total variation .04: at alpha .1 at most some of 200 runs certify more."""
    runs = [scored(mixture_tokens(seed, 0.1, 1_000)).certified_tv(0.1) for seed in range(200)]

    assert sum(distance > 0.04 for distance in runs) <= 20


def test_a_mixture_with_the_draft_is_certified_early():
    """Total variation .12: 3,000 tokens prove .05 of it at one false alarm in 10^9."""
    process = scored(mixture_tokens(1, 0.3, 3_000))

    assert 0.05 < process.certified_tv(1e-9) < 0.12


def test_the_observed_distance_is_an_estimate_of_the_true_one():
    """Total variation .12, seen to within luck."""
    assert abs(scored(mixture_tokens(2, 0.3, 3_000)).observed_tv - 0.12) < 0.03


def test_a_row_without_a_draft_law_wins_nothing_in_the_draft_tests():
    """A bonus token has no draft law: neither side of a bet on it can win."""
    rows = np.broadcast_to(TARGET, (2, 5))
    scores, means = token_scores(rows, np.full((2, 5), np.nan), np.array([0, 3]))

    np.testing.assert_allclose(scores[:2], means[:2])
