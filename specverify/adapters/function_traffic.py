"""Live calls of a verify function: read into our terms, judged one by one, or written to a file."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.adapters.function_arrays import as_nested, is_changed, snapshot
from specverify.adapters.function_dialect import ReturnForm
from specverify.adapters.function_forms import structural_form
from specverify.adapters.function_names import FORMS
from specverify.adapters.function_returns import Unreadable, fields_of, read_output, select_parts
from specverify.core.capabilities import Capability
from specverify.core.errors import UsageError
from specverify.core.types import VerifyInput, VerifyOutput
from specverify.laws.sampling import softmax
from specverify.laws.validate import checked_law

FILE_FORMAT = "specverify-verify-calls"
FILE_VERSION = 1


@dataclass(frozen=True)
class VerifyCall:
    """One verify call of one sequence. changed: names of the arguments that it changed in place."""

    case: VerifyInput
    output: VerifyOutput
    changed: tuple[str, ...] = ()


class RecordedCalls:
    """Verify calls that have happened, as a subject: only checks that judge single calls apply."""

    capabilities = frozenset({Capability.VERIFY_CALLS})

    def __init__(self, name: str, calls: Sequence[VerifyCall]) -> None:
        self.name = name
        self.calls = tuple(calls)


@dataclass(frozen=True)
class Reader:
    """Reads the arguments and answers of live calls by the roles of the parameters."""

    name: str
    roles: Mapping[str, str]
    returns: ReturnForm | None
    signature: inspect.Signature

    def before(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The bound arguments, and copies of those that could be changed in place."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        named = {name: value for name, value in bound.arguments.items() if name in self.roles.values()}
        rng = self.roles.get("rng")
        return dict(bound.arguments), {name: snapshot(value) for name, value in named.items() if name != rng}

    def after(self, arguments: Mapping[str, Any], copies: Mapping[str, Any], answer: Any) -> list[VerifyCall]:
        """The call as one VerifyCall a batch row.

        Raises UsageError where the arguments or the answer cannot be read under these roles.
        """
        changed = tuple(name for name, old in copies.items() if is_changed(old, arguments[name]))
        given = {name: arguments[name] if copies.get(name) is None else copies[name] for name in self.roles.values()}
        cases = self._cases(given, arguments)
        form = self.returns or _form_by_structure(answer, self.name, len(cases))
        try:
            parts = tuple(as_nested(part) for part in select_parts(answer, form))
            outputs = [read_output(parts, form, case, row, len(cases)) for row, case in enumerate(cases)]
        except Unreadable as error:
            raise UsageError(f"{self.name}: {error}; say what it returns with verified(returns=...)") from error
        return [VerifyCall(case, output, changed) for case, output in zip(cases, outputs, strict=True)]

    def _cases(self, given: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[VerifyInput]:
        draft = self._laws("draft", given, arguments)
        target = self._laws("target", given, arguments)
        bonus = self._laws("bonus", given, arguments)
        if target is None:
            raise UsageError(f"{self.name} shows no target laws, so live calls cannot be judged; see target_probs=")
        if target.ndim == 2:
            draft, target = None if draft is None else draft[None], target[None]
            bonus = None if bonus is None else bonus.reshape(1, -1)
        ids = self._draft_ids(given, len(target), None if draft is None else draft.shape[1])
        cases = []
        for row, tokens in enumerate(ids):
            k = len(tokens)
            rows = target[row][: k + 1]
            if bonus is not None:
                rows = np.concatenate([rows[:k], bonus[row].reshape(1, -1)])
            law = None if draft is None else checked_law(draft[row][:k], "draft law")
            cases.append(VerifyInput(tokens, law, checked_law(rows, "target law")))
        return cases

    def _laws(self, side: str, given: Mapping[str, Any], arguments: Mapping[str, Any]) -> NDArray[np.float64] | None:
        for form in FORMS:
            name = self.roles.get(f"{side}_{form}")
            if name is None or given.get(name) is None:
                continue
            values = _as_float_array(given[name])
            if form == "probs":
                return values
            temperature = next((arguments[key] for key in ("temperature", "temp") if key in arguments), None)
            if form == "logits" and isinstance(temperature, (int, float)) and temperature > 0:
                values = values / float(temperature)
            return np.exp(values) if form == "logprobs" else softmax(values)
        return None

    def _draft_ids(self, given: Mapping[str, Any], num_rows: int, width: int | None) -> list[tuple[int, ...]]:
        name = self.roles.get("draft_token_ids") or self.roles.get("sequence_token_ids", "")
        nested = as_nested(given.get(name))
        if not isinstance(nested, tuple):
            raise UsageError(f"{self.name}: {name} is {nested!r}, not a sequence of token ids")
        rows = nested if nested and isinstance(nested[0], tuple) else (nested,)
        if "draft_token_ids" not in self.roles:
            k = width if width is not None else given.get(self.roles.get("num_draft_tokens", ""))
            if not isinstance(k, int):
                raise UsageError(f"{self.name}: cannot tell how many tokens of {name} are draft tokens")
            rows = tuple(row[len(row) - k :] for row in rows)
        if len(rows) != num_rows:
            raise UsageError(f"{self.name}: {name} has {len(rows)} rows, the target laws {num_rows}")
        return [tuple(int(token) for token in row if token >= 0) for row in rows]


def _as_float_array(value: Any) -> NDArray[np.float64]:
    if isinstance(value, (list, tuple)):
        rows = [_as_float_array(row) for row in value]
        return np.stack([row[0] if row.ndim == 2 and len(row) == 1 else row for row in rows])
    if hasattr(value, "detach"):
        value = value.detach().cpu().double().numpy()
    return np.asarray(value, dtype=np.float64)


def _form_by_structure(answer: Any, name: str, num_rows: int) -> ReturnForm:
    """What an answer must be by its shape alone: live calls allow no trials."""
    is_array = hasattr(answer, "tolist")
    value = as_nested(answer) if is_array or isinstance(answer, (tuple, list)) else answer
    is_batch = isinstance(value, tuple) and len(value) == num_rows and all(isinstance(row, tuple) for row in value)
    if is_array or (isinstance(answer, list) and (num_rows > 1 or is_batch)):
        return ReturnForm()
    form = structural_form(value)
    if form is None and isinstance(value, tuple) and len(value) == 2 and fields_of(answer) is None:
        form = ReturnForm(("num_accepted", "final_token_id"))
    if form is None:
        raise UsageError(f"{name} returned {value!r}; say what it is with verified(returns=...)")
    return form


class CallRecorder:
    """Appends live calls to a file of JSON lines: a header that says what it is, then one line a call."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        try:
            if not path.exists() or path.stat().st_size == 0:
                header = {"format": FILE_FORMAT, "version": FILE_VERSION, "function": name}
                path.write_text(json.dumps(header) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"SPECVERIFY=record:{path}: cannot write there ({error})") from error

    def write(self, calls: Sequence[VerifyCall]) -> None:
        """Adds the calls; the file is complete after each."""
        lines = [json.dumps(_as_json(call)) for call in calls]
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))


