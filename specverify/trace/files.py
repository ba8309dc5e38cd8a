"""Trace files: JSON lines with a schema version. Header; per trace a request, its steps and a result; end marker.

Every line is flushed as it is written, so a run that dies leaves everything up to its last step. The end marker holds
the number of traces and a digest of all lines before it: a file without it was cut short, and says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from specverify.core.errors import UsageError
from specverify.core.types import Step, Trace
from specverify.trace.encoding import decode_step, decode_trace, encode_request, encode_result, encode_step

FORMAT = "specverify-trace"
FORMAT_VERSION = 2
# Version 2 added the parents and accepted nodes of draft trees; a file of version 1 has chains only.
READABLE_VERSIONS = (1, 2)

Decoded = TypeVar("Decoded")


@dataclass(frozen=True)
class TraceFile:
    """What a trace file holds. is_complete: it has its end marker. meta: as it was given to the writer."""

    meta: Mapping[str, Any]
    traces: tuple[Trace, ...]
    is_complete: bool = True


class TraceWriter:
    """Writes traces one by one. Use it as a context manager: the end marker is written only if nothing was raised.

    Raises UsageError where the file cannot be written, or where meta holds something that is not JSON.
    """

    def __init__(self, path: str | Path, *, meta: Mapping[str, Any] | None = None) -> None:
        self.path = Path(path)
        self._digest = hashlib.sha256()
        self._num_traces = 0
        try:
            self._file = self.path.open("w", encoding="utf-8", newline="\n")
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written ({error.strerror}); give a path that can") from error
        self._put({"type": "header", "format": FORMAT, "version": FORMAT_VERSION, "meta": dict(meta or {})})

    def write(self, trace: Trace) -> None:
        """Appends one trace."""
        self._put({"type": "request", "trace": self._num_traces, **encode_request(trace)})
        for step in trace.steps:
            self._put({"type": "step", "trace": self._num_traces, **encode_step(step)})
        self._put({"type": "result", "trace": self._num_traces, **encode_result(trace)})
        self._num_traces += 1

    def close(self) -> None:
        """Writes the end marker and closes the file; a second call does nothing."""
        if not self._file.closed:
            digest = self._digest.hexdigest()
            self._put({"type": "end", "num_traces": self._num_traces, "sha256": digest})
            self._file.close()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()

    def _put(self, record: Mapping[str, Any]) -> None:
        try:
            line = json.dumps(record, separators=(",", ":"), allow_nan=True) + "\n"
        except TypeError as error:
            raise UsageError(f"a trace's meta must hold JSON types only: {error}") from error
        self._digest.update(line.encode())
        self._file.write(line)
        self._file.flush()


def write_traces(path: str | Path, traces: Iterable[Trace], *, meta: Mapping[str, Any] | None = None) -> None:
    """Writes a whole trace file, replacing what was there."""
    with TraceWriter(path, meta=meta) as writer:
        for trace in traces:
            writer.write(trace)


def read_traces(path: str | Path, *, salvage: bool = False) -> TraceFile:
    """The traces of a file.

    salvage: give what is there of a file that was cut short, with is_complete False, instead of raising; the last
      trace may then be a part of one, marked is_partial in its meta.
    Raises UsageError, naming the line, where the file is missing, no trace file, of another version, cut short, or
    changed since it was written.
    """
    reader = _Reader(Path(path), salvage)
    reader.read()
    return TraceFile(reader.meta, tuple(reader.traces), reader.is_complete)


@dataclass
class _Reader:
    """Reads line by line, checking that each may follow the ones before it."""

    path: Path
    salvage: bool
    meta: dict[str, Any] = field(default_factory=dict)
    traces: list[Trace] = field(default_factory=list)
    is_complete: bool = False
    request: dict[str, Any] | None = None
    steps: list[Step] = field(default_factory=list)

    def read(self) -> None:
        lines = self._lines()
        digest = hashlib.sha256()
        for number, line in enumerate(lines, start=1):
            is_last = number == len(lines)
            record = self._record(number, line, is_last)
            if record is None:
                break
            if self.is_complete:
                raise UsageError(f"{self.path} goes on after its end marker, at line {number}; two files in one?")
            self._take(number, record, digest)
            digest.update(line)
        if not self.is_complete:
            self._end_early(len(lines))

    def _lines(self) -> list[bytes]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            raise UsageError(f"{self.path} is not there; give the path of a trace file") from None
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read ({error.strerror}); give the path of a trace file") from error
        if not data:
            raise UsageError(f"{self.path} is empty; a trace file begins with a header line")
        return data.splitlines(keepends=True)

    def _record(self, number: int, line: bytes, is_last: bool) -> dict[str, Any] | None:
        """The object of a line; None where it is the broken last line of a file that was cut short."""
        try:
            record = json.loads(line)
        except ValueError as error:
            if number == 1:
                raise UsageError(
                    f"{self.path} is not a trace file: line 1 is not JSON; give a file that specverify record wrote"
                ) from error
            if is_last and not line.endswith(b"\n"):
                return None
            raise UsageError(f"{self.path} is damaged: line {number} is not JSON ({error}); record it again") from error
        if not isinstance(record, dict):
            raise UsageError(f"{self.path} is damaged: line {number} is not a JSON object; record it again")
        return record

    def _take(self, number: int, record: dict[str, Any], digest: Any) -> None:
        kind = record.get("type")
        if number == 1:
            self._take_header(record)
        elif kind == "request" and self.request is None:
            self.request, self.steps = record, []
        elif kind == "step" and self.request is not None:
            self.steps.append(self._decoded(number, lambda: decode_step(record)))
        elif kind == "result" and self.request is not None:
            asked, steps = self.request, self.steps
            trace = self._decoded(number, lambda: decode_trace(asked, steps, record))
            if len(steps) != record.get("num_steps"):
                raise UsageError(
                    f"{self.path} is damaged: {len(steps)} steps before line {number}, which counts "
                    f"{record.get('num_steps')}; record it again"
                )
            self.traces.append(trace)
            self.request, self.steps = None, []
        elif kind == "end" and self.request is None:
            self._take_end(record, digest)
        else:
            raise UsageError(f"{self.path} is damaged: line {number} is a {kind!r} line out of place; record it again")

    def _take_header(self, record: Mapping[str, Any]) -> None:
        if record.get("type") != "header" or record.get("format") != FORMAT:
            raise UsageError(f"{self.path} is not a trace file: its first line is no {FORMAT} header")
        if record.get("version") not in READABLE_VERSIONS:
            raise UsageError(
                f"{self.path} has format version {record.get('version')!r}; this specverify reads versions "
                f"{' and '.join(map(str, READABLE_VERSIONS))}: record it again, or use the version that wrote it"
            )
        self.meta = dict(record.get("meta") or {})

    def _take_end(self, record: Mapping[str, Any], digest: Any) -> None:
        if record.get("num_traces") != len(self.traces):
            raise UsageError(
                f"{self.path} is damaged: it holds {len(self.traces)} traces and its end marker counts "
                f"{record.get('num_traces')}; record it again"
            )
        if record.get("sha256") != digest.hexdigest():
            raise UsageError(f"{self.path} was changed after it was written: its digest does not fit; record it again")
        self.is_complete = True

    def _decoded(self, number: int, decode: Callable[[], Decoded]) -> Decoded:
        try:
            return decode()
        except KeyError as error:
            raise UsageError(f"{self.path} is damaged: line {number} lacks {error}; record it again") from error
        except (TypeError, ValueError, UsageError) as error:
            raise UsageError(
                f"{self.path} is damaged: line {number} does not fit ({error}); record it again"
            ) from error

    def _end_early(self, num_lines: int) -> None:
        if not self.salvage:
            whole = f"{len(self.traces)} whole {'trace' if len(self.traces) == 1 else 'traces'}"
            raise UsageError(
                f"{self.path} is truncated at line {num_lines}: it has no end marker, so the run that wrote it was "
                f"cut short. {whole} can still be judged: specverify check {self.path} --salvage. Record it again for "
                "a complete file"
            )
        if self.request is not None:
            asked: Mapping[str, Any] = self.request
            steps: Sequence[Step] = self.steps
            self.traces.append(self._decoded(num_lines, lambda: decode_trace(asked, steps, None)))
