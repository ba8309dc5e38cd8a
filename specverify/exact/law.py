"""The exact output law of a program: every path of its random draws, with exact weights.

Soundness before reach. What cannot be enumerated raises NotEnumerable with the operation and the source line. What
could fool the enumeration is looked for: paths are replayed under other placeholders and other ambient seeds and must
give the same output; replays must meet the same choices and weights; the probabilities must sum to 1; and a few
thousand ordinary calls must agree with the law.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from specverify.exact.choices import ChoiceStack, EnumerationBudget, Progress
from specverify.exact.cross_check import CrossCheck, cross_check, native_outputs
from specverify.exact.errors import NotEnumerable, UnsoundEnumeration, source_line_of
from specverify.exact.hidden import HiddenGenerators
from specverify.exact.int_calls import IntCalls
from specverify.exact.program import FrontEnd, Program, default_front_ends
from specverify.exact.search import ProgramRaised, Search

# Probabilities of all paths sum to 1 to within this, or something was lost.
SUM_TOLERANCE = 1e-9
# Ordinary calls that a program without any random call must repeat identically to be called deterministic.
_DETERMINISM_CALLS = 32
# Ordinary calls that tell a crash of the program from one that only symbols cause, or functions that were replaced.
_CRASH_CALLS = 64


@dataclass(frozen=True)
class ExactLaw:
    """A program's exact output law and what it took.

    probabilities: output (nested tuples of ints) -> probability; zeros are left out. clipped_mass: expected
    probability mass of clamps that were dropped (each below the budget's clip_mass); a bound on the total variation
    by which the law may be off. num_random_calls: most random calls on one path, not counting what the source chose.
    notes: what a reader must know, for instance that the program seeds its own generators.
    """

    probabilities: dict[Any, float]
    num_runs: int
    seconds: float
    clipped_mass: float
    num_random_calls: int
    cross_check: CrossCheck | None
    num_replays: int = 0
    notes: tuple[str, ...] = field(default=())


def enumerate_law(
    program: Program,
    *,
    budget: EnumerationBudget | None = None,
    cross_check_calls: int = 2000,
    cross_check_seconds: float = 5.0,
    seed: int = 0,
    allow_deterministic: bool = False,
    front_ends: Sequence[FrontEnd] | None = None,
    reset: Callable[[], None] | None = None,
    progress: Progress | None = None,
    halves_are_fine: bool = False,
) -> ExactLaw:
    """Enumerates every path of the program and returns its exact output law.

    program: called with a RandomSource, many times; must give the same output for the same draws.
    cross_check_calls, cross_check_seconds: ordinary calls compared with the law, up to that many seconds.
    allow_deterministic: accept a program that makes no random call, if ordinary calls repeat.
    reset: called before every call of the program, to put the subject's state back.
    progress: called now and then with (explored probability, runs so far). halves_are_fine: not the program's law, but
    what it would be if random numbers of half precision were not rounded; no ordinary calls can check that.

    Raises NotEnumerable (ReusedRandomness, UnsoundEnumeration), or what the program itself raises on ordinary calls.
    """
    fronts = list(front_ends) if front_ends is not None else default_front_ends()

    def attempt() -> ExactLaw:
        try:
            return _enumerate_once(
                program, fronts, budget, 0 if halves_are_fine else cross_check_calls, cross_check_seconds, seed,
                allow_deterministic, reset, progress, halves_are_fine,
            )  # fmt: skip
        except ProgramRaised as raised:
            error = raised.__cause__
            assert isinstance(error, Exception)
            if _raises_by_itself(program, fronts, type(error), reset):
                raise error from None
            raise NotEnumerable(
                f"the program raised {type(error).__name__} on a path of probability {raised.probability:.3g}, and not "
                f"in {_CRASH_CALLS} ordinary calls: {error}",
                source_line=source_line_of(error),
            ) from error

    try:
        return attempt()
    except NotEnumerable as error:
        if not _take_plain_ints(fronts, error):
            raise
        return attempt()


def _raises_by_itself(
    program: Program, fronts: Sequence[FrontEnd], error_type: type[Exception], reset: Callable[[], None] | None
) -> bool:
    """Whether the program raises such an error in ordinary calls, nothing replaced."""
    for seed in range(_CRASH_CALLS):
        try:
            native_outputs(program, fronts, num_calls=1, max_seconds=1.0, seed=seed, reset=reset)
        except error_type:
            return True
        except Exception:
            return False
    return False


def _take_plain_ints(front_ends: Sequence[FrontEnd], error: NotEnumerable) -> bool:
    """Whether the failure may come from undecided numbers that are no ints, and front ends can give real ones."""
    may_be_types = isinstance(error, UnsoundEnumeration) or isinstance(error.__cause__, Exception)
    deferring = [front_end for front_end in front_ends if may_be_types and getattr(front_end, "defers_items", False)]
    for front_end in deferring:
        front_end.defers_items = False  # type: ignore[attr-defined]
    return bool(deferring)


def _enumerate_once(
    program: Program,
    fronts: list[FrontEnd],
    budget: EnumerationBudget | None,
    cross_check_calls: int,
    cross_check_seconds: float,
    seed: int,
    allow_deterministic: bool,
    reset: Callable[[], None] | None,
    progress: Progress | None,
    halves_are_fine: bool,
) -> ExactLaw:
    started = time.monotonic()
    int_calls = IntCalls(is_enabled=all(getattr(front_end, "defers_items", True) for front_end in fronts))
    hidden = HiddenGenerators(fronts)
    with ExitStack() as stack:
        stack.callback(int_calls.undo)
        for front_end in fronts:
            stack.enter_context(front_end.installed())
        while True:
            search = Search(program, fronts, ChoiceStack(budget), reset, seed, int_calls, halves_are_fine)
            if search.explore(hidden, progress):
                break
    probabilities = search.probabilities()
    total = math.fsum(probabilities.values())
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise NotEnumerable(f"the probabilities of all paths sum to {total!r}; they must sum to 1")
    if search.num_random_calls == 0:  # of the program's own: what the source chose for it is none
        _require_deterministic(program, fronts, seed, reset, allow_deterministic)
    checked = None
    if cross_check_calls:
        clock = time.monotonic()
        outputs = native_outputs(
            program, fronts, num_calls=cross_check_calls, max_seconds=cross_check_seconds, seed=seed + 1, reset=reset
        )
        checked = cross_check(probabilities, outputs, seconds=time.monotonic() - clock)
    return ExactLaw(
        probabilities=probabilities,
        num_runs=search.stack.num_runs,
        seconds=time.monotonic() - started,
        clipped_mass=search.clipped_mass,
        num_random_calls=search.num_random_calls,
        cross_check=checked,
        num_replays=search.num_replays,
        notes=tuple(sorted(search.notes)),
    )


def _require_deterministic(
    program: Program,
    front_ends: list[FrontEnd],
    seed: int,
    reset: Callable[[], None] | None,
    allow: bool,
) -> None:
    if not allow:
        raise NotEnumerable(
            "no random call was seen: the program draws no randomness, or draws it where it cannot be seen"
        )
    outputs = native_outputs(
        program, front_ends, num_calls=_DETERMINISM_CALLS, max_seconds=60.0, seed=seed + 1, reset=reset,
        choice_seed=seed + 1,
    )  # fmt: skip
    if len(set(outputs)) > 1:
        raise NotEnumerable("no random call was seen, but ordinary calls give different outputs: randomness is hidden")
