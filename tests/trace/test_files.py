"""Trace files give back what was written, and say what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from specverify.core.constraint import Constraint
from specverify.core.errors import UsageError
from specverify.core.types import Request, SamplingParams, Step, Trace
from specverify.trace import TraceWriter, compare, read_traces, write_traces
from specverify.trace.encoding import LARGEST_READABLE_ARRAY
from tests.trace.made import trace


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_traces(tmp_path / "t.jsonl", [trace(), trace(seed=2)], meta={"engine": "tiny", "k": 2})
    return tmp_path / "t.jsonl"


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_everything_survives(file: Path) -> None:
    """Every field of trace, request and step, laws bit for bit."""
    found = read_traces(file)

    assert (found.meta, found.is_complete, len(found.traces)) == ({"engine": "tiny", "k": 2}, True, 2)
    wanted, back = trace(), found.traces[0]
    assert back.request == wanted.request
    assert compare(wanted, back, probs_tolerance=0.0).is_same
    for name in (field.name for field in fields(Trace) if field.name not in ("request", "steps")):
        assert getattr(back, name) == getattr(wanted, name), name
    for ours, theirs in zip(back.steps, wanted.steps, strict=True):
        for name in Step.__dataclass_fields__:
            a, b = getattr(ours, name), getattr(theirs, name)
            assert np.array_equal(a, b) if isinstance(b, np.ndarray) else a == b, name
            assert not isinstance(b, np.ndarray) or a.dtype == b.dtype, name


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("size", [3, LARGEST_READABLE_ARRAY + 1], ids=["numbers", "bytes"])
def test_arrays_survive_bit_for_bit(tmp_path: Path, dtype: type, size: int) -> None:
    """Written as numbers or as bytes, in their own type, with infinities."""
    law = np.random.default_rng(0).random((1, size)).astype(dtype)
    law[0, 0], law[0, 1] = np.inf, np.nextafter(dtype(0.1), dtype(1))
    step = Step(0, 3, (), (1,), 0, target_probs=law)
    write_traces(tmp_path / "t.jsonl", [Trace(Request((1,), 1), (1,), (step,))])

    back = read_traces(tmp_path / "t.jsonl").traces[0].steps[0].target_probs

    assert back is not None
    assert (law.dtype, law.tobytes()) == (back.dtype, back.tobytes())


def test_small_laws_are_readable_numbers(file: Path) -> None:
    """A change of a golden trace can be reviewed as text."""
    step = json.loads(lines(file)[2])

    assert step["draft_probs"]["values"][0] == [0.25, 0.75]


def test_nothing_recorded_is_lost_when_a_run_dies(tmp_path: Path) -> None:
    """Traces written before the exception are on disk; without end marker the file is not taken for complete."""

    def dying_run() -> None:
        with TraceWriter(tmp_path / "t.jsonl") as writer:
            writer.write(trace())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        dying_run()
    with pytest.raises(
        UsageError, match=r"truncated at line 5: it has no end marker.* 1 whole trace can still be judged"
    ):
        read_traces(tmp_path / "t.jsonl")
    salvaged = read_traces(tmp_path / "t.jsonl", salvage=True)
    assert (len(salvaged.traces), salvaged.is_complete) == (1, False)


def test_half_a_line_ends_what_can_be_salvaged(file: Path) -> None:
    """The trace in progress comes back with the steps it had, marked as a part."""
    text = file.read_text()
    file.write_text(text[: text.index('"type":"result"', text.index('"trace":1')) - 40])

    with pytest.raises(UsageError, match="truncated at line 8"):
        read_traces(file)
    whole, part = read_traces(file, salvage=True).traces
    assert whole.token_ids == trace().token_ids
    assert (len(part.steps), part.meta) == (1, {"is_partial": True})


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda text: "", "is empty"),
        (lambda text: "hello\n" + text, "not a trace file: line 1 is not JSON"),
        (lambda text: '{"some": "json"}\n', "its first line is no specverify-trace header"),
        (
            lambda text: text.replace('"version":2', '"version":99'),
            "format version 99; this specverify reads versions 1 and 2",
        ),
        (lambda text: text.replace('{"type":"step"', '"type":"step"', 1), "line 3 is not JSON"),
        (lambda text: text.replace('"type":"step"', '"type":"stop"', 1), "line 3 is a 'stop' line out of place"),
        (lambda text: text.replace('"start_position":3,', "", 1), "line 3"),
        (lambda text: text.replace("0.25", "0.26", 1), "changed after it was written"),
        (lambda text: text.replace('"shape":[2,2]', '"shape":[3,2]', 1), "line 3 does not fit"),
        (lambda text: text + text, "goes on after its end marker, at line 11"),
        (
            lambda text: "".join(text.splitlines(keepends=True)[:3] + text.splitlines(keepends=True)[4:]),
            "1 steps before",
        ),
    ],
    ids=["empty", "text", "other json", "version", "no json", "kind", "no field", "edited", "shape", "twice", "lost"],
)
def test_damage_is_named(file: Path, break_it: Callable[[str], str], message: str) -> None:
    """One sentence with the line, never a traceback of ours, also when salvaging."""
    file.write_text(break_it(file.read_text()))

    for salvage in (False, True):
        with pytest.raises(UsageError, match=message):
            read_traces(file, salvage=salvage)


def test_missing_file_and_missing_folder_are_named(tmp_path: Path) -> None:
    """Reading and writing say which path."""
    with pytest.raises(UsageError, match=r"nowhere\.jsonl is not there"):
        read_traces(tmp_path / "nowhere.jsonl")
    with pytest.raises(UsageError, match="cannot be written"):
        write_traces(tmp_path / "no" / "t.jsonl", [])
    with pytest.raises(UsageError, match="cannot be read"):
        read_traces(tmp_path)


def test_meta_must_be_json(tmp_path: Path) -> None:
    """A path or an array in meta is the caller's mistake."""
    with pytest.raises(UsageError, match="JSON types only"):
        write_traces(tmp_path / "t.jsonl", [], meta={"path": tmp_path})


