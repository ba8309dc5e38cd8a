"""The parameters of a verify function by meaning: from what the user said, or from their names. Imports no numpy."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from specverify.adapters.function_names import AFTER_LOG, EXACT, FORMS, NEUTRAL_VALUES, ROLES, WORDS
from specverify.core.errors import UsageError


@dataclass(frozen=True)
class Parameters:
    """The parameters of a function by what they mean.

    roles: role to parameter name. unplaced: required parameters whose meaning is not known.
    swappable: the names p and q were used, which sources use both ways round.
    """

    roles: Mapping[str, str]
    unplaced: tuple[str, ...] = ()
    neutral: tuple[str, ...] = ()
    swappable: bool = False


def infer_roles(parameters: Mapping[str, inspect.Parameter], given: Mapping[str, str], taken: set[str]) -> Parameters:
    """Places the parameters by their names; `given` (role to name) was said by the user, `taken` is filled otherwise.

    Optional parameters with an unknown name keep their default.
    """
    roles = dict(given)
    used = set(given.values()) | taken
    unplaced: list[str] = []
    neutral: list[str] = []
    half_known: list[tuple[str, str]] = []
    for name, parameter in parameters.items():
        if name in used or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        role, form = _role_of(name)
        is_optional = parameter.default is not parameter.empty
        if role == "num_draft_tokens" and is_optional and parameter.default is None:
            continue
        if role and role not in roles and not _is_settled(role, roles):
            roles[role] = name
        elif form and not is_optional:
            half_known.append((form, name))
        elif is_optional:
            continue
        elif name in NEUTRAL_VALUES:
            neutral.append(name)
        else:
            unplaced.append(name)
    _place_inputs(roles)
    for form, name in half_known:
        missing = [side for side in ("target", "draft") if not _law_role(side, roles)]
        if len(half_known) == 1 and missing:
            roles[f"{missing[0]}_{form}"] = name
        else:
            unplaced.append(name)
    letters = {roles.get(role, "").lower().split("_")[0] for role in ("draft_probs", "target_probs")}
    swappable = letters == {"p", "q"} and not {"draft_probs", "target_probs"} & set(given)
    return Parameters(roles, tuple(unplaced), tuple(neutral), swappable)


def _law_role(side: str, roles: Mapping[str, str]) -> str:
    """The role that carries the laws of that side, or an empty string."""
    return next((f"{side}_{form}" for form in FORMS if f"{side}_{form}" in roles), "")


def _is_settled(role: str, roles: Mapping[str, str]) -> bool:
    """Whether another role already says the same thing (a law as logits and again as probabilities)."""
    side = role.split("_")[0]
    return role in {f"{side}_{form}" for form in FORMS} and bool(_law_role(side, roles))


def _place_inputs(roles: dict[str, str]) -> None:
    """`input_ids` ends with the draft tokens where nothing else holds them, and is the prefix otherwise."""
    name = roles.pop("input", None)
    if name is None:
        return
    if "draft_token_ids" not in roles and "sequence_token_ids" not in roles:
        roles["sequence_token_ids"] = name
    elif "prefix_token_ids" not in roles:
        roles["prefix_token_ids"] = name


def _role_of(name: str) -> tuple[str, str]:
    """(role, form) that the name gives away; a form without a role where the side is not named."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_")
    for role, names in EXACT.items():
        if plain in names or plain == role:
            return role, ""
    if plain in ROLES:
        return plain, ""
    words = plain.split("_")
    if "log" in words:
        words = ["logprob" if word in AFTER_LOG else word for word in words]
    found = set(words)
    if "input" in found or "inputs" in found:
        return "input", ""
    side = next((side for side in ("bonus", "draft", "target") if found & WORDS[side]), "")
    if plain in ("logp", "logq", "log_p", "log_q", "lp", "lq"):
        side = "target" if plain.endswith("p") else "draft"
        return f"{side}_logprobs", ""
    form = next((form for form in ("logprobs", "logits", "probs") if found & WORDS[form]), "")
    if side and form:
        return f"{side}_{form}", ""
    if form:
        return "", form
    if found & WORDS["ids"]:
        return {"draft": "draft_token_ids", "target": "target_token_ids", "bonus": "bonus_token_id"}.get(side, ""), ""
    return "", ""


