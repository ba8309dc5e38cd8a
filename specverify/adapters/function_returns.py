"""Reads the answer of a verify function: which part is what, and what was emitted."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specverify.adapters.function_dialect import ReturnForm
from specverify.core.types import VerifyInput, VerifyOutput

# Names under which fields of an answer are looked for when no trial call could tell them apart.
_FIELD_NAMES: Mapping[str, tuple[str, ...]] = {
    "token_ids": ("token_ids", "tokens", "output_token_ids", "output_ids", "output", "emitted", "new_tokens",
                  "committed", "out_tokens", "result", "sequence", "ids"),
    "num_accepted": ("num_accepted", "accepted", "n_accepted", "n_matches", "accept_length", "accepted_length",
                     "num_accepted_tokens", "accept_len", "accepted_count"),
    "final_token_id": ("final_token_id", "final_token", "next_token", "bonus_token", "next_token_id"),
}  # fmt: skip


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
        return VerifyOutput(_cut_negative(tokens), num_accepted)
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


def _cut_negative(tokens: tuple[int, ...]) -> tuple[int, ...]:
    """Padding below zero ends a row."""
    end = next((index for index, token in enumerate(tokens) if token < 0), len(tokens))
    return tokens[:end]


def infer_form(
    answers: Sequence[tuple[Any, VerifyInput, VerifyOutput]], given: ReturnForm | None = None
) -> tuple[ReturnForm, int] | None:
    """The form under which most answers equal what was expected, and how many do; None where none does.

    answers: (answer with arrays as nested tuples, the case, the only correct output), one a trial call.
    given: what the user said the parts are; only padding, prefix and batch rows are left to find out.
    """
    best: tuple[ReturnForm, int] | None = None
    forms = _candidates(answers[0][0]) if given is None else _variants(given)
    named = structural_form(answers[0][0]) if given is None and not isinstance(answers[0][0], tuple) else None
    if named is not None and any(_matches(value, named, case, expected) for value, case, expected in answers):
        # Fields that say what they are: one that is wrong now and then is a finding, not another meaning.
        forms = [named]
    for form in forms:
        matches = sum(_matches(value, form, case, expected) for value, case, expected in answers)
        if matches > (best[1] if best else 0):
            best = (form, matches)
        if matches == len(answers):
            break
    return best


def _variants(given: ReturnForm) -> list[ReturnForm]:
    counted = {"num_accepted", "num_emitted"} & set(given.names) and "token_ids" in given.names
    forms = [given, replace(given, has_prefix=True)]
    if counted:
        forms += [replace(form, cut="count") for form in forms]
    return forms + [replace(form, by_row=True) for form in forms]


def structural_form(value: Any) -> ReturnForm | None:
    """The form of an answer by its shape and field names alone, for functions that pass no trial."""
    named = None if isinstance(value, tuple) else fields_of(value)
    if named is not None:
        found = {element: name for element, names in _FIELD_NAMES.items() for name in named if name in names}
        return ReturnForm(tuple(found), tuple(found.values())) if found else None
    if not isinstance(value, tuple):
        return None
    depths = [_depth(part) for part in value]
    if all(isinstance(part, int) for part in value) or (len(value) == 1 and depths == [1]):
        return ReturnForm()
    if len(value) == 2 and depths[0] > depths[1]:
        return ReturnForm(("token_ids", "num_accepted"))
    return None


def _depth(value: Any) -> int:
    return 1 + max((_depth(item) for item in value), default=0) if isinstance(value, tuple) else 0


# What an answer may consist of, the most telling first. Accepted draft tokens alone are left out on purpose: they
# can't be told from a function that forgets the final token, so whoever means them has to say so.
_PARTS = (
    ("token_ids", "num_accepted"), ("token_ids", "num_emitted"), ("token_ids", "accepted_mask"), ("token_ids",),
    ("accepted_token_ids", "final_token_id"), ("accepted_nodes", "final_token_id"),
    ("num_accepted", "final_token_id"), ("accepted_mask", "final_token_id"),
    ("num_emitted", "final_token_id"), ("num_accepted",), ("accepted_mask",),
)  # fmt: skip
_MAX_PARTS = 6


def _candidates(value: Any) -> list[ReturnForm]:
    """Every form that the structure of the answer allows."""
    if isinstance(value, tuple):
        forms = [ReturnForm(), ReturnForm(has_prefix=True), *_forms_over(len(value), None)]
        if len(value) == 1:
            inner = value[0]
            if isinstance(inner, tuple):
                forms += _forms_over(len(inner), None)  # an array [1, parts]
            forms += [replace(form, by_row=True) for form in _candidates(inner) if len(form.names) > 1 or form.fields]
        return forms
    named = fields_of(value)
    return [ReturnForm(("num_accepted",))] if named is None else _forms_over(len(named), tuple(map(str, named)))


def _forms_over(width: int, fields: tuple[str, ...] | None) -> list[ReturnForm]:
    """All ways to read the parts of an answer with that many parts, by field where it has field names."""
    if fields is None and not 1 < width <= _MAX_PARTS:
        return []
    forms = []
    for cut, has_prefix, parts in itertools.product(("negative", "count"), (False, True), _PARTS):
        if "token_ids" not in parts and (cut == "count" or has_prefix):
            continue
        if cut == "count" and not {"num_accepted", "num_emitted"} & set(parts):
            continue
        for places in itertools.permutations(range(width), len(parts)):
            if fields is not None:
                forms.append(ReturnForm(parts, tuple(fields[place] for place in places), cut, has_prefix))
            else:
                names = tuple(parts[places.index(place)] if place in places else "_" for place in range(width))
                forms.append(ReturnForm(names, (), cut, has_prefix))
    return forms


def _matches(value: Any, form: ReturnForm, case: VerifyInput, expected: VerifyOutput) -> bool:
    try:
        output = read_output(_nested_parts(value, form), form, case, 0, 1)
    except (Unreadable, ValueError, TypeError, AttributeError):
        return False
    if output.num_accepted is not None and output.num_accepted != expected.num_accepted:
        return False
    if form.decides_only and "accepted_token_ids" not in form.names:
        return case.parents is None and not _holds_token_ids(value, case)
    if form.decides_only:
        return output.num_accepted == expected.num_accepted
    # No bonus token where all were accepted: shorter, and as good.
    return output.token_ids in (expected.token_ids, expected.token_ids[: len(case.draft_token_ids)])


def _holds_token_ids(value: Any, case: VerifyInput) -> bool:
    """Whether the answer has numbers that could be token ids: then it is more than accept decisions."""
    if isinstance(value, tuple):
        return any(_holds_token_ids(item, case) for item in value)
    named = fields_of(value)
    if named is not None:
        return any(_holds_token_ids(item, case) for item in named.values())
    return isinstance(value, int) and value > len(case.draft_token_ids) + 1


def _nested_parts(value: Any, form: ReturnForm) -> tuple[Any, ...]:
    """select_parts for an answer that is nested tuples already, where an array [1, parts] is a tuple of one."""
    if not (form.fields or form.by_row) and len(form.names) > 1 and isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    return select_parts(value, form)


def _short(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