def holds_recorded_calls(path: Path) -> bool:
    """Whether the file begins like one that CallRecorder wrote."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return f'"format": "{FILE_FORMAT}"' in file.readline(4096)


def read_recorded_calls(path: Path) -> RecordedCalls:
    """The calls of a file that CallRecorder wrote.

    Raises UsageError for a file of another kind or version, and names the line where one is cut short.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    header = _json_line(path, 1, lines[0] if lines else "")
    if header.get("format") != FILE_FORMAT or header.get("version") != FILE_VERSION:
        raise UsageError(
            f"{path} is not a file of verify calls; its first line should say "
            f'{{"format": "{FILE_FORMAT}", "version": {FILE_VERSION}}}'
        )
    calls = []
    for number, line in enumerate(lines[1:], start=2):
        record = _json_line(path, number, line)
        try:
            calls.append(_from_json(record))
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{path}, line {number} is not a verify call: {type(error).__name__} {error}") from error
    return RecordedCalls(str(header.get("function", path.name)), calls)


def _json_line(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{path}, line {number} is cut short or no JSON; record the file again") from error
    if not isinstance(record, dict):
        raise UsageError(f"{path}, line {number} is no JSON object; record the file again")
    return record


def _as_json(call: VerifyCall) -> dict[str, Any]:
    draft = call.case.draft_probs
    return {
        "draft_token_ids": list(call.case.draft_token_ids),
        "draft_probs": None if draft is None else np.asarray(draft).tolist(),
        "target_probs": np.asarray(call.case.target_probs).tolist(),
        "token_ids": list(call.output.token_ids),
        "num_accepted": call.output.num_accepted,
        "changed": list(call.changed),
    }


def _from_json(record: Mapping[str, Any]) -> VerifyCall:
    draft = record["draft_probs"]
    return VerifyCall(
        VerifyInput(
            tuple(record["draft_token_ids"]), None if draft is None else np.asarray(draft, dtype=np.float64),
            np.asarray(record["target_probs"], dtype=np.float64),
        ),
        VerifyOutput(tuple(record["token_ids"]), record["num_accepted"]),
        tuple(record.get("changed", ())),
    )  # fmt: skip
