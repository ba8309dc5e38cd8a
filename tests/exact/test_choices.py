"""The choice stack: depth-first, exact weights, and refusal of anything that does not repeat."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specverify.exact.choices import ChoiceStack, EnumerationBudget
from specverify.exact.errors import NotEnumerable
from specverify.exact.law import enumerate_law
from specverify.exact.run import Run


def explore(program, **budget):
    stack = ChoiceStack(EnumerationBudget(**budget))
    paths = {}
    more = True
    while more:
        stack.begin_run()
        output = program(stack)
        paths[output] = paths.get(output, 0.0) + stack.probability
        more = stack.end_run()
    return paths, stack


def test_every_path_is_visited_once_with_its_probability():
    """The leaves of the choice tree are the runs, and their probabilities sum to 1."""

    def program(stack):
        first = stack.choose((0.25, 0.75), "first")
        return first, stack.choose((0.5, 0.5), "second") if first else 9

    paths, stack = explore(program)

    assert paths == {(0, 9): 0.25, (1, 0): 0.375, (1, 1): 0.375}
    assert stack.num_runs == 3
    assert stack.explored == 1.0


def test_branches_of_probability_zero_are_not_visited():
    """An impossible branch costs no run, in short and in long laws."""
    for size in (4, 200):
        weights = np.zeros(size)
        weights[[1, -1]] = 0.5

        paths, _ = explore(lambda stack, weights=weights: stack.choose(weights, "draw"))

        assert {1: 0.5, size - 1: 0.5} == paths


def test_a_choice_of_other_arity_is_refused():
    """Hidden state that changes how many branches a choice has is reported."""
    calls = []

    def program(stack):
        calls.append(0)
        stack.choose((1.0,) if len(calls) == 2 else (0.5, 0.5), "draw")

    with pytest.raises(NotEnumerable, match="not repeatable"):
        explore(program)


@pytest.mark.parametrize("size", [2, 200])
def test_a_choice_of_other_weights_is_refused(size):
    """The same arity is not enough: state kept between calls that moves the weights mixes two laws silently."""
    calls = []

    def program(stack):
        calls.append(0)
        weights = np.full(size, 1.0 / size)
        weights[0] += 1e-6 * len(calls)
        weights[1] -= 1e-6 * len(calls)
        stack.choose(weights, "draw")

    with pytest.raises(NotEnumerable, match="weights of a choice moved by 1e-06"):
        explore(program)


def test_rounding_within_the_tolerance_is_a_repeat():
    """Libraries that do not repeat bit for bit are allowed their rounding."""
    calls = []

    def program(stack):
        calls.append(0)
        moved = 1e-8 * len(calls)
        return stack.choose((0.5 + moved, 0.5 - moved), "draw")

    paths, _ = explore(program, replay_tolerance=1e-6)

    assert math.isclose(1.0, sum(paths.values()), abs_tol=1e-12)


def test_fewer_choices_than_before_are_refused():
    """A replay that stops choosing early is reported, not counted."""
    calls = []

    def program(stack):
        calls.append(0)
        stack.choose((0.5, 0.5), "first")
        if len(calls) == 1:
            stack.choose((0.5, 0.5), "second")
        return len(calls)

    with pytest.raises(NotEnumerable, match="made 1 choices where the run before made 2"):
        explore(program)


def test_the_budget_of_runs_ends_the_search():
    """A law too large for the budget is refused with how far it came."""
    with pytest.raises(NotEnumerable, match=r"budget of 10 runs .* 0.1 of the probability"):
        explore(lambda stack: stack.choose(np.full(100, 0.01), "draw"), max_runs=10)


@pytest.mark.parametrize("weights", [(0.5, 0.4), (1.5, -0.5), (math.nan, 1.0)])
def test_weights_that_are_no_law_are_refused(weights):
    """Weights must be non-negative and sum to 1."""
    with pytest.raises(NotEnumerable, match="they must be a law"):
        explore(lambda stack: stack.choose(weights, "draw"))


def compared_again(program):
    """enumerate_law of a program that is told how often it was called."""
    calls = []

    def counted(source):
        calls.append(0)
        return program(len(calls), *source.numpy_generator().random(2))

    return enumerate_law(counted, cross_check_calls=0)


def test_another_variable_in_a_known_comparison_is_found():
    """Equal weights do not make it the same comparison: what is known of the variables then differs."""
    with pytest.raises(NotEnumerable, match=r"weights of a choice moved by 0\.25"):
        compared_again(lambda call, u, v: (bool((u if call % 2 else v) < 0.5), bool(u < 0.25)))


def test_a_comparison_that_is_not_looked_at_again_is_found():
    """A comparison is a choice where somebody looks, in replays too."""
    with pytest.raises(NotEnumerable, match="made 0 choices where the run before made 1"):
        compared_again(lambda call, u, v: bool(u < 0.5) if call != 4 else (u < 0.5) is None)


def test_a_threshold_that_moves_is_found():
    """A known comparison is taken again at its own threshold only."""
    with pytest.raises(NotEnumerable, match="weights of a choice moved by 1e-06"):
        compared_again(lambda call, u, v: bool(u < 0.5 + 1e-6 * call))


def test_a_choice_of_equal_weights_is_no_comparison_again():
    """Whoever passes a comparison by its weights alone makes the stack forget what was compared."""
    stack = ChoiceStack()
    run = Run(stack)
    variable = run.new_variables(1)
    stack.begin_run()
    assert run.decide(variable, 0.25)
    assert stack.here.is_compared
    stack.replay()

    assert run.stack.choose((0.25, 0.75), "comparison") == 0
    assert not stack.here.is_compared


def test_intervals_narrow_alike_in_replays():
    """A variable that is compared many times has the same intervals on every path, known comparisons or new."""
    law = enumerate_law(
        lambda source: [bool(u < cut) for u in source.numpy_generator().random(2).tolist() for cut in (0.5, 0.2, 0.7)],
        cross_check_calls=0,
    )

    one = {(False, False, False): 0.3, (False, False, True): 0.2, (True, False, True): 0.3, (True, True, True): 0.2}
    assert pytest.approx({x + y: one[x] * one[y] for x in one for y in one}) == law.probabilities
