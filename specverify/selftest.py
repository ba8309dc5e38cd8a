"""Proves the checks: every planted fault is caught by every check that names it, every correct subject left alone."""

from __future__ import annotations

import fnmatch
import importlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any

from specverify.adapters.resolve import as_subject
from specverify.catalogue import all_checks
from specverify.core.capabilities import Capability
from specverify.core.errors import UsageError
from specverify.core.outcomes import CheckResult, Outcome
from specverify.core.threads import share_cores
from specverify.faults.fault import CorrectSubject, Fault
from specverify.runner import run_checks

_FAULT_MODULES = (
    "specverify.faults.verify",
    "specverify.faults.verify_trees",
    "specverify.faults.verify_unusual",
    "specverify.faults.engine",
    "specverify.faults.tokenizer",
)
# Statistical checks of all subjects together; fixed, so that a selected part is judged like the whole.
_ALPHA = 1e-9
# Correct subjects are sampled less, because a user waits for all of them: their checks at effort 1, and at a quarter
# over hundreds of seeds, are in benchmarks/false_alarms.md.
_ENGINE_EFFORT, _FUNCTION_EFFORT = 0.06, 0.25


@dataclass(frozen=True)
class Trial:
    """One fault or correct subject and what the checks said of it: check id to outcome."""

    name: str
    sentence: str
    report: str
    is_fault: bool
    outcomes: dict[str, Outcome]
    reasons: dict[str, str]
    seconds: float

    @property
    def missed_by(self) -> Sequence[str]:
        """Checks that name this fault and did not fail on it."""
        return [check for check, outcome in self.outcomes.items() if self.is_fault and outcome is not Outcome.FAILED]

    @property
    def false_alarms(self) -> Sequence[str]:
        """Checks that failed on, or could not even be run on, a correct subject."""
        wrong = (Outcome.FAILED, Outcome.CRASHED)
        return [check for check, outcome in self.outcomes.items() if not self.is_fault and outcome in wrong]


@dataclass(frozen=True)
class SelfTest:
    """The kill matrix."""

    trials: Sequence[Trial] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def faults(self) -> Sequence[Trial]:
        return [trial for trial in self.trials if trial.is_fault]

    @property
    def correct_subjects(self) -> Sequence[Trial]:
        return [trial for trial in self.trials if not trial.is_fault]

    @property
    def survivors(self) -> Sequence[Trial]:
        return [trial for trial in self.faults if trial.missed_by or not trial.outcomes]

    @property
    def false_alarms(self) -> Sequence[Trial]:
        return [trial for trial in self.correct_subjects if trial.false_alarms]

    @property
    def idle_subjects(self) -> Sequence[Trial]:
        """Correct subjects on which no check passed: they prove nothing."""
        return [trial for trial in self.correct_subjects if Outcome.PASSED not in trial.outcomes.values()]

    @property
    def exit_status(self) -> int:
        return 1 if self.survivors or self.false_alarms or self.idle_subjects or not self.trials else 0


def specimens() -> Sequence[Fault | CorrectSubject]:
    """Every planted fault and every correct subject. Raises UsageError where two share a name."""
    found: list[Fault | CorrectSubject] = []
    for module in _FAULT_MODULES:
        loaded = importlib.import_module(module)
        found += [*loaded.FAULTS, *loaded.CORRECT]
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two specimens are called {name!r}; rename one")
    return found


def subject_of(one: Fault | CorrectSubject) -> Any:
    """The engine or verify function, as checks take it."""
    if not one.options:
        return as_subject(one.make(), one.name)
    from specverify.adapters.function import FunctionSubject

    return FunctionSubject(one.make(), name=one.name, **one.options)


def checks_naming(fault: str) -> Sequence[str]:
    """Ids of the checks that say they catch this fault."""
    return [one.id for one in all_checks() if fault in one.catches]


def run_selftest(
    *,
    select: Sequence[str] | None = None,
    seed: int = 0,
    jobs: int = 0,
    on_trial: Callable[[Trial, int, int], None] = lambda trial, done, total: None,
) -> SelfTest:
    """Runs the matrix. select: names or wildcards of faults and correct subjects; None is all.

    Raises UsageError where a pattern matches nothing.
    """
    started = time.perf_counter()
    chosen = _selected(specimens(), select)
    trials: dict[str, Trial] = {}
    for trial in _trials(chosen, seed, jobs or os.cpu_count() or 1):
        trials[trial.name] = trial
        on_trial(trial, len(trials), len(chosen))
    return SelfTest([trials[one.name] for one in chosen], time.perf_counter() - started)


def _selected(
    found: Sequence[Fault | CorrectSubject], patterns: Sequence[str] | None
) -> Sequence[Fault | CorrectSubject]:
    if patterns is None:
        return found
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(one.name, pattern) for one in found):
            raise UsageError(f"no fault or correct subject is called {pattern!r}; `specverify selftest` runs all")
    return [one for one in found if any(fnmatch.fnmatchcase(one.name, pattern) for pattern in patterns)]


def _trials(chosen: Sequence[Fault | CorrectSubject], seed: int, jobs: int) -> Iterator[Trial]:
    if jobs == 1 or "fork" not in multiprocessing.get_all_start_methods():
        yield from (run_trial(one, seed) for one in chosen)
        return
    all_checks()  # Loaded before the fork, so that no worker loads them again.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=share_cores, initargs=(jobs,)) as pool:
        # Correct subjects meet every check and take longest, so they start first.
        order = sorted(chosen, key=lambda one: isinstance(one, Fault))
        futures: dict[Future[Trial], Any] = {pool.submit(_run_named, one.name, seed): one for one in order}
        for future in as_completed(futures):
            try:
                yield future.result()
            except BrokenProcessPool:
                one = futures[future]
                yield _trial(one, {"process": Outcome.CRASHED}, {"process": "a worker process died"}, 0.0)


def _run_named(name: str, seed: int) -> Trial:
    return run_trial(next(one for one in specimens() if one.name == name), seed)


def run_trial(one: Fault | CorrectSubject, seed: int = 0) -> Trial:
    """One fault under the checks that name it, or one correct subject under all of them."""
    started = time.perf_counter()
    is_fault = isinstance(one, Fault)
    ids = checks_naming(one.name) if is_fault else [check.id for check in all_checks()]
    if not ids:
        return _trial(one, {}, {}, 0.0)
    subject = subject_of(one)
    effort = 1.0
    if not is_fault:
        effort = _ENGINE_EFFORT if Capability.GENERATE in subject.capabilities else _FUNCTION_EFFORT
    report = run_checks(subject, ids=ids, seed=seed, alpha=_ALPHA, effort=effort)
    outcomes = {result.check_id: result.outcome for result in report.results}
    reasons = {result.check_id: _reason(result) for result in report.results}
    return _trial(one, outcomes, reasons, time.perf_counter() - started)


def _reason(result: CheckResult) -> str:
    return result.findings[0].headline if result.findings else result.reason or result.worth


def _trial(one: Fault | CorrectSubject, outcomes: dict[str, Outcome], reasons: dict[str, str], seconds: float) -> Trial:
    report = one.report if isinstance(one, Fault) else ""
    return Trial(one.name, one.sentence, report, isinstance(one, Fault), outcomes, reasons, seconds)
