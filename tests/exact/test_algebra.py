"""The algebra of symbols: thresholds invert values, scalars and blocks agree, races have the weights they should."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specverify.exact import algebra, transforms
from specverify.exact.choices import ChoiceStack
from specverify.exact.conditions import clamp, compare, thresholds
from specverify.exact.errors import NotEnumerable, ReusedRandomness
from specverify.exact.races import race
from specverify.exact.run import Run
from specverify.exact.scalar import Symbol, from_block, new_symbol
from specverify.exact.symbols import (
    exponential_symbols,
    gumbel_symbols,
    uniform_symbols,
    where,
)

STARTS = ("uniform", "mirrored", "exponential", "gumbel")
STEPS = st.one_of(
    st.tuples(st.just("scale"), st.floats(0.1, 10.0) | st.floats(-10.0, -0.1)),
    st.tuples(st.just("shift"), st.floats(-3.0, 3.0)),
    st.tuples(st.sampled_from(["log", "exp"]), st.just(0.0)),
    st.tuples(st.just("power"), st.sampled_from([-1.0, 0.5, 2.0, -0.5])),
)


def new_run():
    stack = ChoiceStack()
    stack.begin_run()
    return Run(stack)


def start(run, name, count=1):
    variables = np.arange(run.new_variables(count), run.num_variables)
    if name == "exponential":
        return exponential_symbols(run, variables, (count,))
    if name == "gumbel":
        return gumbel_symbols(run, variables, (count,))
    return uniform_symbols(run, variables, (count,), mirror=name == "mirrored")


def applied(block, step):
    name, number = step
    if name in ("log", "exp"):
        return getattr(transforms, name)(block)
    return getattr(transforms if name == "power" else algebra, name)(block, number)


def applied_to_scalar(symbol, step):
    name, number = step
    if name in ("log", "exp"):
        return getattr(symbol, name)()
    return {"scale": symbol.__mul__, "shift": symbol.__add__, "power": symbol.__pow__}[name](number)


def numeric(value, step):
    name, number = step
    if name in ("log", "exp"):
        return getattr(np, name)(value)
    return value * number if name == "scale" else value + number if name == "shift" else value**number


def native(name, u):
    return {"uniform": u, "mirrored": 1.0 - u, "exponential": -math.log(u), "gumbel": -math.log(-math.log(u))}[name]


def derived(run, name, steps):
    """The symbol after as many of the steps as its form allows, and those steps."""
    block, taken = start(run, name), []
    for step in steps:
        try:
            block = applied(block, step)
        except NotEnumerable:
            break
        if block.variable[0] < 0:
            return None, taken
        taken.append(step)
    return block, taken


@given(name=st.sampled_from(STARTS), steps=st.lists(STEPS, max_size=6), u=st.floats(0.02, 0.98))
def test_values_follow_the_arithmetic(name, steps, u):
    """Evaluating a derived symbol gives what the same arithmetic gives on numbers."""
    run = new_run()
    block, taken = derived(run, name, steps)
    if block is None:
        return

    wanted = native(name, u)
    with np.errstate(all="ignore"):
        for step in taken:
            wanted = numeric(np.float64(wanted), step)
        found = algebra.evaluate(block, np.array([u]))[0]

    if np.isfinite(wanted):
        assert math.isclose(wanted, found, rel_tol=1e-6, abs_tol=1e-9)


@given(
    name=st.sampled_from(STARTS), steps=st.lists(STEPS, max_size=6), u=st.floats(0.05, 0.95), v=st.floats(0.05, 0.95)
)
def test_thresholds_invert_values(name, steps, u, v):
    """Comparing a symbol with its value at v decides exactly whether U lies on the right side of v."""
    run = new_run()
    block, _ = derived(run, name, steps)
    if block is None or abs(u - v) < 1e-3:
        return
    with np.errstate(all="ignore"):
        at_u, at_v = (float(algebra.evaluate(block, np.array([x]))[0]) for x in (u, v))
    # Compositions that flatten the symbol beyond what floats resolve say nothing.
    if not (math.isfinite(at_v) and math.isfinite(at_u)) or math.isclose(at_u, at_v, rel_tol=1e-9, abs_tol=1e-12):
        return

    threshold, increasing = thresholds(block, np.array([at_v]))

    assert (at_u < at_v) == ((u < threshold[0]) == bool(increasing[0]))


@given(name=st.sampled_from(STARTS), steps=st.lists(STEPS, max_size=6), number=st.floats(-5.0, 5.0))
def test_scalars_and_blocks_agree(name, steps, number):
    """The light scalar follows the same algebra as the arrays, with and without their fast paths."""
    run = new_run()
    block = start(run, name)
    plain = start(run, name)
    plain = type(plain)(run, block.variable, *plain.columns[1:])  # the same symbol without its common form
    scalar = from_block(block[0])
    for step in steps:
        try:
            block = applied(block, step)
        except NotEnumerable:
            with pytest.raises(NotEnumerable):
                applied(plain, step)
            with pytest.raises(NotEnumerable):
                applied_to_scalar(scalar, step)
            return
        plain, scalar = applied(plain, step), applied_to_scalar(scalar, step)
        if block.variable[0] < 0:
            return

    for other in (plain, scalar.block().reshaped((1,))):
        for u in (0.1, 0.5, 0.9):
            with np.errstate(all="ignore"):
                wanted, found = (algebra.evaluate(x, np.array([u]))[0] for x in (block, other))
            assert wanted == pytest.approx(found, rel=1e-9, abs=1e-12, nan_ok=True)
        for operation in ("less", "greater"):
            wanted, found = (compare(x, operation, number) for x in (block, other))
            assert wanted.threshold == pytest.approx(found.threshold, rel=1e-9, abs=1e-12)
            assert wanted.below == found.below


def winner_law(block, largest=True):
    positions, _, weights = race(block, largest=largest, operation="argmax")
    law = np.zeros(block.size)
    law[positions] = weights
    return law


@given(st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=9), st.floats(0.2, 5.0))
def test_all_forms_of_a_race_have_the_same_weights(weights, temperature):
    """w / E, E / w, log w + Gumbel, U ** (1 / w) and scaled Gumbel: the winner's law is w / sum(w)."""
    run = new_run()
    weights = np.array(weights)
    noise = [start(run, "exponential", len(weights)) for _ in range(2)]
    gumbel = [start(run, "gumbel", len(weights)) for _ in range(2)]
    uniform = start(run, "uniform", len(weights))
    wanted = weights / weights.sum()

    forms = [
        (algebra.scale(transforms.power(noise[0], -1.0), weights), True),
        (algebra.scale(noise[1], 1.0 / weights), False),
        (algebra.shift(gumbel[0], np.log(weights)), True),
        (algebra.scale(algebra.shift(gumbel[1], np.log(weights)), 1.0 / temperature), True),
        (transforms.power(uniform, 1.0 / weights), True),
    ]

    for block, largest in forms:
        assert winner_law(block, largest) == pytest.approx(wanted, abs=1e-12)


