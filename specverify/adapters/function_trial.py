"""Finds out by trial calls what names and annotations leave open: array kinds, layout, generator and answer form.

The trial cases are so one-sided that only one outcome is possible (but for one chance in 10^8), whatever lossless
rule the function uses. The first way of calling under which that outcome comes back is the dialect.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specverify.adapters.function_arrays import as_nested
from specverify.adapters.function_dialect import Dialect, ReturnForm
from specverify.adapters.function_returns import fields_of, infer_form, structural_form
from specverify.adapters.function_roles import FORMS, signature_of
from specverify.core.errors import UsageError
from specverify.core.types import VerifyInput, VerifyOutput
from specverify.exact.program import NativeSource, RandomSource

_VOCAB, _FAINT = 11, 1e-9
_DRAFT = (6, 7, 8)
_NUM_TRIALS = 2
_LAW_ROLES = {f"{side}_{form}" for side in ("draft", "target", "bonus") for form in FORMS}
_SAME_KINDS = (("numpy", "numpy"), ("torch", "torch"), ("list", "list"))
_MIXED_KINDS = (
    ("list", "torch"), ("list", "numpy"), ("list", "torch rows"), ("list", "numpy rows"),
    ("list", "torch rows [1, vocab]"),
    ("torch", "torch rows"), ("torch", "torch rows [1, vocab]"), ("numpy", "numpy rows"),
)  # fmt: skip


@dataclass(frozen=True)
class Open:
    """What the user left open: None means that trials decide."""

    kind: str | Mapping[str, str] | None
    layout: str | None
    rng_kind: str | None
    returns: ReturnForm | None
    swappable: bool


def trial_cases(*, has_draft_law: bool, is_tree: bool = False) -> list[tuple[VerifyInput, VerifyOutput]]:
    """Two cases and what must come out: everything accepted and token 9; the second draft rejected for token 10.

    is_tree: of two first tokens, the second is accepted with all behind it, and token 9; the first, and token 10.
    """
    if is_tree:
        return _tree_cases(has_draft_law=has_draft_law)
    everything = _peaked(6, 7, 8, 9)
    second_rejected = _peaked(6, 10, 8, 9)
    draft = _peaked(6, 7, 8) if has_draft_law else None
    return [
        (VerifyInput(_DRAFT, draft, everything), VerifyOutput((6, 7, 8, 9), 3)),
        (VerifyInput(_DRAFT, draft, second_rejected), VerifyOutput((6, 10), 1)),
    ]


def _tree_cases(*, has_draft_law: bool) -> list[tuple[VerifyInput, VerifyOutput]]:
    parents, tokens = (-1, -1, 1, 2), (6, 5, 7, 8)
    draft = _peaked(*tokens) if has_draft_law else None
    return [
        (VerifyInput(tokens, draft, _peaked(5, 10, 7, 8, 9), parents), VerifyOutput((5, 7, 8, 9), 3)),
        (VerifyInput(tokens, draft, _peaked(6, 10, 7, 8, 9), parents), VerifyOutput((6, 10), 1)),
    ]


def certain_case(*, has_draft_law: bool) -> VerifyInput:
    """Laws that leave nothing to chance at all: as logits they hold -inf."""
    target = np.eye(_VOCAB)[[*_DRAFT, 9]]
    return VerifyInput(_DRAFT, target[:-1].copy() if has_draft_law else None, target, (-1, 0, 1))


def _peaked(*tokens: int) -> Any:
    law = np.full((len(tokens), _VOCAB), _FAINT)
    law[np.arange(len(tokens)), tokens] = 1.0 - (_VOCAB - 1) * _FAINT
    return law


def settle(
    function: Callable[..., Any] | None, name: str, call: Callable[[Dialect, VerifyInput, RandomSource], Any],
    base: Dialect, left_open: Open,
) -> Dialect:  # fmt: skip
    """The dialect under which trial calls give what they must.

    Where none does (a broken function, perhaps), the first way of calling that runs at all and whose answer can be
    read. Raises UsageError where there is none, quoting what the function said to the likeliest ways.
    """
    errors: list[tuple[str, str]] = []
    best: tuple[int, Dialect] | None = None
    for dialect in _ways(function, base, left_open):
        answers, error = _try(call, dialect)
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
    if best is None:
        raise UsageError(_no_way(name, base, errors))
    return best[1]


def _try(
    call: Callable[[Dialect, VerifyInput, RandomSource], Any], dialect: Dialect
) -> tuple[list[tuple[Any, VerifyInput, VerifyOutput]], str]:
    """The answers to those trial cases that the function survives; what it said to the first where it survives none."""
    answers = []
    first_error = ""
    has_draft_law = dialect.takes_draft_law or not dialect.roles
    for seed, (case, expected) in enumerate(trial_cases(has_draft_law=has_draft_law, is_tree=dialect.takes_trees)):
        try:
            value = call(dialect, case, NativeSource(seed))
        except UsageError as error:
            first_error = first_error or str(error)
        except Exception as error:
            text = str(error).strip().splitlines()
            first_error = first_error or f"{type(error).__name__}: {text[0] if text else 'no message'}"
        else:
            answers.append((_readable(value), case, expected))
    return answers, "" if answers else first_error


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
    for swap, layout, target_rows, num_uniforms in itertools.product(swaps, layouts, rows, uniforms):
        for ids, laws in _kind_pairs(function, left_open.kind):
            kinds = _kinds(base, annotated, left_open.kind, ids, laws)
            for rng_kind in _rng_kinds(function, base, left_open.rng_kind, laws):
                yield replace(
                    base, roles=_swapped(base.roles) if swap else base.roles, kinds=kinds, layout=layout,
                    target_rows=target_rows, rng_kind=rng_kind, num_uniforms=num_uniforms,
                )  # fmt: skip


def _layouts(base: Dialect) -> tuple[str, ...]:
    return ("flat",) if "cumulative_num_draft_tokens" in base.roles else ("single", "batch")


def _swapped(roles: Mapping[str, str]) -> dict[str, str]:
    return {**roles, "draft_probs": roles["target_probs"], "target_probs": roles["draft_probs"]}


def _kind_pairs(function: Callable[..., Any] | None, kind: str | Mapping[str, str] | None) -> list[tuple[str, str]]:
    if isinstance(kind, str):
        return [(kind.split(" ")[0] if " " not in kind else "list", kind)] if " " in kind else [(kind, kind)]
    pairs = [*_SAME_KINDS, *_MIXED_KINDS]
    seen = _libraries(function)
    if "torch" not in seen and ("numpy" in seen or "random" in seen):
        pairs = [pair for pair in pairs if "torch" not in " ".join(pair)] + [
            pair for pair in pairs if "torch" in " ".join(pair)
        ]
    # A function that names torch gets tensors first; one that names random and nothing else gets lists first.
    if "torch" in seen:
        pairs.sort(key=lambda pair: "torch" not in pair[1])
    elif seen == {"random"}:
        pairs.sort(key=lambda pair: pair != ("list", "list"))
    return pairs


def _libraries(function: Callable[..., Any] | None) -> set[str]:
    """Which of torch, numpy and random the function's own code names."""
    if function is None:
        return set()
    plain = inspect.unwrap(getattr(function, "__func__", function))
    code, scope = getattr(plain, "__code__", None), getattr(plain, "__globals__", {})
    if code is None:
        return set()
    found = set()
    for name in (*code.co_names, *code.co_freevars):
        module = getattr(scope.get(name), "__name__", "") if name in scope else ""
        found |= {library for library in ("torch", "numpy", "random") if module.split(".")[0] == library}
        if name in ("softmax", "multinomial", "gather", "unsqueeze", "squeeze", "item", "clamp", "rand_like"):
            found.add("torch")
    return found


