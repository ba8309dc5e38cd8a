"""One run of the program under enumeration: its uniform variables, what is known of them, and its choices."""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from specverify.exact.choices import ChoiceStack
from specverify.exact.errors import NotEnumerable, ReusedRandomness, source_line
from specverify.exact.streams import Stream, Streams
from specverify.exact.variables import CLAMPED, FREE, INSPECTED, RACED, WHOLE, Variables

if TYPE_CHECKING:
    from specverify.exact.symbols import SymbolTable

# Up to this many variables are looked at one by one, which is faster than arrays.
_FEW = 24

READ_TWICE = "the same random numbers are read twice: two generators, or one that was seeded again, share a seed"


class Run(Variables):
    """What symbols, deferred draws and front ends share during one run.

    Every random value is a function of one uniform variable, numbered from 0. A variable starts free, with the
    interval [0, 1); comparisons narrow the interval; a race consumes the variable. poison_seed changes between the
    replays of one path: front ends derive their placeholders from it, so that a placeholder that is read shows.
    halves_are_fine: see enumerate_law.
    """

    def __init__(self, stack: ChoiceStack, *, poison_seed: int = 0, halves_are_fine: bool = False) -> None:
        super().__init__()
        self.stack = stack
        self.poison_seed = poison_seed
        self.halves_are_fine = halves_are_fine
        self.budget = stack.budget
        self.failure: NotEnumerable | None = None
        self.is_finished = False
        self.num_random_calls = 0
        self.clipped_mass = 0.0
        self.has_clamped = False
        self.notes: set[str] = set()
        self.streams = Streams(self.new_variables, self.refuse)
        self._table: SymbolTable | None = None
        # False where a program insists on Python's own ints and bools: then every scalar is decided at once.
        self.defers_items = True
        # Frames that called int() on an open draw; None where nobody wants to know.
        self.int_calls: list[FrameType] | None = None
        self.front_end_state: dict[Any, Any] = {}

    @property
    def table(self) -> SymbolTable:
        """Rows of symbols by number, for front ends that keep row numbers beside their memory."""
        if self._table is None:
            from specverify.exact.symbols import SymbolTable

            self._table = SymbolTable(self)
        return self._table

    def refuse(self, reason: str, operation: str = "", *, reused: bool = False) -> NotEnumerable:
        """The error to raise: `raise run.refuse(...)`. It is remembered, so that a program cannot swallow it."""
        error_type = ReusedRandomness if reused else NotEnumerable
        error = error_type(reason, operation, source_line())
        if self.failure is None:
            self.failure = error
        return error

    def finish(self) -> None:
        """Symbols that outlive the run are refused from now on."""
        self.is_finished = True
        self.is_simple = False

    def require_current(self, operation: str) -> None:
        """Refuses a symbol that outlived its run."""
        if self.is_finished:
            raise self.refuse("a random value of an earlier call is used again: the program keeps state", operation)

    # Variables ------------------------------------------------------------------------------------------------

    def unseeded_variables(self, count: int) -> int:
        """As new_variables, counted as one random call: for draws that need no stream identity."""
        self.num_random_calls += 1
        return self.new_variables(count)

    def read_stream(self, stream: Stream, position: int, count: int, kind: str) -> NDArray[np.int64]:
        """Variables read from a stream, counted as one random call."""
        self.require_current(kind)
        self.num_random_calls += 1
        if position < stream.length:
            self.notes.add(READ_TWICE)
        return stream.read(position, count, kind)

    def read_one(self, stream: Stream, position: int, kind: str) -> int:
        """One variable read from a stream, counted as one random call."""
        if self.is_finished:
            self.require_current(kind)
        self.num_random_calls += 1
        if position < stream.length:
            self.notes.add(READ_TWICE)
        return stream.read_one(position, kind)

    # Choices --------------------------------------------------------------------------------------------------

    def choose(self, weights: Sequence[float] | NDArray[np.float64], operation: str) -> int:
        """Forks on a law that depends on no variable."""
        if self.is_finished:
            self.require_current(operation)
        try:
            return self.stack.choose(weights, operation)
        except NotEnumerable as error:
            if self.failure is None:
                self.failure = error
            raise

    def decide(self, variable: int, threshold: float, operation: str = "comparison") -> bool:
        """Whether the variable lies below the threshold; forks only where its interval leaves that open."""
        # The hot path: the run before made this very comparison here, of a variable that lay in the same interval, so
        # that its weights were the same.
        point, within = self.stack.here.following, self.known.get(variable)
        if (
            point.threshold == threshold
            and point.variable == variable
            and point.within == within
            and point.operation == operation
            and self.is_simple
            and (within is not None or self._state[variable] == FREE)
        ):
            if within is None:
                self._state[variable] = INSPECTED
            self.known[variable] = point.afterwards
            self.stack.here = point
            return not point.index
        if within is not None and self.is_simple:
            # What is known of the variable may settle it.
            if threshold >= within[1]:
                return True
            if threshold <= within[0]:
                return False
        return self._decide(variable, threshold, operation)

    def _decide(self, variable: int, threshold: float, operation: str) -> bool:
        if self._state[variable] == RACED:
            raise self._compared_after_race(operation)
        if self._held:
            self._settle_holder(variable)
        within = self.known.get(variable)
        low, high = within or WHOLE
        if threshold >= high:
            return True
        if not threshold > low:
            return False
        width = high - low
        is_above = self.choose(((threshold - low) / width, (high - threshold) / width), operation)
        intervals = (low, threshold), (threshold, high)
        # A clamp leaves its mark on the variable's state, which the next comparison takes away.
        if self._state[variable] != CLAMPED:
            self.stack.here.compares(variable, threshold, within, intervals)
        self.known[variable] = intervals[is_above]
        self._state[variable] = INSPECTED
        return not is_above

    def require_unraced(self, variable: int, operation: str) -> None:
        """Refuses a variable that a race has used up."""
        if self._state[variable] == RACED:
            raise self._compared_after_race(operation)

    def probability_below(self, variable: int, threshold: float, operation: str = "comparison") -> float:
        """Probability that the variable lies below the threshold, given what is known. Decides nothing."""
        if self._state[variable] == RACED:
            raise self._compared_after_race(operation)
        low, high = self.interval(variable)
        return min(max((threshold - low) / (high - low), 0.0), 1.0)

    def refuse_clamped(self, operation: str) -> NotEnumerable:
        """The error for a race on values that a clamp may have changed."""
        return self.refuse(
            f"a clamp that acts with a probability above {self.budget.clip_mass:g} comes before a race; "
            "give a budget with a larger clip_mass, and the mass is added to the error bound of the law",
            operation,
        )

    def decide_clamp(self, variable: int, threshold: float) -> bool:
        """As decide, for a clamp: no use of the value that could make a later race a reuse."""
        was_free = self._state[variable] in (FREE, CLAMPED)
        self.has_clamped = True
        is_below = self.decide(variable, threshold, "clamp")
        if was_free and self._state[variable] == INSPECTED:
            self._state[variable] = CLAMPED
        return is_below

    def consume(self, variables: NDArray[np.int64], operation: str) -> None:
        """Marks variables as used up by a race, whose weights hold for free variables only."""
        for held in list(self._held):
            if (variables == held).any():
                self._settle_holder(held)
        state = self._state
        if len(variables) <= _FEW:
            listed = variables.tolist()
            if not any(map(state.__getitem__, listed)) and len(set(listed)) == len(listed):
                for variable in listed:
                    state[variable] = RACED
                return
        known = self._states()
        states = known[variables]
        if states.any():
            if bool((states[states > 0] == CLAMPED).all()):
                raise self.refuse_clamped(operation)
            raise self._reused(operation, raced=bool((states == RACED).any()))
        # Writing the same entry twice counts once: fewer newly raced variables than entries means a repetition.
        before = self._state.count(RACED)
        known[variables] = RACED
        if self._state.count(RACED) - before < len(variables):
            raise self._reused(operation)

    def _compared_after_race(self, operation: str) -> NotEnumerable:
        """No proof of reuse: a maximum that runs from block to block looks at the winner of each block again."""
        return self.refuse("a random value that already decided a race is compared with a number", operation)

    def _reused(self, operation: str, *, raced: bool = True) -> NotEnumerable:
        what = "already decided a race" if raced else "was already compared"
        return self.refuse(f"reused randomness: a random value that {what} is used again", operation, reused=True)
