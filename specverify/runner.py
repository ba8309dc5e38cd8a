"""Runs checks on subjects and turns whatever happens into results. Nothing a subject does ends a run."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from specverify import catalogue
from specverify.checks.registry import Check, CheckContext, Inconclusive
from specverify.core.capabilities import Capability, checked_capabilities, for_others
from specverify.core.crashes import crash_sentence
from specverify.core.errors import UsageError
from specverify.core.outcomes import CheckResult, Finding, Kind, Outcome, Report
from specverify.core.randomness import Streams
from specverify.exact import heap
from specverify.report.commands import rerun_command
from specverify.stats.budget import DEFAULT_ALPHA


@dataclass(frozen=True)
class Monitor:
    """What a run reports while it runs: a check begins, gets on, and ends. Any part may be left out."""

    on_start: Callable[[str, str], None] = lambda subject, check_id: None
    on_progress: Callable[[str, str, int, int], None] = lambda subject, label, done, total: None
    on_result: Callable[[CheckResult], None] = lambda result: None


SILENT = Monitor()


def run_checks(
    subjects: Any,
    *,
    ids: Sequence[str] | None = None,
    checks: Sequence[Check] | None = None,
    seed: int = 0,
    alpha: float = DEFAULT_ALPHA,
    effort: float = 1.0,
    known_failures: Mapping[str, str] | None = None,
    required: Sequence[str] = (),
    rerun: str = "",
    alpha_shares: int | None = None,
    shared: dict[str, Any] | None = None,
    monitor: Monitor = SILENT,
) -> Report:
    """Runs every selected check on every subject.

    subjects: one subject or a sequence of them. ids: check ids or wildcards; None is all.
    alpha: chance of one false alarm in the whole run; split evenly over all statistical checks before any
      sampling. alpha_shares: into how many shares, where this call is only a part of a larger run.
    known_failures: check id to reason; strict: an unknown id raises UsageError, a known failure that passes fails.
    shared: evidence to go on with, where one subject is judged over several calls.
    required: ids that must be decided. rerun: the command line to which ` --select ID --seed N` is added.
    """
    chosen = catalogue.select(ids, checks)
    known = dict(known_failures or {})
    for check_id in (*known, *required):
        catalogue.check_by_id(check_id)
    todo = list(subjects) if isinstance(subjects, (list, tuple)) else [subjects]
    for subject in todo:
        checked_capabilities(subject)
    share = alpha / max(1, alpha_shares or num_statistical(chosen, todo))
    started = time.perf_counter()
    results: list[CheckResult] = []
    interrupted = ""
    try:
        for subject in todo:
            evidence: dict[str, Any] = {} if shared is None else shared
            for one in chosen:
                monitor.on_start(subject.name, one.id)
                context = CheckContext(
                    alpha=share, streams=Streams(seed), effort=effort, shared=evidence,
                    progress=partial(monitor.on_progress, subject.name),
                )  # fmt: skip
                result = _judge(one, subject, context)
                if one.id in known:
                    result = _as_known_failure(result, known[one.id])
                result = replace(result, claim=one.claim, rerun=rerun_command(rerun, one.id, seed))
                results.append(result)
                monitor.on_result(result)
    except KeyboardInterrupt:
        interrupted = "interrupted by the user"
    return Report(results, seed, alpha, time.perf_counter() - started, frozenset(required), interrupted)


def num_statistical(checks: Sequence[Check], subjects: Sequence[Any]) -> int:
    """How many shares the alarm budget is split into: statistical checks that will run, over all subjects."""
    return sum(
        1
        for subject in subjects
        for one in checks
        if one.kind is Kind.STATISTICAL and not one.missing(subject.capabilities)
    )


def _judge(one: Check, subject: Any, context: CheckContext) -> CheckResult:
    started = time.perf_counter()

    def result(outcome: Outcome, **fields: Any) -> CheckResult:
        return CheckResult(
            check_id=one.id, subject=subject.name, outcome=outcome, worth="; ".join(context.worth_lines),
            figures={**context.figures, "counters": dict(context.counters)},
            seconds=time.perf_counter() - started, **fields,
        )  # fmt: skip

    missing = one.missing(subject.capabilities)
    if missing:
        context.figures["missing"] = sorted(capability.name for capability in missing)
        context.figures["for_others"] = for_others(missing, frozenset(subject.capabilities))
        return result(Outcome.UNSUPPORTED, reason=_missing_sentence(subject.name, missing))
    left_out = getattr(subject, "left_out", {}).get(one.id)
    if left_out:
        return result(Outcome.UNSUPPORTED, reason=f"left out by {subject.name}: {left_out}")
    lossy = getattr(subject, "lossy_by_design", "")
    if lossy and one.claims_losslessness:
        return result(Outcome.UNSUPPORTED, reason=f"declared lossy ({lossy}); see lossy.declared-distance")
    findings: list[Finding] = []
    try:
        with heap.at_rest():
            findings.extend(one.judge(subject, context))
    except Inconclusive as undecided:
        if not findings:
            return result(Outcome.INCONCLUSIVE, reason=str(undecided))
    except UsageError:
        raise
    except Exception as error:
        if not findings:
            context.figures["traceback"] = traceback.format_exc()
            return result(Outcome.CRASHED, reason=crash_sentence(error))
    if findings:
        return result(Outcome.FAILED, findings=tuple(findings))
    for condition in one.exercised_by:
        seen = context.counters[condition.counter]
        if seen < condition.at_least:
            reason = f"saw {seen} {condition.counter.replace('-', ' ')}; a pass needs {condition.at_least}"
            return result(Outcome.INCONCLUSIVE, reason=reason)
    return result(Outcome.PASSED)


def _missing_sentence(name: str, missing: frozenset[Capability]) -> str:
    wanted = "; ".join(sorted(capability.value for capability in missing))
    return f"{name} does not declare {', '.join(sorted(c.name for c in missing))} (a subject that {wanted})"


def _as_known_failure(result: CheckResult, reason: str) -> CheckResult:
    if result.outcome is Outcome.FAILED:
        return replace(result, known_failure=reason)
    if result.outcome is Outcome.PASSED:
        finding = Finding(
            headline=f"It is listed as a known failure ({reason}), but it passes now.",
            where=("Take it off the list of known failures, so that it cannot break again unnoticed.",),
        )
        return replace(result, outcome=Outcome.FAILED, findings=(finding,))
    return result
