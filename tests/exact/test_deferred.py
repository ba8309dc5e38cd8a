"""Deferred draws: what nobody looks at is not forked, and looking forks by the answer, not by the draw."""

from __future__ import annotations

import numpy as np
import pytest

from specverify.exact.law import enumerate_law

LAW = np.array([0.5, 0.25, 0.125, 0.125])


def law_of(program, **options):
    return enumerate_law(program, cross_check_calls=200, **options)


def draw(source):
    return source.numpy_generator().choice(4, p=LAW)


def test_a_question_forks_by_its_answer():
    """`token == 2` makes two paths, not four, and the draw goes on with what is left."""

    def program(source):
        token = draw(source)
        return (token, 7) if token == 2 else (token,)

    law = law_of(program)

    assert law.probabilities == {(0,): 0.5, (1,): 0.25, (2, 7): 0.125, (3,): 0.125}
    assert law.num_runs == 2


def test_questions_accumulate():
    """A second question is conditioned on the first answer."""

    def program(source):
        token = draw(source)
        if token >= 2:
            return (token, int(token == 3))
        return (token,)

    assert law_of(program).probabilities == {(0,): 0.5, (1,): 0.25, (2, 0): 0.125, (3, 1): 0.125}


def test_a_partly_known_draw_meets_its_uniform_again():
    """After `token != 0` the uniform itself is no interval any more: using it decides the draw first."""

    def program(source):
        u = source.uniforms(1)
        token = np.searchsorted(np.cumsum(LAW)[:-1], u[0], side="right")
        if token % 2 == 0:
            return (0, bool(u[0] < 0.4), token)
        return (1, bool(u[0] < 0.6), token)

    law = law_of(program)

    wanted = {(0, True, 0): 0.4, (0, False, 0): 0.1, (0, False, 2): 0.125, (1, True, 1): 0.1, (1, False, 1): 0.15,
              (1, False, 3): 0.125}  # fmt: skip
    assert wanted.keys() == law.probabilities.keys()
    assert all(abs(wanted[key] - law.probabilities[key]) < 1e-15 for key in wanted)


def test_two_draws_of_one_uniform_are_not_independent():
    """Two inverse CDFs of one uniform that both reach the output undecided are decided together."""

    def program(source):
        u = source.uniforms(2)
        row = np.cumsum(LAW)[:-1]
        return np.searchsorted(row, u[0]), np.searchsorted(row, u[0]), np.searchsorted(row, u[1])

    law = law_of(program)

    assert len(law.probabilities) == 16
    assert all(first == second for first, second, _ in law.probabilities)


def test_vector_comparisons_fork_only_up_to_the_first_rejection():
    """k accept tests of which the first failing one matters cost k + 1 paths, not 2 ** k."""

    def program(source):
        accepted = source.numpy_generator().random(12) < 0.5
        return int(np.cumprod(accepted).sum())

    law = law_of(program)

    assert law.num_runs == 13
    assert [0.5**n for n in range(1, 13)] == [law.probabilities[n] for n in range(12)]


@pytest.mark.parametrize(
    "count",
    [
        lambda accepted: len(accepted) if accepted.all() else np.argmin(accepted),
        lambda accepted: len(accepted) if np.all(accepted) else (~accepted).argmax(),
        lambda accepted: np.logical_and.accumulate(accepted).sum(),
        lambda accepted: next((n for n, ok in enumerate(accepted) if not ok), len(accepted)),
        lambda accepted: np.where(accepted, 1, 0).cumprod().sum(),
        lambda accepted: np.multiply.accumulate(accepted.astype(np.int64)).sum(),
        lambda accepted: np.cumprod(accepted, dtype=int).sum(),
        lambda accepted: np.argmin(np.append(accepted, False)),
        lambda accepted: np.argmax(np.concatenate([~accepted, [True]])),
        lambda accepted: int((np.cumsum(~accepted) == 0).sum()),
        lambda accepted: accepted.tolist().index(False) if not accepted.all() else len(accepted),
        lambda accepted: [*np.flatnonzero(~accepted).tolist(), len(accepted)][0],
        lambda accepted: [*np.where(~accepted)[0].tolist(), len(accepted)][0],
    ],
)
def test_every_way_to_count_accepted_tokens_has_the_same_law(count):
    """The count of leading acceptances, however it is written."""

    def program(source):
        uniforms = source.numpy_generator().random(3)
        return int(count(uniforms < np.array([0.5, 0.25, 0.75])))

    law = law_of(program)

    wanted = {0: 0.5, 1: 0.5 * 0.75, 2: 0.125 * 0.25, 3: 0.125 * 0.75}
    assert wanted == pytest.approx(law.probabilities)


def test_a_cumulative_row_is_one_choice():
    """(cumsum(p) > u).argmax() over 1000 tokens is one draw, not 1000 comparisons."""
    row = np.random.default_rng(0).dirichlet(np.ones(1000))

    def program(source):
        return np.argmax(np.cumsum(row) > source.numpy_generator().random())

    law = law_of(program)

    assert law.num_runs == 1
    assert np.array([law.probabilities[token] for token in range(1000)]) == pytest.approx(row, abs=1e-15)


def test_counting_comparisons_of_one_uniform_is_one_choice():
    """(u > cumsum(p)).sum() is the inverse CDF too."""

    def program(source):
        return (source.numpy_generator().random() > np.cumsum(LAW)[:-1]).sum()

    law = law_of(program)

    assert law.num_runs == 1
    assert dict(enumerate(LAW)) == law.probabilities


def test_a_deferred_token_is_an_index_a_key_and_text():
    """Whatever needs the number gets the number."""
    names = {0: "a", 1: "b", 2: "c", 3: "d"}

    def program(source):
        token = draw(source)
        return names[token], [10, 11, 12, 13][token], f"{token}", np.arange(20, 24)[token]

    assert law_of(program).probabilities["b", 11, "1", 21] == 0.25


def test_arithmetic_on_a_deferred_token_stays_open():
    """Offsets and masks of the last token cost no run."""

    def program(source):
        token = draw(source)
        return 2 * token + 1, np.minimum(token, 2), -token

    law = law_of(program)

    assert law.num_runs == 1
    assert law.probabilities[7, 2, -3] == 0.125


def test_arrays_of_deferred_tokens():
    """Padding, stacking and selecting deferred tokens keeps their joint law."""

    def program(source):
        generator = source.numpy_generator()
        tokens = generator.choice(4, size=2, p=LAW)
        padded = np.concatenate([tokens, np.full(2, -1)])
        return padded, np.where(padded >= 0, padded, 9)

    law = law_of(program)

    assert len(law.probabilities) == 16
    assert law.probabilities[(0, 3, -1, -1), (0, 3, 9, 9)] == 0.5 * 0.125


def test_a_decided_token_in_a_cache_outlives_its_run():
    """Programs that cache rows by token tuples work: a decided draw is an ordinary number."""
    cache = {}

    def program(source):
        generator = source.numpy_generator()
        token = generator.choice(4, p=LAW)
        row = cache.setdefault((token,), np.roll(LAW, int(token)))
        return token, generator.choice(4, p=row)

    assert len(law_of(program).probabilities) == 16
