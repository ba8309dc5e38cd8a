"""Finds out how an answer has to be read: by comparing it with what had to come out, or by its structure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from specverify.adapters.function_dialect import ReturnForm
from specverify.adapters.function_returns import Unreadable, fields_of, read_output, select_parts
from specverify.core.types import VerifyInput, VerifyOutput

# Names under which fields of an answer are looked for when no trial call could tell them apart.
_FIELD_NAMES: Mapping[str, tuple[str, ...]] = {
    "token_ids": ("token_ids", "tokens", "output_token_ids", "output_ids", "output", "emitted", "new_tokens",
                  "committed", "out_tokens", "result", "sequence", "ids"),
    "num_accepted": ("num_accepted", "accepted", "n_accepted", "n_matches", "accept_length", "accepted_length",
                     "num_accepted_tokens", "accept_len", "accepted_count"),
    "final_token_id": ("final_token_id", "final_token", "next_token", "bonus_token", "next_token_id"),
}  # fmt: skip


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
    ("accepted_mask", "recovered_token_ids"),
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
