"""Finds out by trial calls what names and annotations leave open: array kinds, layout, generator and answer form.

The trial cases are so one-sided that only one outcome is possible (but for one chance in 10^8), whatever lossless
rule the function uses. The first way of calling under which that outcome comes back is the dialect.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from specverify.adapters.function_arrays import as_nested
from specverify.adapters.function_cases import (
    alike_cases,
    trial_cases,
    whole_step_cases,
)
from specverify.adapters.function_dialect import Dialect, ReturnForm
from specverify.adapters.function_forms import infer_form, structural_form
from specverify.adapters.function_kinds import annotated_kinds, kind_pairs, parameter_kinds, rng_kinds
from specverify.adapters.function_names import FORMS
from specverify.adapters.function_returns import fields_of
from specverify.core.errors import UsageError
from specverify.core.types import VerifyInput, VerifyOutput
from specverify.exact.program import NativeSource, RandomSource

if TYPE_CHECKING:
    pass

# How many trial cases there are.
_NUM_TRIALS = 2


@dataclass(frozen=True)
class Open:
    """What the user left open: None means that trials decide."""

    kind: str | Mapping[str, str] | None
    layout: str | None
    rng_kind: str | None
    returns: ReturnForm | None
    swappable: bool


def settle(
    function: Callable[..., Any] | None, name: str, call: Callable[[Dialect, VerifyInput, RandomSource], Any],
    base: Dialect, left_open: Open,
) -> Dialect:  # fmt: skip
    """The dialect under which trial calls give what they must.

    Where none does (a broken function, perhaps), the first way of calling that runs at all and whose answer can be
    read. Raises UsageError where there is none, quoting what the function said to the likeliest ways.
    """
    errors: list[tuple[str, str]] = []
    ways = list(_ways(function, base, left_open))
    found = _best(call, ways, left_open, errors)
    if found is None and not base.takes_trees and not base.drafts_itself:
        found = _best(call, ways, left_open, [], alike=True)
    if found is None:
        raise UsageError(_no_way(name, base, errors))
    return found


def _best(
    call: Callable[[Dialect, VerifyInput, RandomSource], Any], ways: Sequence[Dialect], left_open: Open,
    errors: list[tuple[str, str]], *, alike: bool = False,
) -> Dialect | None:  # fmt: skip
    """The way whose answers fit most trial cases, the likelier one where two fit alike. alike: the cases to try."""
    best: tuple[int, Dialect] | None = None
    for dialect in ways:
        answers, error = _try(call, dialect, alike=alike)
        if error:
            errors.append((_way(dialect), error))
            continue
        form, matches = _form_of(answers, left_open.returns)
        if form is None:
            errors.append((_way(dialect), f"returned {_shown(answers[0][0])}, which is not what a verify step returns"))
            continue
        if best is None or matches > best[0]:
            best = (matches, replace(dialect, returns=form))
        if matches == _NUM_TRIALS:
            break
    return None if best is None else best[1]


def _try(
    call: Callable[[Dialect, VerifyInput, RandomSource], Any], dialect: Dialect, *, alike: bool
) -> tuple[list[tuple[Any, VerifyInput, VerifyOutput]], str]:
    """The answers to those trial cases that the function survives; what it said to the first where it survives none."""
    answers = []
    first_error = ""
    has_draft_law = dialect.takes_draft_law or not dialect.roles
    if alike:
        cases = alike_cases(has_draft_law=has_draft_law)
    elif dialect.drafts_itself:
        cases = whole_step_cases()
    else:
        cases = trial_cases(has_draft_law=has_draft_law, is_tree=dialect.takes_trees)
    for seed, (case, expected) in enumerate(cases):
        try:
            value = _finished(call(dialect, case, NativeSource(seed)))
        except UsageError as error:
            first_error = first_error or str(error)
        except Exception as error:
            text = str(error).strip().splitlines()
            first_error = first_error or f"{type(error).__name__}: {text[0] if text else 'no message'}"
        else:
            answers.append((_readable(value), case, expected))
    return answers, "" if answers else first_error


def _finished(value: Any) -> Any:
    """The answer itself. Raises UsageError where it is only the promise of one."""
    if inspect.iscoroutine(value):
        value.close()
        raise UsageError("it is async; give call=lambda case, source: asyncio.run(...)")
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise UsageError("it answers with a generator; give call=lambda case, source: list(...)")
    return value


def _readable(value: Any) -> Any:
    """The answer with its arrays as nested tuples, fields kept."""
    if isinstance(value, (tuple, list)) or hasattr(value, "tolist"):
        if isinstance(value, (tuple, list)):
            return tuple(_readable(item) for item in value)
        return as_nested(value)
    named = fields_of(value)
    return value if named is None else {name: _readable(item) for name, item in named.items()}


def _form_of(answers: list[Any], given: ReturnForm | None) -> tuple[ReturnForm | None, int]:
    if given is not None:
        inferred = infer_form(answers, given)
        return given if inferred is None else inferred[0], inferred[1] if inferred else 0
    found = infer_form(answers)
    if found is not None:
        return found
    return structural_form(answers[0][0]), 0


def _ways(function: Callable[..., Any] | None, base: Dialect, left_open: Open) -> Iterator[Dialect]:
    """Ways of calling, the likeliest first."""
    annotated = annotated_kinds(function, base)
    swaps = (False, True) if left_open.swappable else (False,)
    layouts = (left_open.layout,) if left_open.layout else _layouts(base)
    rows: tuple[str, ...] = ("k + 1", "k")
    if any(role.startswith("bonus_") for role in base.roles):
        rows = ("k", "k + 1")
    elif not any(f"target_{form}" in base.roles for form in FORMS):
        rows = ("k + 1",)
    # Where nothing else can draw the final token, there is probably a uniform for it behind those of the accept tests.
    alone = "uniforms" in base.roles and not {"rng", "seed", "final_uniform"} & set(base.roles)
    uniforms = ("k + 1", "k") if alone else ("k",)
    lengths = base.roles.get("num_draft_tokens", "")
    for swap, layout, target_rows, num_uniforms, is_column in itertools.product(
        swaps, layouts, rows, uniforms, (True, False) if "bonus_token_id" in base.roles else (False,)
    ):
        for ids, laws in kind_pairs(function, left_open.kind):
            kinds = parameter_kinds(base, annotated, left_open.kind, ids, laws)
            # A batch may come with one length for all, or with one for each row.
            is_open = layout == "batch" and lengths and lengths not in annotated and not left_open.kind
            for extra in ({}, {lengths: "array per row"}) if is_open else ({},):
                for rng_kind in rng_kinds(function, base, left_open.rng_kind, laws):
                    yield replace(
                        base, roles=_swapped(base.roles) if swap else base.roles, kinds=kinds | extra, layout=layout,
                        target_rows=target_rows, rng_kind=rng_kind, num_uniforms=num_uniforms,
                        bonus_is_column=is_column,
                    )  # fmt: skip


def _layouts(base: Dialect) -> tuple[str, ...]:
    return ("flat",) if "cumulative_num_draft_tokens" in base.roles else ("single", "batch")


def _swapped(roles: Mapping[str, str]) -> dict[str, str]:
    return {**roles, "draft_probs": roles["target_probs"], "target_probs": roles["draft_probs"]}


def _way(dialect: Dialect) -> str:
    kinds = sorted(set(dialect.kinds.values()))
    layout = {"single": "one sequence", "batch": "a batch", "flat": "rows end to end"}[dialect.layout]
    return f"{' and '.join(kinds) or 'call='}, {layout}, {dialect.target_rows} target rows"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 70 else f"{text[:67]}..."


def _no_way(name: str, base: Dialect, errors: list[tuple[str, str]]) -> str:
    shown: dict[str, str] = {}
    for way, error in errors:
        shown.setdefault(error, way)
    lines = "".join(f"\n  as {way}: {error}" for error, way in list(shown.items())[:4])
    return (
        f"{name} could not be called in any of the {len(errors)} ways tried.{lines}\n"
        f"The mapping was {base.describe()}; correct it, or add kind=, dtype=, batched=, returns=, constants= or "
        "arguments=. "
        "For anything else give call=lambda case, source: ..., which makes the call itself."
    )
