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
from specverify.exact.output import Cells, UnreadableOutput, expanded, normalised
from specverify.exact.program import FrontEnd, Program, SymbolicSource, default_front_ends
from specverify.exact.run import Run

# Probabilities of all paths sum to 1 to within this, or something was lost.
SUM_TOLERANCE = 1e-9
# Ordinary calls that a program without any random call must repeat identically to be called deterministic.
_DETERMINISM_CALLS = 32
# Ordinary calls that tell a crash of the program from one that only symbols cause.
_CRASH_CALLS = 64
_PROGRESS_SECONDS = 0.2


@dataclass(frozen=True)
class ExactLaw:
    """A program's exact output law and what it took.

    probabilities: output (nested tuples of ints) -> probability; zeros are left out. clipped_mass: expected
    probability mass of clamps that were dropped (each below the budget's clip_mass); a bound on the total variation
    by which the law may be off. num_random_calls: most random calls on one path. notes: what a reader must know, for
    instance that the program seeds its own generators.
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
) -> ExactLaw:
    """Enumerates every path of the program and returns its exact output law.

    program: called with a RandomSource, many times; must give the same output for the same draws.
    cross_check_calls, cross_check_seconds: ordinary calls compared with the law, up to that many seconds.
    allow_deterministic: accept a program that makes no random call, if ordinary calls repeat.
    reset: called before every call of the program, to put the subject's state back.
    progress: called now and then with (explored probability, runs so far).

    Raises NotEnumerable (ReusedRandomness, UnsoundEnumeration), or what the program itself raises on ordinary calls.
    """
    fronts = list(front_ends) if front_ends is not None else default_front_ends()

    def attempt() -> ExactLaw:
        return _enumerate_once(
            program, fronts, budget, cross_check_calls, cross_check_seconds, seed, allow_deterministic, reset, progress
        )

    try:
        return attempt()
    except NotEnumerable as error:
        if not _take_plain_ints(fronts, error):
            raise
        return attempt()


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
) -> ExactLaw:
    started = time.monotonic()
    int_calls = IntCalls(is_enabled=all(getattr(front_end, "defers_items", True) for front_end in fronts))
    hidden = HiddenGenerators(fronts)
    with ExitStack() as stack:
        stack.callback(int_calls.undo)
        for front_end in fronts:
            stack.enter_context(front_end.installed())
        while True:
            search = _Search(program, fronts, ChoiceStack(budget), reset, seed, int_calls)
            if search.explore(hidden, progress):
                break
    probabilities = search.probabilities()
    total = math.fsum(probabilities.values())
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise NotEnumerable(f"the probabilities of all paths sum to {total!r}; they must sum to 1")
    if search.num_random_calls == 0:
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


class _Search:
    """The state of one enumeration: the choice stack, and the law gathered so far."""

    def __init__(
        self,
        program: Program,
        front_ends: list[FrontEnd],
        stack: ChoiceStack,
        reset: Callable[[], None] | None,
        seed: int,
        int_calls: IntCalls,
    ) -> None:
        self.int_calls = int_calls
        self.program = program
        self.front_ends = front_ends
        self.stack = stack
        self.reset = reset
        self.seed = seed
        self.clipped_mass = 0.0
        self.num_random_calls = 0
        self.num_replays = 0
        self.notes: set[str] = set()
        self._law: dict[Any, float] = {}
        self._repeated: dict[Any, list[float]] = {}

    def explore(self, hidden: HiddenGenerators, progress: Progress | None) -> bool:
        """Runs every path. Paths 1, 2, 4, 8, ... and the last are replayed under other placeholders and seeds.

        False where the program's int() calls were redirected on the way, so that it must begin again.
        """
        reported = time.monotonic()
        more = True
        while more:
            self.stack.begin_run()
            run, cells = self._execute(poison_seed=0)
            number = self.stack.num_runs
            if run.int_calls and sum(self.int_calls.redirect(frame) for frame in run.int_calls):
                hidden.remember()
                return False
            if number & (number - 1) == 0 or self.stack.is_last_path:
                hidden.require_untouched()
                self._require_same_again(cells)
                hidden.remember()
            self._gather(run, cells)
            more = self.stack.end_run()
            if progress is not None and time.monotonic() - reported > _PROGRESS_SECONDS:
                progress(self.stack.explored, number)
                reported = time.monotonic()
        return True

    def probabilities(self) -> dict[Any, float]:
        """The law gathered, each probability summed exactly."""
        law = dict(self._law)
        for output, parts in self._repeated.items():
            law[output] = math.fsum(parts)
        return law

    def _gather(self, run: Run, cells: Cells) -> None:
        law, repeated, path = self._law, self._repeated, self.stack.probability
        for output, weight in cells:
            probability = path * weight
            if probability == 0.0:
                continue
            if output not in law:
                law[output] = probability
            elif output in repeated:
                repeated[output].append(probability)
            else:
                repeated[output] = [law[output], probability]
        self.clipped_mass += path * run.clipped_mass
        self.num_random_calls = max(self.num_random_calls, run.num_random_calls)
        self.notes |= run.notes

    def _require_same_again(self, cells: Cells) -> None:
        self.num_replays += 1
        for front_end in self.front_ends:
            front_end.reseed(self.seed + 7919 * self.num_replays)
        self.stack.replay()
        _, again = self._execute(poison_seed=self.num_replays)
        if not _alike(cells, again, self.stack.budget.replay_tolerance):
            raise NotEnumerable(
                "not repeatable: one path gave two different outputs when it was replayed under other ambient seeds; "
                "the program draws randomness that is not seen, reads the clock, or keeps state between calls"
            )

    def _execute(self, *, poison_seed: int) -> tuple[Run, Cells]:
        run = Run(self.stack, poison_seed=poison_seed)
        run.int_calls = []
        raised: Exception | None = None
        cells: Cells = []
        try:
            for front_end in self.front_ends:
                front_end.begin_run(run)
            if self.reset is not None:
                self.reset()
            output = normalised(self.program(SymbolicSource(run, self.front_ends)), self.front_ends)
            cells = expanded(run, output)
        except Exception as error:
            raised = error
        finally:
            for front_end in reversed(self.front_ends):
                front_end.end_run()
            run.is_finished = True
        if run.failure is not None:
            raise run.failure from raised
        if raised is not None:
            self._explain(run, raised)
            raise raised
        return run, cells

    def _explain(self, run: Run, error: Exception) -> None:
        """Raises NotEnumerable where the error is about symbols; returns where it is the program's own."""
        if isinstance(error, NotEnumerable | UnreadableOutput) or run.num_random_calls == 0:
            return
        if _raises_natively(self.program, self.front_ends, type(error), self.reset):
            return
        raise NotEnumerable(
            f"the program raised {type(error).__name__} on a path of probability {self.stack.probability:.3g}, and not "
            f"in {_CRASH_CALLS} ordinary calls: {error}",
            source_line=source_line_of(error),
        ) from error


def _raises_natively(
    program: Program, front_ends: list[FrontEnd], error_type: type[Exception], reset: Callable[[], None] | None
) -> bool:
    for seed in range(_CRASH_CALLS):
        try:
            native_outputs(program, front_ends, num_calls=1, max_seconds=1.0, seed=seed, reset=reset)
        except error_type:
            return True
        except Exception:
            return False
    return False


def _alike(first: Cells, second: Cells, tolerance: float) -> bool:
    if len(first) != len(second):
        return False
    return all(a == b and abs(p - q) <= tolerance for (a, p), (b, q) in zip(first, second, strict=True))


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
        program, front_ends, num_calls=_DETERMINISM_CALLS, max_seconds=60.0, seed=seed + 1, reset=reset
    )
    if len(set(outputs)) > 1:
        raise NotEnumerable("no random call was seen, but ordinary calls give different outputs: randomness is hidden")