def signature_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    """The parameters of a function, or None where Python cannot tell (some compiled functions)."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None


def require_known_names(
    function_name: str, names: Mapping[str, str], parameters: Mapping[str, inspect.Parameter]
) -> None:
    """Raises UsageError for a role that does not exist or a parameter that the function does not have."""
    import difflib

    has_any = takes_any_keyword(parameters)
    for role, name in names.items():
        if role not in ROLES:
            near = difflib.get_close_matches(role, ROLES, n=2, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise UsageError(f"verified(...) has no argument {role!r}; {hint}It takes: {', '.join(ROLES)}")
        if not isinstance(name, str):
            raise UsageError(
                f"verified({role}={name!r}): give the name of the parameter of {function_name} as a string, "
                f"one of {', '.join(parameters)}"
            )
        if name not in parameters and not has_any:
            raise UsageError(
                f"{function_name} has no parameter {name!r} (given for {role}); it has {', '.join(parameters)}"
            )
    doubled = sorted({name for name in names.values() if list(names.values()).count(name) > 1})
    if doubled:
        raise UsageError(f"parameter {doubled[0]!r} of {function_name} was given for two meanings; give each its own")


def refusal(function_name: str, found: Parameters, missing: list[str]) -> str:
    """What could be placed, what could not, and the line to write."""
    placed = "".join(f"\n  {name:20} {role} ({ROLES[role]})" for role, name in found.roles.items())
    unplaced = "".join(f"\n  {name:20} ?" for name in found.unplaced)
    reasons = [f"it is not clear which one holds {what}" for what in missing]
    if found.unplaced:
        reasons.append(f"it is not clear what {', '.join(found.unplaced)} should be")
    example = ", ".join(f'{role}="{name}"' for role, name in found.roles.items())
    needed = [role for role in ("draft_token_ids", "draft_probs", "target_probs") if _wanted(role, found)]
    wanted = ", ".join(f'{role}="..."' for role in needed)
    constants = ", ".join(f'"{name}": ...' for name in found.unplaced)
    line = ", ".join(part for part in (example, wanted, f"constants={{{constants}}}" if constants else "") if part)
    return (
        f"cannot tell the parameters of {function_name} apart: {'; '.join(reasons)}.{placed}{unplaced}\n"
        f"Write, with the names filled in:  verified({line})\n"
        f"Laws may also be given as draft_logits=, draft_logprobs=, target_logits=, target_logprobs=. Randomness "
        "is named by rng=, seed= or uniforms=, never as a constant; an argument that depends on the case is made by "
        'arguments={"name": lambda case, source: ...}.'
    )


def _wanted(role: str, found: Parameters) -> bool:
    if role == "draft_token_ids":
        return role not in found.roles and "sequence_token_ids" not in found.roles
    return bool(found.unplaced or role == "target_probs") and not _law_role(role.split("_")[0], found.roles)


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
    is_open = all(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters.values())
    if parameters and is_open and not (given or taken):
        raise UsageError(
            f"{name} takes {', '.join(map(str, parameters.values()))} only, which names nothing: wrap what it passes "
            "them on to (of a torch module, its forward), or give call=lambda case, source: ..., which makes the call"
        )
    require_known_names(name, given, parameters)
    strangers = [one for one in taken if one not in parameters and not takes_any_keyword(parameters)]
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


def takes_any_keyword(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


def name_of(function: Any) -> str:
    module = getattr(function, "__module__", "") or ""
    name = getattr(function, "__qualname__", "") or type(function).__name__
    return f"{module}:{name}" if module and module != "__main__" else name
