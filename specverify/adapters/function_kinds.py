"""Which kinds of arrays and generators a function probably takes, by annotations and by what its code names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from specverify.adapters.function_dialect import Dialect
from specverify.adapters.function_names import FORMS
from specverify.adapters.function_roles import signature_of

_LAW_ROLES = {f"{side}_{form}" for side in ("draft", "target", "bonus") for form in FORMS}
_SAME_KINDS = (("numpy", "numpy"), ("torch", "torch"), ("list", "list"))
_MIXED_KINDS = (
    ("list", "torch"), ("list", "numpy"), ("list", "torch rows"), ("list", "numpy rows"),
    ("list", "torch rows [1, vocab]"),
    ("torch", "torch rows"), ("torch", "torch rows [1, vocab]"), ("numpy", "numpy rows"),
)  # fmt: skip


def kind_pairs(function: Callable[..., Any] | None, kind: str | Mapping[str, str] | None) -> list[tuple[str, str]]:
    if isinstance(kind, str):
        return [(kind.split(" ")[0] if " " not in kind else "list", kind)] if " " in kind else [(kind, kind)]
    pairs = [*_SAME_KINDS, *_MIXED_KINDS]
    seen = _libraries(function)
    if "torch" not in seen and ("numpy" in seen or "random" in seen):
        pairs.sort(key=lambda pair: "torch" in " ".join(pair))
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
        # Methods of tensors that neither arrays nor generators of numpy have.
        if name in ("softmax", "gather", "unsqueeze", "clamp", "rand_like"):
            found.add("torch")
    return found


def annotated_kinds(function: Callable[..., Any] | None, base: Dialect) -> dict[str, str]:
    """Array kinds that annotations state, by parameter name; `rng` parameters map to their generator kind."""
    parameters = None if function is None else signature_of(function)
    if parameters is None:
        return {}
    annotations = {name: one.annotation for name, one in parameters.items() if one.annotation is not one.empty}
    found = {name: _annotated(str(annotations[name]), role) for role, name in base.roles.items() if name in annotations}
    return {name: kind for name, kind in found.items() if kind}


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


def parameter_kinds(
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


def rng_kinds(function: Callable[..., Any] | None, base: Dialect, given: str | None, laws: str) -> tuple[str, ...]:
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
