"""The strongest mode: the exact law of a step, all drafts and all randomness enumerated."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specverify.checks.step_subject import (
    Joint,
    Scenario,
    VerifySubject,
    completions,
    crash,
    emitted_law,
    split_by_draft,
)
from specverify.core.errors import SubjectCrashed
from specverify.exact.choices import EnumerationBudget
from specverify.exact.coarse import halves_in
from specverify.exact.errors import NotEnumerable
from specverify.exact.law import ExactLaw, enumerate_law
from specverify.exact.program import NativeSource, RandomSource, SymbolicSource
from specverify.exact.run import READ_TWICE
from specverify.laws.sequence import Distance, completed_distance
from specverify.laws.steps import draft_paths

# Ordinary calls against which each enumerated law is held. They check the enumerator, not the subject; the statistics
# of the chi-square check come on top.
CROSS_CHECK_CALLS = 1000
# What takes longer is sampled: most functions take a second, and somebody waits.
MAX_SECONDS = 45.0
# Ordinary calls that a function without a random call must repeat.
_REPEATS = 16


@dataclass(frozen=True)
class StepResult:
    """The law of one scenario. distance: of the worst draft where the function is not told the draft law.

    reads_twice: whether one random number was read by two draws, as with two generators of one seed. halves: names of
    the half-precision types that random numbers came in; halves_at: the user's line where they did.
    """

    scenario: Scenario
    joint: Joint
    distance: Distance
    draft_token_ids: tuple[int, ...] | None
    num_runs: int = 0
    num_samples: int = 0
    reads_twice: bool = False
    halves: tuple[str, ...] = ()
    halves_at: str = ""


def enumerate_step(
    subject: VerifySubject, scenario: Scenario, *, cross_check_calls: int = CROSS_CHECK_CALLS,
    max_seconds: float = MAX_SECONDS,
) -> StepResult:  # fmt: skip
    """The exact law of what a step emits in this scenario; see enumerate_steps."""
    return enumerate_steps(subject, [scenario], cross_check_calls=cross_check_calls, max_seconds=max_seconds)[0]


def enumerate_steps(
    subject: VerifySubject, scenarios: Sequence[Scenario], *, cross_check_calls: int = CROSS_CHECK_CALLS,
    halves_are_fine: bool = False, max_seconds: float = MAX_SECONDS,
) -> list[StepResult]:  # fmt: skip
    """The exact law of what a step emits in each scenario, and its distance from the target.

    All scenarios are enumerated as one program that begins by choosing one: setting up costs more than most of them.
    halves_are_fine: what the law would be if random numbers were not rounded to half precision.
    Raises NotEnumerable where the randomness is out of reach, SubjectCrashed where the function itself raises.
    """
    # Random trees make their rows on demand, by generators of their own: not while randomness is being enumerated.
    for scenario in scenarios:
        for tokens, _ in draft_paths(scenario.draft, scenario.num_drawn):
            scenario.batch(tokens)
    program = StepProgram(subject, scenarios)
    try:
        law: ExactLaw = enumerate_law(
            program, budget=EnumerationBudget(max_seconds=max_seconds), cross_check_calls=cross_check_calls,
            halves_are_fine=halves_are_fine, allow_deterministic=program.chooses,
        )  # fmt: skip
    except NotEnumerable:
        raise
    except Exception as error:
        raise crash_or_refusal(subject, scenarios, error) from error
    _require_seen_randomness(subject, program, law)
    joints: list[Joint] = [{} for _ in scenarios]
    for (number, tokens, parts), probability in law.probabilities.items():
        cases = scenarios[number].batch(tokens)
        row = scenarios[number].row if len(cases) > 1 else 0
        output = subject.read(parts, cases)[row]
        for emitted, weight in completions(subject, cases[row], output):
            key = (tokens, emitted, output.num_accepted)
            joints[number][key] = joints[number].get(key, 0.0) + probability * len(scenarios) * weight
    halves, halves_at = halves_in(law.notes)
    notes: dict[str, Any] = {"reads_twice": READ_TWICE in law.notes, "halves": halves, "halves_at": halves_at}
    return [
        replace(judged(scenario, joint, num_runs=runs), **notes)
        for scenario, joint, runs in zip(scenarios, joints, program.num_paths, strict=True)
    ]  # fmt: skip


class StepProgram:
    """Chooses a scenario, draws the draft tokens from its draft law, calls the function, returns all three."""

    def __init__(self, subject: VerifySubject, scenarios: Sequence[Scenario]) -> None:
        self.subject = subject
        self.scenarios = scenarios
        self.num_paths = [0] * len(scenarios)

    def __call__(self, source: RandomSource) -> Any:
        number = 0
        if len(self.scenarios) > 1:
            number = source.choose(np.full(len(self.scenarios), 1 / len(self.scenarios)))
        if isinstance(source, SymbolicSource) and source.path_number:
            if source.path_number == 1:  # an enumeration may begin anew
                self.num_paths = [0] * len(self.scenarios)
            self.num_paths[number] += 1
        scenario = self.scenarios[number]
        tokens = scenario.drawn(source.choose)
        return number, tokens, self.subject.parts(scenario.batch(tokens), source)

    @property
    def chooses(self) -> bool:
        """Whether it draws anything before it calls the function."""
        return len(self.scenarios) > 1 or any(scenario.num_drawn for scenario in self.scenarios)


def _require_seen_randomness(subject: VerifySubject, program: StepProgram, law: ExactLaw) -> None:
    """A function that draws nothing is exact only if it is deterministic: ordinary calls must repeat.

    Raises NotEnumerable where they differ, for then its randomness is hidden from the enumeration.
    """
    if law.num_random_calls > 0 or not subject.draws_inside:
        return
    scenario = program.scenarios[-1]
    tokens = next(iter(draft_paths(scenario.draft, scenario.num_drawn)))[0]
    cases = scenario.batch(tokens)
    outputs = {repr(subject.read(subject.parts(cases, NativeSource(seed)), cases)) for seed in range(_REPEATS)}
    if len(outputs) > 1:
        raise NotEnumerable("no random call was seen, but ordinary calls differ: its randomness is hidden")


def judged(scenario: Scenario, joint: Joint, *, num_runs: int = 0, num_samples: int = 0) -> StepResult:
    """The joint law with its distance from the target; that of the worst draft where no draft law is told."""
    if scenario.is_told:
        distance = completed_distance(emitted_law(joint), scenario.target)
        return StepResult(scenario, joint, distance, None, num_runs, num_samples)
    worst: tuple[Distance, tuple[int, ...]] | None = None
    for tokens, (_, law) in sorted(split_by_draft(joint).items()):
        distance = completed_distance(law, scenario.target)
        if worst is None or distance.tv > worst[0].tv:
            worst = (distance, tokens)
    assert worst is not None
    return StepResult(scenario, joint, worst[0], worst[1], num_runs, num_samples)


def crash_or_refusal(subject: VerifySubject, scenarios: Sequence[Scenario], error: Exception) -> Exception:
    """What an exception under enumeration means: the function raises in ordinary calls too, or only on symbols."""
    if isinstance(error, SubjectCrashed):
        return error
    for seed, scenario in itertools.product(range(16), scenarios):
        try:
            StepProgram(subject, [scenario])(NativeSource(seed))
        except Exception as native:
            return crash(subject, scenario, native)
    return NotEnumerable(f"it raises {type(error).__name__} when its random values are symbols: {error}")
