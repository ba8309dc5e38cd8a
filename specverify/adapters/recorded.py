"""Recorded runs as subjects: a trace file shows what its steps hold, and every check of traces can judge that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specverify.adapters.function_traffic import holds_recorded_calls, read_recorded_calls
from specverify.core.capabilities import Capability
from specverify.core.errors import SubjectCrashed, UsageError
from specverify.core.types import Trace
from specverify.trace.files import read_traces
from specverify.trace.returned import returned_traces

TRACE_SUFFIX = ".jsonl"


class RecordedSubject:
    """Traces that were recorded earlier. capabilities: what every step of every trace holds."""

    def __init__(self, name: str, traces: Sequence[Trace]) -> None:
        self.name = name
        self.traces = tuple(traces)
        self.capabilities = _shown(self.traces)


def recorded_subjects(path: Path, *, salvage: bool = False) -> Sequence[Any]:
    """One subject per file of traces or of verify calls.

    salvage: of a file that was cut short, take the traces that are whole; the rest of one proves nothing of its end.
    Raises UsageError where there is no file, or one is damaged or holds what is no law.
    """
    return [_recorded_subject(file, salvage) for file in trace_files(path)]


def _recorded_subject(file: Path, salvage: bool) -> Any:
    if holds_recorded_calls(file):
        return read_recorded_calls(file)
    traces = [trace for trace in read_traces(file, salvage=salvage).traces if not trace.meta.get("is_partial")]
    if not traces:
        raise UsageError(f"{file} holds no whole trace; record it again")
    try:
        return RecordedSubject(str(file), returned_traces(str(file), traces, [trace.request for trace in traces]))
    except SubjectCrashed as error:
        raise UsageError(f"{error}; record it again") from error


def trace_files(path: Path) -> Sequence[Path]:
    """The trace files of a folder, sorted, or the file itself. Raises UsageError where there is none."""
    if path.is_dir():
        files = sorted(path.glob(f"*{TRACE_SUFFIX}"))
        if not files:
            raise UsageError(f"{path} holds no {TRACE_SUFFIX} file; record one with specverify record")
        return files
    if not path.exists():
        raise UsageError(f"{path} is not there; give a trace file or a folder of them")
    return [path]


def _shown(traces: Sequence[Trace]) -> frozenset[Capability]:
    steps = [step for trace in traces for step in trace.steps]
    if not steps:
        return frozenset()
    fields: dict[Capability, list[Any]] = {
        Capability.TARGET_PROBS: [step.target_probs for step in steps],
        # A step without drafts has no draft law to show.
        Capability.DRAFT_PROBS: [step.draft_probs for step in steps if step.draft_token_ids],
        Capability.KV_LENGTH: [step.target_kv_length_after for step in steps],
        # Some engines roll the draft cache back only when the next step begins: the last step shows none.
        Capability.DRAFT_KV: [trace.steps[0].draft_kv_length_after for trace in traces if len(trace.steps) > 1],
        Capability.POSITIONS: [step.target_positions for step in steps],
    }
    trees = {Capability.DRAFT_TREE} if any(step.parents is not None for step in steps) else set()
    return frozenset(
        {Capability.TRACE}
        | trees
        | {one for one, values in fields.items() if values and all(value is not None for value in values)}
    )
