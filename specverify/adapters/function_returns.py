"""Reads the answer of a verify function: which part is what, and what was emitted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specverify.adapters.function_dialect import ReturnForm
from specverify.core.types import VerifyInput, VerifyOutput


class Unreadable(Exception):
    """An answer is not of the form that the dialect says; the text says what was wrong."""


def fields_of(value: Any) -> Mapping[str, Any] | None:
    """The named parts of an answer, or None where it has no names. A named tuple is read by position."""
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    if hasattr(value, "__dict__") and not hasattr(value, "tolist") and not callable(value):
        return {name: item for name, item in vars(value).items() if not name.startswith("_")}
    return None


def select_parts(value: Any, form: ReturnForm) -> tuple[Any, ...]:
    """The parts of an answer that the form names, untouched: nothing is compared, so nothing is decided early."""
    if form.by_row:
        one = replace(form, by_row=False)
        return tuple(zip(*(select_parts(item, one) for item in value), strict=True))
    if form.fields:
        named = fields_of(value)
        if named is None:
            raise Unreadable(f"it returned {_short(value)}, which has no fields; wanted {', '.join(form.fields)}")
        missing = [name for name in form.fields if name not in named]
        if missing:
            raise Unreadable(f"it returned fields {', '.join(map(str, named))}, but no {missing[0]!r}")
        return tuple(named[field] for name, field in zip(form.names, form.fields, strict=True) if name != "_")
    if len(form.names) == 1:
        return (value,)
    if isinstance(value, (tuple, list)):
        if len(value) != len(form.names):
            raise Unreadable(f"it returned {len(value)} parts, not the {len(form.names)} of returns={form.names!r}")
        return tuple(part for name, part in zip(form.names, value, strict=True) if name != "_")
    shape = getattr(value, "shape", ())
    if not shape or shape[-1] != len(form.names):
        raise Unreadable(f"it returned {_short(value)}, not the {len(form.names)} parts of returns={form.names!r}")
    return tuple(value[..., index] for index, name in enumerate(form.names) if name != "_")


def read_output(parts: Sequence[Any], form: ReturnForm, case: VerifyInput, row: int, num_rows: int) -> VerifyOutput:
    """What one batch row emitted. parts: nested tuples of numbers, in the order of the form's names.

    Raises Unreadable where the parts cannot mean what the form says.
    """
    named = dict(zip([name for name in form.names if name != "_"], parts, strict=True))
    drafts = case.draft_token_ids
    num_accepted = _count(named, row, num_rows)
    final: tuple[int, ...] = ()
    if "final_token_id" in named:
        final = tuple(token for token in (_scalar(named["final_token_id"], row, num_rows),) if token >= 0)
    if "token_ids" in named:
        tokens = _sequence(named["token_ids"], row, num_rows)
        if form.has_prefix:
            tokens = tokens[len(PREFIX_TOKEN_IDS) :]
        if form.cut == "count":
            emitted = _emitted_count(named, row, num_rows)
            tokens = tokens[:emitted]
        return VerifyOutput(_without_padding(tokens), num_accepted)
    if "accepted_token_ids" in named:
        accepted = _cut_negative(_sequence(named["accepted_token_ids"], row, num_rows))
        return VerifyOutput(accepted + final, len(accepted))
    if "accepted_nodes" in named:
        if case.parents is None:
            raise Unreadable("accepted_nodes are for draft trees")
        nodes = _cut_negative(_sequence(named["accepted_nodes"], row, num_rows))
        if any(node >= len(drafts) for node in nodes):
            raise Unreadable(f"it accepted nodes {list(nodes)} of {len(drafts)}")
        return VerifyOutput(tuple(drafts[node] for node in nodes) + final, len(nodes))
    if num_accepted is None:
        raise Unreadable("the answer holds neither token ids nor a count of accepted draft tokens")
    if not 0 <= num_accepted <= len(drafts):
        raise Unreadable(f"it says that {num_accepted} of {len(drafts)} draft tokens were accepted")
    if "recovered_token_ids" in named:
        recovered = _sequence(named["recovered_token_ids"], row, num_rows)
        if len(recovered) != len(drafts):
            raise Unreadable(f"it returned {len(recovered)} recovered tokens for {len(drafts)} draft tokens")
        final = _cut_negative(recovered[num_accepted : num_accepted + 1] if num_accepted < len(drafts) else ())
    return VerifyOutput(drafts[:num_accepted] + final, num_accepted)


# Committed tokens that stand in front of the draft where a function wants some. What they are makes no difference
# to a verify step; there are two, so that a function which counts from the wrong end is found out.
PREFIX_TOKEN_IDS = (1, 0)


def _count(named: Mapping[str, Any], row: int, num_rows: int) -> int | None:
    if "num_accepted" in named:
        return _scalar(named["num_accepted"], row, num_rows)
    if "num_emitted" in named:
        return max(0, _scalar(named["num_emitted"], row, num_rows) - 1)
    if "accepted_mask" in named:
        mask = _sequence(named["accepted_mask"], row, num_rows)
        return next((index for index, flag in enumerate(mask) if not flag), len(mask))
    return None


def _emitted_count(named: Mapping[str, Any], row: int, num_rows: int) -> int:
    if "num_emitted" in named:
        return _scalar(named["num_emitted"], row, num_rows)
    return _scalar(named["num_accepted"], row, num_rows) + 1


def _sequence(part: Any, row: int, num_rows: int) -> tuple[int, ...]:
    """The row's part as a flat tuple of numbers."""
    if not isinstance(part, tuple):
        if num_rows == 1 and part is not None:
            return (int(part),)
        raise Unreadable(f"it returned {_short(part)} where token ids were wanted")
    if part and isinstance(part[0], tuple):
        if len(part) != num_rows:
            raise Unreadable(f"it returned {len(part)} rows for a batch of {num_rows}")
        return _sequence(part[row], 0, 1)
    if num_rows != 1:
        raise Unreadable(f"it returned one row for a batch of {num_rows}")
    if any(not isinstance(item, (int, float)) or item != int(item) for item in part):
        raise Unreadable(f"it returned {_short(part)} where token ids were wanted")
    return tuple(int(item) for item in part)


def _scalar(part: Any, row: int, num_rows: int) -> int:
    if part is None:
        return -1
    if num_rows > 1 and not isinstance(part, tuple):
        raise Unreadable(f"it returned one number for a batch of {num_rows}")
    while isinstance(part, tuple):
        if len(part) == num_rows:
            part, row, num_rows = part[row], 0, 1
        elif not part:
            return -1
        else:
            raise Unreadable(f"it returned {_short(part)} where one number was wanted")
    if not isinstance(part, (int, float)) or part != int(part):
        raise Unreadable(f"it returned {_short(part)} where one whole number was wanted")
    return int(part)


def _without_padding(tokens: tuple[int, ...]) -> tuple[int, ...]:
    """The row without the numbers below zero at its end. One between tokens is a hole, and stays."""
    end = len(tokens)
    while end and tokens[end - 1] < 0:
        end -= 1
    return tokens[:end]


def _cut_negative(tokens: tuple[int, ...]) -> tuple[int, ...]:
    """Padding below zero ends a row."""
    end = next((index for index, token in enumerate(tokens) if token < 0), len(tokens))
    return tokens[:end]


def _short(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
