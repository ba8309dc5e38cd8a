"""Runs the checks of several subjects on several cores, and survives an engine that takes its process down.

Workers are forked after the subjects were built, so that nothing is loaded twice and nothing need be picklable but
the results. Where forking is unsafe (CUDA already initialised, no fork on this platform) one process does it all.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from specverify.checks.registry import Check
from specverify.core.errors import UsageError
from specverify.core.outcomes import CheckResult, Outcome, Report
from specverify.core.threads import share_cores
from specverify.report.commands import rerun_command
from specverify.runner import SILENT, Monitor, num_statistical, run_checks


@dataclass
class _Unit:
    """Checks of one subject that share evidence, and so belong in one process."""

    subject: Any
    checks: Sequence[Check]
    done: list[CheckResult] = field(default_factory=list)
    current: str = ""


def run_on_cores(
    subjects: Sequence[Any],
    checks: Sequence[Check],
    *,
    jobs: int = 0,
    monitor: Monitor = SILENT,
    alpha: float,
    seed: int = 0,
    required: Sequence[str] = (),
    known_failures: Mapping[str, str] | None = None,
    **options: Any,
) -> Report:
    """Like runner.run_checks, over `jobs` processes (0 is one per core). A worker that dies costs its checks only."""
    units = list(_units(subjects, checks))
    num_jobs = min(jobs or (os.cpu_count() or 1), len(units))
    shares = max(1, num_statistical(checks, subjects))
    options.update(alpha=alpha, seed=seed, alpha_shares=shares)
    # A strict list is checked against the whole catalogue once, here, before any work is done.
    run_checks([], checks=checks, known_failures=known_failures, required=required)
    options["known_failures"] = known_failures
    started = time.perf_counter()
    interrupted = ""
    try:
        if num_jobs > 1 and _can_fork():
            _run_forked(units, num_jobs, monitor, options)
        else:
            for unit in units:
                report = _run_unit(unit, monitor, options)
                interrupted = interrupted or report.interrupted
                if interrupted:
                    break
    except KeyboardInterrupt:
        interrupted = "interrupted by the user"
    order = {one.id: position for position, one in enumerate(checks)}
    results = [
        result
        for subject in subjects
        for result in sorted(
            (result for unit in units if unit.subject is subject for result in unit.done),
            key=lambda result: order[result.check_id],
        )
    ]
    return Report(results, seed, alpha, time.perf_counter() - started, frozenset(required), interrupted)


def _units(subjects: Sequence[Any], checks: Sequence[Check]) -> Iterator[_Unit]:
    for subject in subjects:
        # Long checks that share no evidence go first: they fill the cores while the rest runs.
        for one in (one for one in checks if one.runs_alone and not one.missing(subject.capabilities)):
            yield _Unit(subject, [one])
        rest = [one for one in checks if not one.runs_alone or one.missing(subject.capabilities)]
        if rest:
            yield _Unit(subject, rest)


def _run_unit(unit: _Unit, watch: Monitor, options: Mapping[str, Any]) -> Report:
    def on_result(result: CheckResult) -> None:
        unit.done.append(result)
        watch.on_result(result)

    known = _within(options["known_failures"], unit.checks)
    monitor = replace(watch, on_result=on_result)
    return run_checks(unit.subject, checks=unit.checks, monitor=monitor, **{**options, "known_failures": known})


def _within(known_failures: Mapping[str, str] | None, checks: Sequence[Check]) -> dict[str, str]:
    ids = {one.id for one in checks}
    return {check_id: reason for check_id, reason in (known_failures or {}).items() if check_id in ids}


def _can_fork() -> bool:
    if "fork" not in multiprocessing.get_all_start_methods() or sys.platform == "darwin":
        return False
    torch = sys.modules.get("torch")
    return torch is None or not torch.cuda.is_initialized()


def _run_forked(units: Sequence[_Unit], num_jobs: int, watch: Monitor, options: Mapping[str, Any]) -> None:
    context = multiprocessing.get_context("fork")
    waiting = list(units)
    running: dict[Connection, tuple[_Unit, Any]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < num_jobs:
                unit = waiting.pop(0)
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_worker, args=(unit, sender, options, num_jobs), daemon=False)
                process.start()
                sender.close()
                running[receiver] = (unit, process)
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                unit, process = running[ready]
                try:
                    kind, payload = ready.recv()
                except EOFError:
                    process.join()
                    del running[ready]
                    _mourn(unit, process.exitcode, watch, options)
                    continue
                _dispatch(unit, kind, payload, watch)
    finally:
        for _, process in running.values():
            process.terminate()


def _dispatch(unit: _Unit, kind: str, payload: Any, watch: Monitor) -> None:
    if kind == "usage-error":
        raise UsageError(payload)
    if kind == "start":
        unit.current = payload[1]
        watch.on_start(*payload)
    elif kind == "progress":
        watch.on_progress(*payload)
    elif kind == "result":
        unit.done.append(payload)
        watch.on_result(payload)


def _mourn(unit: _Unit, exit_code: int | None, watch: Monitor, options: Mapping[str, Any]) -> None:
    """A worker that ended before its checks did: the check it was in crashed, and so did those it never reached."""
    done = {result.check_id for result in unit.done}
    how = signal.Signals(-exit_code).name if exit_code is not None and exit_code < 0 else f"exit status {exit_code}"
    for one in unit.checks:
        if one.id in done:
            continue
        during = "" if one.id == unit.current else f" during {unit.current or 'start-up'}, before this check was run"
        rerun = rerun_command(options.get("rerun", ""), one.id, options["seed"])
        result = CheckResult(
            one.id, unit.subject.name, Outcome.CRASHED, claim=one.claim, rerun=rerun,
            reason=f"the engine's process died ({how}){during}",
        )  # fmt: skip
        unit.done.append(result)
        watch.on_result(result)


def _worker(unit: _Unit, sender: Connection, options: Mapping[str, Any], num_jobs: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent decides what an interrupt means.
    share_cores(num_jobs)
    last = 0.0

    def on_progress(subject: str, label: str, done: int, total: int) -> None:
        nonlocal last
        if time.perf_counter() - last > 0.2:
            last = time.perf_counter()
            sender.send(("progress", (subject, label, done, total)))

    monitor = Monitor(
        on_start=lambda subject, check_id: sender.send(("start", (subject, check_id))),
        on_progress=on_progress,
        on_result=lambda result: sender.send(("result", result)),
    )
    try:
        _run_unit(unit, monitor, options)
    except UsageError as error:
        sender.send(("usage-error", str(error)))
    sender.close()
