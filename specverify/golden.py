"""Golden traces: record what an engine does today, and hold it to that tomorrow.

A recipe (TOML) says which engine options and which requests; the trace file keeps the recipe in its header, so that a
replay needs nothing but the file and the engine.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from specverify.adapters.recorded import RecordedSubject, trace_files
from specverify.adapters.resolve import resolve_subjects
from specverify.catalogue import all_checks
from specverify.checks.registry import Check, CheckContext
from specverify.core.capabilities import Capability
from specverify.core.constraint import Constraint
from specverify.core.crashes import subject_crashed
from specverify.core.errors import SpecverifyError, SubjectCrashed, UsageError
from specverify.core.outcomes import CheckResult, Finding, Kind, Outcome, Report, Table
from specverify.core.types import Request, SamplingParams, Trace
from specverify.known_failures import read_toml
from specverify.runner import run_checks
from specverify.stats.budget import DEFAULT_ALPHA
from specverify.trace.compare import PROBS_TOLERANCE, Comparison, compare_all
from specverify.trace.files import TraceFile, TraceWriter, read_traces
from specverify.trace.returned import returned_traces

__all__ = ["record", "replay", "replay_file", "trace_files"]

DECISIONS_REPEAT = "golden.decisions-repeat"
CLAIM = "Replaying a golden trace must repeat every decision."
_SAMPLING = tuple(field.name for field in fields(SamplingParams))
_REQUEST = ("prompt_token_ids", "max_new_tokens", "seed", "eos_token_ids", "constraint", *_SAMPLING)
# What a replay needs to see of an engine: nothing beyond the traces themselves.
_TRACE_ONLY = frozenset(
    {
        Capability.TRACE,
        Capability.DRAFT_PROBS,
        Capability.TARGET_PROBS,
        Capability.KV_LENGTH,
        Capability.POSITIONS,
    }
)


def record(engine: str, recipe: Path, *, update: bool = False) -> Path:
    """Runs the recipe on the engine and writes the trace file beside the recipe; returns its path.

    engine: as for `specverify check`. Raises UsageError where the recipe is malformed, the engine records no steps,
    or the trace is there already and update is not set; SubjectCrashed where the engine raises, and says what is kept.
    """
    options, requests = read_recipe(recipe)
    path = recipe.with_suffix(".trace.jsonl")
    if path.exists() and not update:
        raise UsageError(f"{path} is there already; give --update to replace it, if the change is intended")
    subject = _engine(engine, options, source=f"[engine] of {recipe}")
    meta = {"engine": engine, "options": dict(options), "subject": subject.name}
    # Written beside the old one and then moved over it: a run that dies half way leaves the golden trace alone.
    fresh = path.with_suffix(".new")
    num_written = 0
    try:
        with TraceWriter(fresh, meta=meta) as writer:
            for trace in _generate(subject, requests):
                writer.write(_as_kept(trace))
                num_written += 1
    except SubjectCrashed as crash:
        if not num_written:
            fresh.unlink()
            raise
        kept = f"{crash}. {num_written} of {len(requests)} requests were recorded before that: {fresh}"
        raise SubjectCrashed(kept) from crash.__cause__
    fresh.replace(path)
    return path


def replay(path: Path, *, engine: str = "") -> Report:
    """Replays every trace file of path on the engine (each file's own by default) into one report."""
    started = time.perf_counter()
    results = [result for file in trace_files(path) for result in replay_file(file, engine=engine).results]
    return Report(results, seed=0, alpha=DEFAULT_ALPHA, seconds=time.perf_counter() - started)


def replay_file(file: Path, *, engine: str = "", probs_tolerance: float = PROBS_TOLERANCE) -> Report:
    """Replays one trace file: the decisions must repeat, and every check of traces must hold on what came.

    An engine that raises, while it is made or while it generates, crashes this file's replay and no other's.
    Raises UsageError where the file is damaged or names an engine that is not there.
    """
    started = time.perf_counter()
    golden = read_traces(file)
    spec = engine or str(golden.meta.get("engine", ""))
    if not spec:
        raise UsageError(f"{file} does not say which engine recorded it; give --engine")
    # Options in the file belong to the engine that recorded it; another engine brings its own.
    same_engine = not engine or engine == golden.meta.get("engine")
    try:
        options = golden.meta.get("options", {}) if same_engine else {}
        subject = _engine(spec, options, source=f"the header of {file}")
        now = list(_generate(subject, [trace.request for trace in golden.traces]))
    except SubjectCrashed as crash:
        crashed = CheckResult(
            DECISIONS_REPEAT, str(file), Outcome.CRASHED, claim=CLAIM, reason=str(crash), rerun=_replay(file, spec)
        )
        return Report([crashed], seed=0, alpha=DEFAULT_ALPHA, seconds=time.perf_counter() - started)
    compared = _compared(file, spec, golden, now, probs_tolerance)
    judged = run_checks(
        RecordedSubject(f"{file} (replayed)", now), checks=[one for one in all_checks() if one.needs <= _TRACE_ONLY]
    )
    # The replay's own findings matter only as findings: what a few recorded requests do not exercise is no news.
    wrong = (Outcome.FAILED, Outcome.CRASHED)
    rerun = _replay(file, spec)
    findings = [replace(result, rerun=rerun) for result in judged.results if result.outcome in wrong]
    return Report([compared, *findings], seed=0, alpha=DEFAULT_ALPHA, seconds=time.perf_counter() - started)


def read_recipe(path: Path) -> tuple[Mapping[str, Any], Sequence[Request]]:
    """Engine options and requests of a recipe. Raises UsageError naming the request and the key that is wrong."""
    contents = read_toml(path)
    unknown = set(contents) - {"engine", "request"}
    if unknown:
        raise UsageError(f"{path} has {', '.join(sorted(unknown))}; a recipe has [engine] and [[request]] only")
    options, listed = contents.get("engine", {}), contents.get("request", [])
    if not isinstance(options, Mapping) or not isinstance(listed, list) or not listed:
        raise UsageError(f"{path} has no [[request]]; write one with prompt_token_ids and max_new_tokens")
    return options, [_request(path, number, one) for number, one in enumerate(listed)]


def _request(path: Path, number: int, given: Mapping[str, Any]) -> Request:
    unknown = set(given) - set(_REQUEST)
    if unknown:
        raise UsageError(
            f"{path}, request {number}: {', '.join(sorted(unknown))} is unknown; there are {', '.join(_REQUEST)}"
        )
    for key in ("prompt_token_ids", "max_new_tokens"):
        if not given.get(key):
            raise UsageError(f"{path}, request {number} has no {key}")
    return Request(
        prompt_token_ids=tuple(given["prompt_token_ids"]),
        max_new_tokens=given["max_new_tokens"],
        sampling=SamplingParams(**{key: given[key] for key in _SAMPLING if key in given}),
        # A golden trace that draws afresh each time would never repeat.
        seed=given.get("seed", 0),
        eos_token_ids=tuple(given.get("eos_token_ids", ())),
        request_id=str(number),
        constraint=_constraint(path, number, given["constraint"]) if "constraint" in given else None,
    )


def _constraint(path: Path, number: int, given: Any) -> Constraint:
    try:
        return Constraint.from_json(given)
    except UsageError as error:
        raise UsageError(f"{path}, request {number}: {error}") from error


def _as_kept(trace: Trace) -> Trace:
    """The trace as it is kept: cache rows are megabytes that nobody reviews, and the kv checks judge them live.

    So does a check with log-probabilities, which follow from the laws; no replay compares them.
    """
    steps = tuple(replace(step, target_kv_rows=None, draft_kv_rows=None) for step in trace.steps)
    return replace(trace, steps=steps, log_probs=None)


def _engine(spec: str, options: Mapping[str, Any], *, source: str) -> Any:
    """The one engine that spec makes. source: where the options come from, for who must correct them."""
    try:
        subjects = resolve_subjects(spec, options=options)
    except UsageError as error:
        if not options:
            raise
        raise UsageError(f"{error} (the options come from {source})") from error
    if len(subjects) != 1:
        raise UsageError(f"{spec} makes {len(subjects)} engines where one is wanted; choose one by its options")
    subject = subjects[0]
    if Capability.TRACE not in subject.capabilities:
        raise UsageError(f"{subject.name} records no steps (capability TRACE), so it cannot make golden traces")
    return subject


def _generate(subject: Any, requests: Sequence[Request]) -> Iterator[Trace]:
    """One request at a time: a golden trace must not depend on who else was in the batch."""
    for number, request in enumerate(requests):
        try:
            made = subject.generate([request], speculate=True)
            made = made if made is None else list(made)
        except SpecverifyError:
            raise
        except (Exception, SystemExit) as error:
            raise subject_crashed(f"{subject.name}, asked for request {number},", error) from error
        yield from returned_traces(subject.name, made, [request])


def _replay(file: Path, spec: str) -> str:
    return shlex.join(["specverify", "replay", str(file), "--engine", spec])


def _judged_by_replay(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Each request of a golden trace is run again, alone and with its seed, and compared with what was recorded:
    prompt, draft token ids, draft laws, target laws, decisions, tokens, in the order of the pipeline.

    The first component that differs is named, because all that follow it differ for that reason. Laws may differ by
    rounding (1e-6), decisions not at all. `specverify record ... --update` accepts a change that was intended.
    """
    raise UsageError(f"{DECISIONS_REPEAT} is judged by `specverify replay`, against a recorded trace")
    yield


# Declared like a check, so that it is explained like one. It is in no catalogue: it judges a file beside an engine.
DECISIONS_REPEAT_CHECK = Check(
    id=DECISIONS_REPEAT,
    claim=CLAIM,
    kind=Kind.EXACT,
    needs=frozenset({Capability.GENERATE, Capability.TRACE}),
    exercised_by=(),
    catches=("whatever changed a draft, a law, a decision or a token since the trace was recorded",),
    source="golden traces: `specverify record` wrote what the engine did",
    judge=_judged_by_replay,
)


def _compared(file: Path, spec: str, golden: TraceFile, now: Sequence[Trace], tolerance: float) -> CheckResult:
    comparisons = compare_all(golden.traces, now, probs_tolerance=tolerance)
    findings = [_finding(number, comparison) for number, comparison in enumerate(comparisons) if not comparison.is_same]
    num_steps = sum(len(trace.steps) for trace in golden.traces)
    options = golden.meta.get("options", {})
    recipe = str(file).replace(".trace.jsonl", ".toml")
    return CheckResult(
        DECISIONS_REPEAT,
        str(file),
        Outcome.FAILED if findings else Outcome.PASSED,
        claim=CLAIM,
        findings=findings,
        worth=f"{len(golden.traces)} requests, {num_steps} steps, laws within {tolerance:g}",
        figures={"options": options, "engine": spec},
        rerun=f"{_replay(file, spec)}\n  Intended?  specverify record {spec} {recipe} --update",
    )


def _finding(number: int, comparison: Comparison) -> Finding:
    return Finding(
        headline=f"Request {number}: {comparison.headline}",
        table=Table(comparison.rows()),
        where=comparison.story,
        likely_cause=comparison.likely_cause,
        details={"first_change": comparison.first.name if comparison.first else ""},
    )
