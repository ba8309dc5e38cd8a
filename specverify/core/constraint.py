"""What an output may look like: a deterministic finite automaton over token ids."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from specverify.core.errors import UsageError

Arrows = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Constraint:
    """An automaton that reads the new tokens of an output, not the prompt; it starts in state 0.

    transitions: of each state, the tokens that may come next and the state that each leads to: a mapping, or pairs.
    accepting: states in which the output may end. An end token (Request.eos_token_ids) is no part of the automaton: it
    may come in accepting states, and only there. An accepting state without transitions means that the output is
    complete: an end token may follow, nothing else may.

    Raises UsageError for states that are not there, for token ids that are none, and where the output cannot be ended.
    """

    transitions: tuple[Arrows, ...]
    accepting: frozenset[int]

    def __post_init__(self) -> None:
        arrows = tuple(_pairs(state, given) for state, given in enumerate(self.transitions))
        object.__setattr__(self, "transitions", arrows)
        object.__setattr__(self, "accepting", frozenset(self.accepting))
        num_states = len(arrows)
        if not num_states:
            raise UsageError("a constraint has no states; give at least transitions[0], of the state it starts in")
        for state, pairs in enumerate(arrows):
            for token, following in pairs:
                if token < 0:
                    raise UsageError(f"transitions[{state}] has token {token}; token ids are 0 and up")
                if not 0 <= following < num_states:
                    raise UsageError(
                        f"transitions[{state}] leads to state {following} by token {token}; there are states 0 to "
                        f"{num_states - 1}"
                    )
        for state in sorted(self.accepting):
            if not 0 <= state < num_states:
                raise UsageError(f"accepting has state {state}; there are states 0 to {num_states - 1}")
        self._refuse_dead_ends()

    def state_after(self, token_ids: Iterable[int]) -> int | None:
        """The state after these new tokens; None once one of them was not allowed."""
        return self.state_from(0, token_ids)

    def state_from(self, state: int, token_ids: Iterable[int]) -> int | None:
        """The same, from another state than the first one on."""
        current: int | None = state
        for token in token_ids:
            if current is None:
                return None
            current = self._next[current].get(token)
        return current

    def allowed(self, state: int) -> frozenset[int]:
        """The token ids that may follow in this state, end tokens not among them."""
        return self._allowed[state]

    def is_complete(self, state: int) -> bool:
        """Whether nothing but an end token may follow."""
        return not self.transitions[state]

    @cached_property
    def token_ids(self) -> frozenset[int]:
        """Every token that is allowed somewhere."""
        return frozenset().union(*self._allowed)

    def to_json(self) -> dict[str, Any]:
        """As JSON types."""
        pairs = [[list(pair) for pair in arrows] for arrows in self.transitions]
        return {"transitions": pairs, "accepting": sorted(self.accepting)}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Constraint:
        """The constraint of to_json. Raises UsageError where it is none."""
        try:
            return cls(tuple(given["transitions"]), frozenset(given["accepting"]))
        except (KeyError, TypeError) as error:
            raise UsageError(
                f"a constraint is {given!r}; give transitions, a list of [token, state] pairs for each state, and "
                "accepting, a list of states"
            ) from error

    @cached_property
    def _next(self) -> tuple[dict[int, int], ...]:
        return tuple(dict(pairs) for pairs in self.transitions)

    @cached_property
    def _allowed(self) -> tuple[frozenset[int], ...]:
        return tuple(frozenset(token for token, _ in pairs) for pairs in self.transitions)

    def _refuse_dead_ends(self) -> None:
        can_end = set(self.accepting)
        while (
            grown := {
                state
                for state, pairs in enumerate(self.transitions)
                if any(following in can_end for _, following in pairs)
            }
            - can_end
        ):
            can_end |= grown
        stuck = sorted(set(range(len(self.transitions))) - can_end)
        if stuck:
            raise UsageError(
                f"from state {stuck[0]} no accepting state can be reached (accepting: {sorted(self.accepting)}); an "
                "output that comes there could never end: add it to accepting, or a transition that leads out"
            )


def _pairs(state: int, given: Mapping[int, int] | Sequence[Sequence[int]]) -> Arrows:
    """The transitions of a state, by token; each token once."""
    listed = given.items() if isinstance(given, Mapping) else given
    try:
        pairs = sorted((_whole(token), _whole(following)) for token, following in listed)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"transitions[{state}] is {given!r}; give a mapping of token id to state, or pairs of the two"
        ) from error
    for (token, one), (other_token, other) in itertools.pairwise(pairs):
        if token == other_token:
            raise UsageError(f"transitions[{state}] leads to states {one} and {other} by token {token}; give one")
    return tuple(pairs)


def _whole(number: Any) -> int:
    if not hasattr(number, "__index__"):
        raise TypeError(f"{number!r} is no whole number")
    return int(number)