def test_tokens_of_weight_zero_never_win():
    """0 / E and log 0 + Gumbel are constants that lose every race."""
    run = new_run()
    weights = np.array([0.0, 0.25, 0.0, 0.75])
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights)
    forms = [
        algebra.scale(transforms.power(start(run, "exponential", 4), -1.0), weights),
        algebra.shift(start(run, "gumbel", 4), log_weights),
    ]

    for block in forms:
        assert winner_law(block) == pytest.approx(weights, abs=1e-15)


def test_nan_wins_as_in_numpy():
    """0 / 0 weights make NaN, and argmax returns the first NaN: the law follows."""
    run = new_run()
    block = algebra.scale(transforms.power(start(run, "exponential", 3), -1.0), np.array([1.0, np.nan, 1.0]))

    assert winner_law(block).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda run: algebra.scale(start(run, "uniform", 2), np.array([1.0, 2.0])),
        lambda run: where(np.array([True, False]), start(run, "exponential", 2), start(run, "uniform", 2)),
    ],
    ids=["uniform times weight", "two kinds of noise"],
)
def test_what_is_no_race_is_refused(make):
    """An argmax over other functions of uniforms is refused, not given the weights of a race."""
    with pytest.raises(NotEnumerable):
        race(make(new_run()), largest=True, operation="argmax")


def test_a_race_for_the_last_arrival_is_refused():
    """argmax of E / w has other odds than w."""
    with pytest.raises(NotEnumerable, match="last"):
        race(start(new_run(), "exponential", 3), largest=True, operation="argmax")


def test_sums_of_two_variables_are_refused():
    """A sum of two uniforms has a law outside the family; so has a comparison of two."""
    run = new_run()
    first, second = new_symbol(run, run.new_variables(1)), new_symbol(run, run.new_variables(1))

    for act in (lambda: first + second, lambda: first * second, lambda: first / second, lambda: bool(first < second)):
        with pytest.raises(NotEnumerable):
            act()


def test_one_variable_may_meet_itself():
    """u - u is 0, and u < 2 u - 0.3 is a comparison of one variable with 0.3."""
    run = new_run()
    u = new_symbol(run, run.new_variables(1))

    assert u - u == 0.0
    assert (u < u * 2.0 - 0.3).threshold == pytest.approx(0.3)


