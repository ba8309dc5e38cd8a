"""The automaton over token ids: what it allows, where an output may end, and what it refuses to be."""

from __future__ import annotations

import json

import pytest

from specverify.core.constraint import Constraint
from specverify.core.errors import UsageError
from specverify.core.types import Request

# (ab)*c: complete behind c.
REPEATED = Constraint(({4: 1, 6: 2}, ((5, 0),), ()), frozenset({2}))


def request(constraint=REPEATED, ends=(9,)):
    return Request((1, 2), 8, eos_token_ids=ends, constraint=constraint)


def test_states_follow_the_tokens():
    """None once a token was not allowed, and for good."""
    assert [REPEATED.state_after(text) for text in ((), (4,), (4, 5), (4, 5, 6), (5,), (5, 4))] == [
        0, 1, 0, 2, None, None,
    ]  # fmt: skip
    assert REPEATED.state_from(1, (5, 4)) == 1


def test_allowed_tokens_are_those_of_the_state():
    """An accepting state without transitions is complete."""
    assert [REPEATED.allowed(state) for state in range(3)] == [{4, 6}, {5}, set()]
    assert [REPEATED.is_complete(state) for state in range(3)] == [False, False, True]
    assert REPEATED.token_ids == {4, 5, 6}


def test_a_mapping_and_pairs_in_any_order_are_one_constraint():
    """Equal, hashable, and the same after JSON."""
    other = Constraint((((6, 2), (4, 1)), {5: 0}, {}), {2})

    assert other == REPEATED
    assert hash(other) == hash(REPEATED)
    assert Constraint.from_json(json.loads(json.dumps(REPEATED.to_json()))) == REPEATED


def test_end_tokens_come_where_the_constraint_accepts():
    """Anything may where there is no constraint, or where a token was not allowed."""
    assert request().allowed_after(()) == {4, 6}
    assert request().allowed_after((4, 5, 6)) == {9}
    assert request(ends=()).allowed_after((6,)) == frozenset()
    assert request().allowed_after((5,)) is None
    assert request(constraint=None).allowed_after((5,)) is None


@pytest.mark.parametrize(
    ("transitions", "accepting", "message"),
    [
        ((), (), "has no states"),
        (({4: 1},), (0,), r"leads to state 1 by token 4; there are states 0 to 0"),
        (({-1: 0},), (0,), "has token -1"),
        (({4: 0},), (3,), "accepting has state 3"),
        (({4: 1}, {5: 1}), (0,), "from state 1 no accepting state can be reached"),
        ((((4, 0), (4, 1)), {5: 0}), (0,), "leads to states 0 and 1 by token 4"),
        (((4, 5),), (0,), r"transitions\[0\] is \(4, 5\)"),
        ((({4: "x"}),), (0,), "give a mapping of token id to state"),
    ],
)
def test_what_is_no_automaton_is_refused(transitions, accepting, message):
    """The state, the value, and what is wanted."""
    with pytest.raises(UsageError, match=message):
        Constraint(transitions, frozenset(accepting))


def test_an_end_token_is_no_token_of_the_constraint():
    """It would have two meanings."""
    with pytest.raises(UsageError, match="token 5 is an end token of request '0' and a token of its constraint"):
        request(ends=(5,))


@pytest.mark.parametrize("given", [{}, {"transitions": 3, "accepting": []}, []])
def test_json_that_holds_no_constraint_is_refused(given):
    """With what was wanted."""
    with pytest.raises(UsageError, match=r"list of \[token, state\] pairs"):
        Constraint.from_json(given)