def annotated_kinds(function: Callable[..., Any] | None, base: Dialect) -> dict[str, str]:
    """Array kinds that annotations state, by parameter name; `rng` parameters map to their generator kind."""
    parameters = None if function is None else signature_of(function)
    if parameters is None:
        return {}
    found = {}
    names = {name: role for role, name in base.roles.items()}
    for name, parameter in parameters.items():
        if name in names and parameter.annotation is not parameter.empty:
            kind = _annotated(str(parameter.annotation), names[name])
            if kind:
                found[name] = kind
    return found


def _annotated(text: str, role: str) -> str:
    if role == "rng":
        for mark, kind in (("torch", "torch"), ("Callable", "function"), ("np.", "numpy"), ("numpy", "numpy"),
                           ("Random", "python"), ("Generator", "")):  # fmt: skip
            if mark in text:
                return kind
        return ""
    lowered = text.lower().replace("typing.", "")
    is_sequence = lowered.startswith(("list[", "sequence[", "tuple["))
    if role in ("num_draft_tokens", "max_num_draft_tokens", "num_prefix_tokens", "vocab_size"):
        return "array per row" if "tensor" in lowered or "ndarray" in lowered else ""
    if "tensor" in lowered:
        return "torch rows" if is_sequence else "torch"
    if "ndarray" in lowered or "arraylike" in lowered:
        return "numpy rows" if is_sequence else "numpy"
    return "list" if is_sequence and ("int" in lowered or "float" in lowered) else ""


def _kinds(
    base: Dialect, annotated: Mapping[str, str], given: str | Mapping[str, str] | None, ids: str, laws: str
) -> dict[str, str]:
    kinds = {}
    for role, name in base.roles.items():
        is_float = role in _LAW_ROLES or "uniform" in role or role in ("draft_token_probs", "draft_token_logprobs")
        kind = laws if is_float else ids
        if isinstance(given, str):
            kinds[name] = kind
        elif given is not None and name in given:
            kinds[name] = given[name]
        else:
            kinds[name] = annotated.get(name, kind)
        if "uniform" in role and " " in kinds[name]:
            kinds[name] = kinds[name].split(" ")[0]
    return kinds


def _rng_kinds(function: Callable[..., Any] | None, base: Dialect, given: str | None, laws: str) -> tuple[str, ...]:
    if "rng" not in base.roles:
        return (base.rng_kind,)
    if given is not None:
        return (given,)
    annotated = annotated_kinds(function, base).get(base.roles["rng"], "")
    if annotated:
        return (annotated,)
    if laws.startswith("torch"):
        return ("torch", "numpy", "python")
    return ("numpy", "python", "torch", "function") if laws.startswith("numpy") else ("python", "numpy", "function")


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
        f"The mapping was {base.describe()}; correct it, or add kind=, batched=, returns= or constants=. "
        "For anything else give call=lambda case, source: ..., which makes the call itself."
    )