@pytest.mark.parametrize(
    "look", [float, bool, str, "{}".format, hash, lambda x: [0, 1][x], np.asarray, math.floor, lambda x: x + "a"],
    ids=["float", "bool", "str", "format", "hash", "index", "object array", "floor", "add text"],
)  # fmt: skip
def test_a_symbol_never_shows_a_number(look):
    """Whatever asks for a symbol's value gets an error or another symbol, never a float."""
    run = new_run()
    symbol = new_symbol(run, run.new_variables(1)) * 0.5

    try:
        value = look(symbol)
    except (NotEnumerable, TypeError):
        return
    assert value.dtype == object if isinstance(value, np.ndarray) else not isinstance(value, float)


def test_a_symbol_is_no_float():
    """C code reads a float subclass silently."""
    assert not issubclass(Symbol, float)


def test_comparisons_with_nan_are_false():
    """u < nan and u >= nan are both false, as in floating point."""
    run = new_run()
    block = start(run, "uniform", 1)
    for operation in ("less", "less_equal", "greater", "greater_equal", "equal"):
        conditions = compare(block, operation, np.nan)
        assert conditions.variable[0] < 0
        assert not conditions.below[0]
        assert not from_block(block[0]).compare(operation, float("nan"))


def test_a_guard_against_zero_is_dropped_and_recorded():
    """clamp(min=1e-20) and + 1e-20 change nothing but what is recorded."""
    run = new_run()
    clamped = clamp(start(run, "uniform", 3), 1e-20, None)
    shifted = transforms.log(algebra.shift(start(run, "uniform", 3), 1e-20))

    assert (clamped.a == 0.0).all()
    assert (shifted.a == 0.0).all()
    assert 1e-20 < run.clipped_mass < 1e-18


def test_a_real_clamp_forks():
    """clamp(min=0.25) makes the value 0.25 with probability 0.25."""
    run = new_run()
    block = clamp(start(run, "uniform", 1), 0.25, None)

    assert run.stack.probability == 0.25
    assert float(block.a[0]) == 0.25
    assert compare(block, "less", 0.3).variable[0] < 0


def test_a_race_on_used_variables_is_reused_randomness():
    """A variable that was compared, or has raced, cannot race: the weights would be wrong."""
    run = new_run()
    block = start(run, "exponential", 3)
    run.consume(block.variable, "argmin")

    with pytest.raises(ReusedRandomness):
        run.consume(block.variable, "argmin")

    run = new_run()
    block = start(run, "exponential", 3)
    run.decide(int(block.variable[0]), 0.5)
    with pytest.raises(ReusedRandomness):
        run.consume(block.variable, "argmin")


@pytest.mark.parametrize("count", [3, 5000])
def test_one_variable_twice_in_a_race_is_reused_randomness(count):
    """The same noise for two tokens is no race."""
    run = new_run()
    variables = np.arange(run.new_variables(count), run.num_variables)
    variables[-1] = variables[0]

    with pytest.raises(ReusedRandomness):
        run.consume(variables, "argmax")


def test_writing_through_a_view_shows_in_the_block():
    """In-place writes reach every view, and clear the common form that speeds blocks up."""
    run = new_run()
    block = start(run, "uniform", 4).copy()
    view = block[1:3]
    view.assign(0, transforms.log(start(run, "uniform", 1))[0])

    assert block.form == [None]
    assert block.kind[1] != block.kind[0]


@given(
    st.lists(st.sampled_from([0.0, 1e-3, 0.5, 1.0, 3.0]), min_size=2, max_size=6),
    st.sampled_from([1.0, -1.0, 0.5, 2.0]),
)
def test_fast_paths_agree_with_the_general_ones(factors, exponent):
    """A block with a known common form, some of its entries cancelled by zeros, acts as one without."""
    run = new_run()
    known = start(run, "exponential", len(factors))
    general = type(known)(run, *known.columns)
    factors = np.array(factors)

    results = []
    for block in (known, general):
        raced = algebra.scale(transforms.power(block, exponent), factors)
        again = algebra.shift(algebra.scale(raced, 0.5), 0.25)
        results.append((raced, again, compare(again, "less", 0.75), compare(raced, "greater_equal", 0.5)))

    for first, second in zip(*results, strict=True):
        assert first.variable.tolist() == second.variable.tolist()
        open_entries = first.variable >= 0
        for one, other in zip(first.columns, second.columns, strict=True):
            assert one[open_entries] == pytest.approx(other[open_entries])
    (raced, _, _, _), (other, _, _, _) = results
    if (factors > 0.0).sum() > 1:
        assert winner_law(raced, exponent < 0.0) == pytest.approx(winner_law(other, exponent < 0.0))
