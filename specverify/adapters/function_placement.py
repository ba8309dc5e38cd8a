"""The parameters of a function by meaning: from what the user said and from their names, or a refusal."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from specverify.adapters.function_roles import (
    FORMS,
    Parameters,
    infer_roles,
    refusal,
    require_known_names,
    signature_of,
)
from specverify.core.errors import UsageError


def place_parameters(
    function: Callable[..., Any] | None, name: str, given: Mapping[str, str], taken: set[str], *, needs_target: bool
) -> Parameters:
    """The parameters by meaning, from what the user said and the names. Raises UsageError where that is not enough."""
    if function is None or not callable(function):
        raise UsageError(f"verified(...) wants a function, not {function!r}")
    parameters = signature_of(function)
    if parameters is None:
        raise UsageError(
            f"Python cannot tell the parameters of {name}; give call=lambda case, source: ..., which makes the call"
        )
    require_known_names(name, given, parameters)
    strangers = [one for one in taken if one not in parameters and not _takes_any_keyword(parameters)]
    if strangers:
        raise UsageError(f"{name} has no parameter {strangers[0]!r} (in constants= or arguments=); it has "
                         f"{', '.join(parameters)}")  # fmt: skip
    found = infer_roles(parameters, given, taken)
    if "self" in found.unplaced:
        raise UsageError(
            f"{name} is a method without its object; wrap the bound one, verified(...)(object.{name.split('.')[-1]}), "
            "or say .specverify.check(instance=object)"
        )
    missing = []
    if not {"draft_token_ids", "sequence_token_ids"} & set(found.roles) and not taken:
        missing.append("the draft token ids")
    has_target = any(f"target_{form}" in found.roles for form in FORMS) or "target_token_ids" in found.roles
    if needs_target and not has_target and not taken:
        missing.append("the target laws")
    if missing or found.unplaced:
        raise UsageError(refusal(name, found, missing))
    return found


def _takes_any_keyword(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


def positional_only(function: Callable[..., Any]) -> list[str]:
    parameters = signature_of(function) or {}
    return [name for name, parameter in parameters.items() if parameter.kind is parameter.POSITIONAL_ONLY]


def name_of(function: Any) -> str:
    module = getattr(function, "__module__", "") or ""
    name = getattr(function, "__qualname__", "") or type(function).__name__
    return f"{module}:{name}" if module and module != "__main__" else name
