"""What the plugin parametrises with: checks bound to a run's settings, and subjects that are built when needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from specverify.adapters.resolve import as_subject, parse_options, require_named, resolve_subjects
from specverify.catalogue import select as select_checks
from specverify.checks.registry import Check
from specverify.core.errors import SpecverifyError, SubjectCrashed, UsageError
from specverify.core.outcomes import CheckResult, Kind, Outcome
from specverify.known_failures import read_known_failures
from specverify.profiles import profile as profile_ids
from specverify.pytest_state import current_item
from specverify.report.commands import check_command
from specverify.report.summary import summary_of
from specverify.report.text import render_result
from specverify.runner import run_checks

# Evidence that several checks share, by subject name; one process runs many tests.
_shared: dict[str, dict[str, Any]] = {}


class LazySubject:
    """A subject by name; built when its first check runs, once in each process."""

    def __init__(self, name: str, source: Any) -> None:
        self.name = name
        self._source = source
        self._made: Any = None

    @property
    def subject(self) -> Any:
        if self._made is None:
            self._made = as_subject(self._source, self.name)
        return self._made

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class BoundCheck:
    """One check with the settings of the run. Call it with a subject inside a pytest test."""

    check: Check
    shares: int
    alpha: float
    seed: int
    effort: float
    known_failure: str
    is_required: bool
    rerun: str = ""

    @property
    def id(self) -> str:
        return self.check.id

    def __call__(self, subject: Any) -> CheckResult:
        """Judges the subject: returns if it passes, skips with the reason if it cannot be decided, fails otherwise."""
        __tracebackhide__ = True
        try:
            target = subject.subject if isinstance(subject, LazySubject) else as_subject(subject, "subject")
        except SubjectCrashed as crash:
            pytest.fail(f"crashed  {crash}", pytrace=False)
        name = subject.name if isinstance(subject, LazySubject) else target.name
        report = run_checks(
            target, checks=[self.check], seed=self.seed, alpha=self.alpha, effort=self.effort,
            known_failures={self.id: self.known_failure} if self.known_failure else None,
            alpha_shares=self.shares, rerun=self.rerun, shared=_shared.setdefault(name, {}),
        )  # fmt: skip
        # The user's own name for the subject, which is what the test id says too.
        result = replace(report.results[0], subject=name)
        _remember(result)
        if result.outcome is Outcome.FAILED and result.known_failure:
            pytest.xfail(result.known_failure)
        if result.outcome is Outcome.FAILED:
            pytest.fail(render_result(result), pytrace=False)
        if result.outcome is Outcome.CRASHED:
            pytest.fail(f"{render_result(result)}\n{result.figures.get('traceback', '')}", pytrace=False)
        if result.outcome is not Outcome.PASSED:
            if self.is_required:
                pytest.fail(f"required by the profile, but {render_result(result)}", pytrace=False)
            pytest.skip(f"{result.outcome.value}: {result.reason}")
        return result

    def __repr__(self) -> str:
        return self.id


def bound_checks(
    *, num_subjects: int, known_failures: Mapping[str, str] | None, select: Sequence[str] | None, profile: str | None,
    alpha: float, seed: int, effort: float, rerun: str = "",
) -> Sequence[BoundCheck]:  # fmt: skip
    """All selected checks with their share of the alarm budget. Raises UsageError for unknown ids."""
    chosen = select_checks(select)
    known = dict(known_failures or {})
    if known:
        # Strict over the whole catalogue, and over this selection: an id that is not run excuses nothing.
        select_checks(list(known), chosen)
    required = set(profile_ids(profile)) if profile else set()
    # Capabilities are not known yet, so every statistical check of every subject gets a share.
    shares = max(1, num_subjects * sum(one.kind is Kind.STATISTICAL for one in chosen))
    return [
        BoundCheck(one, shares, alpha, seed, effort, known.get(one.id, ""), one.id in required, rerun) for one in chosen
    ]


_ENGINE_CHECKS = pytest.StashKey[Sequence[Any]]()
_ENGINE_PROBLEM = pytest.StashKey[str]()


def prepare_engine(config: pytest.Config) -> None:
    """Builds the engine given on the command line, before anything is collected.

    Raises pytest.UsageError. A worker of xdist cannot end the session with a sentence: there it is kept for
    checks_of_engine, which makes it an error of the collection.
    """
    try:
        subjects = resolve_subjects(config.getoption("--engine"), options=_engine_options(config))
        checks = _checks_on_command_line(config, len(subjects))
    except SpecverifyError as error:
        if not hasattr(config, "workerinput"):
            raise pytest.UsageError(str(error)) from error
        config.stash[_ENGINE_PROBLEM] = str(error)
        return
    lazy = [LazySubject(subject.name, subject) for subject in subjects]
    prefix = "" if len(lazy) == 1 else "{}-"
    config.stash[_ENGINE_CHECKS] = [
        pytest.param((subject, check), id=prefix.format(subject.name.replace(" ", "-")) + check.id)
        for subject in lazy
        for check in checks
    ]


def require_options(config: pytest.Config) -> None:
    """Raises pytest.UsageError for what can be seen to be wrong without building the engine.

    For the controller of xdist: its workers build the engine, and it should not hold one more.
    """
    try:
        require_named(config.getoption("--engine"))
        _engine_options(config)
        _checks_on_command_line(config, 1)
    except SpecverifyError as error:
        raise pytest.UsageError(str(error)) from error


def _engine_options(config: pytest.Config) -> dict[str, Any]:
    return parse_options(config.getoption("--engine-option"))


def _checks_on_command_line(config: pytest.Config, num_subjects: int) -> Sequence[BoundCheck]:
    known_file = config.getoption("--specverify-known-failures")
    alpha, effort = config.getoption("--specverify-alpha"), config.getoption("--specverify-effort")
    known_path = Path(known_file) if known_file else None
    return bound_checks(
        num_subjects=num_subjects,
        known_failures=read_known_failures(known_path) if known_path else None,
        select=config.getoption("--specverify-select"),
        profile=config.getoption("--specverify-profile"),
        alpha=alpha,
        seed=config.getoption("--specverify-seed"),
        effort=effort,
        rerun=check_command(
            config.getoption("--engine"), _engine_options(config), alpha=alpha, effort=effort, known_failures=known_path
        ),
    )


def is_selected(item: pytest.Item, config: pytest.Config) -> bool:
    """Whether --specverify-select leaves this test in: a test of parametrize_with_checks by its check, others always.

    Raises pytest.UsageError for a pattern that matches no check.
    """
    bound = getattr(item, "callspec", None) and item.callspec.params.get("check")  # type: ignore[attr-defined]
    if not isinstance(bound, BoundCheck):
        return True
    try:
        return bound.check in select_checks(config.getoption("--specverify-select"))
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error


def checks_of_engine(config: pytest.Config) -> Sequence[Any]:
    """(subject, check) pairs for the engine given on the command line, or one skipped placeholder."""
    if _ENGINE_PROBLEM in config.stash:
        raise pytest.Collector.CollectError(config.stash[_ENGINE_PROBLEM])
    nothing = [_nothing("give --engine MODULE:FACTORY to judge an engine")]
    return config.stash.get(_ENGINE_CHECKS, nothing)


def golden_of_engine(config: pytest.Config) -> Sequence[Any]:
    """(engine spec, trace file) pairs of the folder given on the command line, or one skipped placeholder."""
    folder = config.getoption("--golden")
    if folder is None:
        return [_nothing("give --golden FOLDER to hold the engine to its golden traces")]
    from specverify.golden import trace_files

    try:
        files = trace_files(Path(folder))
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error
    return [pytest.param((config.getoption("--engine") or "", file), id=file.name) for file in files]


def _nothing(reason: str) -> Any:
    """The one row of a test that has nothing to run on: skipped with the reason, where no row at all would say none."""
    return pytest.param(None, marks=pytest.mark.skip(reason=reason), id="none")


def _remember(result: CheckResult) -> None:
    """Hands the result to the terminal summary, through the report, so that it survives xdist."""
    item = current_item()
    if item is not None:
        # JSON types only: xdist sends no others.
        item.user_properties.append(("specverify", summary_of(result)))
