"""Correct verify functions in every numpy and Python style: their enumerated laws are the target's, to 1e-12."""

from __future__ import annotations

import numpy as np
import pytest

from specverify.exact.law import enumerate_law
from specverify.laws.mistakes import MISTAKES
from specverify.laws.steps import chain_step, draft_paths, step_law
from tests.exact.numpy_subjects import PYTHON_STYLES, STYLES, residual_row, scalar_choice, vector_choice
from tests.exact.programs import distance, numpy_program, python_program, trees

SIZES = [(2, 3), (5, 2), (16, 1)]


@pytest.mark.parametrize("verify", STYLES, ids=lambda style: style.__name__)
@pytest.mark.parametrize(("vocab_size", "num_draft_tokens"), SIZES)
def test_every_numpy_style_has_the_target_law(verify, vocab_size, num_draft_tokens):
    """A lossless function is enumerated to a total variation below 1e-12, whatever its style of drawing."""
    target, draft = trees(vocab_size)

    law = enumerate_law(numpy_program(verify, target, draft, num_draft_tokens), cross_check_calls=300)

    assert distance(law, target) < 1e-12


@pytest.mark.parametrize("verify", PYTHON_STYLES, ids=lambda style: style.__name__)
def test_every_python_style_has_the_target_law(verify):
    """Functions on lists and random.Random are enumerated too."""
    target, draft = trees(6)

    law = enumerate_law(python_program(verify, target, draft, 2), cross_check_calls=300)

    assert distance(law, target) < 1e-12


@pytest.mark.parametrize("verify", [scalar_choice, vector_choice], ids=lambda style: style.__name__)
def test_the_law_agrees_with_the_closed_form(verify):
    """Not only the completed law: every emitted tuple has the probability of the closed form."""
    target, draft = trees(4, seed=3)

    law = enumerate_law(numpy_program(verify, target, draft, 2), cross_check_calls=0)

    wanted = step_law(chain_step, draft, target, 2)
    assert wanted.keys() == law.probabilities.keys()
    assert max(abs(wanted[tokens] - law.probabilities[tokens]) for tokens in wanted) < 1e-15


def test_a_last_draw_costs_one_run():
    """What nobody looks at is not forked: one residual draw over 64 tokens adds no run."""
    target, draft = trees(64, support=2)

    law = enumerate_law(numpy_program(vector_choice, target, draft, 1), cross_check_calls=0)

    # Two drafts, each accepted or rejected; certain acceptances have no second branch.
    assert law.num_runs <= 4


def test_int_of_a_last_draw_costs_one_run_too():
    """`tokens.append(int(rng.choice(...)))` keeps the draw open."""
    target, draft = trees(64, support=2)

    law = enumerate_law(numpy_program(scalar_choice, target, draft, 1), cross_check_calls=0)

    assert law.num_runs <= 6


def test_int_calls_are_put_back():
    """Enumerating leaves the function's own code as it was."""
    code = scalar_choice.__code__
    target, draft = trees(4)

    enumerate_law(numpy_program(scalar_choice, target, draft, 1), cross_check_calls=0)

    assert scalar_choice.__code__ is code
    assert "__specverify_whole_number__" not in scalar_choice.__globals__


def slack(rng, draft, draft_probs, target_probs):
    return vector_choice(rng, draft, np.minimum(draft_probs / 1.02, 1.0), target_probs)


def reused_uniform(rng, draft, draft_probs, target_probs):
    """Draws the residual token with the uniform that rejected the draft token."""
    for position, token in enumerate(draft):
        u = rng.random()
        if u < target_probs[position, token] / draft_probs[position, token]:
            continue
        residual = residual_row(draft_probs, target_probs, position)
        cumulative = np.cumsum(residual / residual.sum())
        return (*draft[:position], np.searchsorted(cumulative[:-1], u, side="right"))
    return (*draft, rng.choice(target_probs.shape[1], p=target_probs[-1]))


def one_uniform_for_all(rng, draft, draft_probs, target_probs):
    """Compares one uniform with all ratios."""
    u = rng.random()
    n = 0
    while n < len(draft) and u < target_probs[n, draft[n]] / draft_probs[n, draft[n]]:
        n += 1
    residual = residual_row(draft_probs, target_probs, n)
    return (*draft[:n], rng.choice(len(residual), p=residual / residual.sum()))


@pytest.mark.parametrize(
    ("verify", "mistake"), [(reused_uniform, "reuse"), (one_uniform_for_all, "shared")], ids=["reused", "shared"]
)
def test_one_uniform_used_twice_is_enumerated_exactly(verify, mistake):
    """A uniform compared twice is no obstacle: what the first comparison says conditions the second."""
    target, draft = trees(4, seed=5)
    (rule,) = [
        found.rule for found in MISTAKES
        if mistake in found.name and "uniform" in found.name
    ]  # fmt: skip

    law = enumerate_law(numpy_program(verify, target, draft, 2), cross_check_calls=500)

    wanted = {}
    for tokens, weight in draft_paths(draft, 2):
        for emitted, share in rule(tokens, draft.rows(tokens[:-1]), target.rows(tokens)).items():
            wanted[emitted] = wanted.get(emitted, 0.0) + weight * share
    assert (
        max(abs(wanted.get(key, 0.0) - law.probabilities.get(key, 0.0)) for key in {*wanted, *law.probabilities})
        < 1e-14
    )
    assert distance(law, target) > 1e-3


def test_a_two_percent_slack_is_seen():
    """An accept ratio 2 % too large moves the law by far more than rounding."""
    target, draft = trees(8)

    law = enumerate_law(numpy_program(slack, target, draft, 2), cross_check_calls=0)

    assert distance(law, target) > 1e-3
