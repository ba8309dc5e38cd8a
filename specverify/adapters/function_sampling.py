"""Sampling parameters that a verify function applies to its logits by itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from specverify.adapters.function_dialect import Dialect
from specverify.adapters.function_roles import signature_of
from specverify.core.errors import UsageError

_TEMPERATURES = ("temperature", "temp")
# Filters by name, and the values that switch them off. What a function filters, target, draft or both, no name tells.
_FILTERS: Mapping[str, tuple[Any, ...]] = {"top_k": (None, 0, -1), "top_p": (None, 1), "min_p": (None, 0)}


def own_temperature(
    function: Callable[..., Any] | None, name: str, dialect: Dialect, *, is_greedy: bool
) -> tuple[str, float]:
    """The parameter that holds the temperature of the logits, if there is one, and its value; else ("", 1).

    Raises UsageError where a constant or a default makes the function change its laws in a way that is not known.
    """
    values = _fixed_values(function, dialect)
    for parameter, neutral in _FILTERS.items():
        value = values.get(parameter)
        if isinstance(value, int | float | None) and not isinstance(value, bool) and value not in neutral:
            raise UsageError(
                f"{name} filters by {parameter}={value!r}, and it is not known which of its laws: give "
                f"constants={{{parameter!r}: ...}} a value that switches the filter off, or make the call with call="
            )
    parameter = next((one for one in _TEMPERATURES if one in values), "")
    value = values.get(parameter)
    if not isinstance(value, int | float) or isinstance(value, bool) or is_greedy:
        return "", 1.0
    if value == 0:
        raise UsageError(f"{name} is called with {parameter}=0: say is_greedy=True, or give another temperature")
    has_logits = "target_logits" in dialect.roles and not dialect.returns.decides_only
    if value != 1 and not has_logits:
        raise UsageError(
            f"{name} is called with {parameter}={value!r} and takes no target logits: what it makes of the laws is not "
            f"known; give {parameter}=1, or make the call with call="
        )
    return (parameter, float(value)) if has_logits else ("", 1.0)


def _fixed_values(function: Callable[..., Any] | None, dialect: Dialect) -> dict[str, Any]:
    """Constants, and the defaults of parameters that no role and no argument fills."""
    parameters = {} if function is None else signature_of(function) or {}
    filled = {*dialect.roles.values(), *dialect.arguments}
    defaults = {
        name: one.default
        for name, one in parameters.items()
        if one.default is not inspect.Parameter.empty and name not in filled
    }
    return {**defaults, **dialect.constants}
