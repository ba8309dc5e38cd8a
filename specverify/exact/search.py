"""Runs a program along every path of its random draws, and replays some paths to see whether they repeat."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from specverify.exact.choices import ChoiceStack, Progress
from specverify.exact.errors import NotEnumerable
from specverify.exact.hidden import HiddenGenerators
from specverify.exact.int_calls import IntCalls
from specverify.exact.output import Cells, UnreadableOutput, expanded, normalised
from specverify.exact.program import FrontEnd, Program, SymbolicSource
from specverify.exact.run import Run

_PROGRESS_SECONDS = 0.2


class ProgramRaised(Exception):
    """The program raised the error that is the cause of this one, on a path that was so likely."""

    def __init__(self, probability: float) -> None:
        super().__init__(probability)
        self.probability = probability


class Search:
    """The state of one enumeration: the choice stack, and the law gathered so far."""

    def __init__(
        self,
        program: Program,
        front_ends: list[FrontEnd],
        stack: ChoiceStack,
        reset: Callable[[], None] | None,
        seed: int,
        int_calls: IntCalls,
        halves_are_fine: bool = False,
    ) -> None:
        self.int_calls = int_calls
        self.halves_are_fine = halves_are_fine
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
        run = Run(self.stack, poison_seed=poison_seed, halves_are_fine=self.halves_are_fine)
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
            run.finish()
        if run.failure is not None:
            raise run.failure from raised
        if isinstance(raised, NotEnumerable | UnreadableOutput):
            raise raised
        if raised is not None:
            raise ProgramRaised(self.stack.probability) from raised
        return run, cells


def _alike(first: Cells, second: Cells, tolerance: float) -> bool:
    if len(first) != len(second):
        return False
    return all(a == b and abs(p - q) <= tolerance for (a, p), (b, q) in zip(first, second, strict=True))