def test_files_without_log_probabilities_are_read(file: Path, tmp_path: Path) -> None:
    """Those that were written before there were any, and those of engines that report none."""
    write_traces(tmp_path / "none.jsonl", [replace(trace(), log_probs=None)])

    assert '"log_probs"' in file.read_text()
    assert '"log_probs"' not in (tmp_path / "none.jsonl").read_text()
    assert read_traces(tmp_path / "none.jsonl").traces[0].log_probs is None


def test_constraints_survive_and_older_files_have_none(file: Path, tmp_path: Path) -> None:
    """A file without constraints looks as it did before there were any."""
    constraint = Constraint(({4: 1}, {5: 0}), frozenset({0}))
    write_traces(tmp_path / "kept.jsonl", [replace(trace(), request=replace(trace().request, constraint=constraint))])

    assert read_traces(tmp_path / "kept.jsonl").traces[0].request.constraint == constraint
    assert '"constraint"' not in file.read_text()
    assert read_traces(file).traces[0].request.constraint is None


def test_a_constraint_that_is_none_is_damage(tmp_path: Path) -> None:
    """With file and line."""
    constraint = Constraint(({4: 1}, {5: 0}), frozenset({0}))
    path = tmp_path / "kept.jsonl"
    write_traces(path, [replace(trace(), request=replace(trace().request, constraint=constraint))])
    path.write_text(path.read_text().replace('"accepting":[0]', '"accepting":[7]'))

    with pytest.raises(UsageError, match=r"line \d+ does not fit \(accepting has state 7"):
        read_traces(path)


def test_trace_without_steps_survives(tmp_path: Path) -> None:
    """Plain decoding has none."""
    plain = Trace(Request((1,), 2, SamplingParams(0.0)), (4, 5), speculated=False)
    write_traces(tmp_path / "t.jsonl", [plain])

    back = read_traces(tmp_path / "t.jsonl").traces[0]

    assert (plain.request, plain.token_ids, False) == (back.request, back.token_ids, back.speculated)
