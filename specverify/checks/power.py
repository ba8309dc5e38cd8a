"""How much a sample must be able to find before finding nothing is a pass: one limit, for every statistical check."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from specverify.checks import evidence
from specverify.checks.registry import CheckContext, Inconclusive
from specverify.core.capabilities import Capability

# A sample that may miss half of a law gone wrong decides nothing. Gross faults are smaller: greedy tokens in place of
# sampled ones, or drafts that are all accepted, move a token's law by .3 to .7 on a probe pair.
GROSS_TV = 0.5
# Samples that no run would draw: beyond them more sampling is no advice.
_MOST = 1 << 24


def gross_tv(num_tokens: int = 1) -> float:
    """The limit for a joint law of so many tokens: the distance of two laws that part by GROSS_TV at every token."""
    return 1.0 - (1.0 - GROSS_TV) ** num_tokens


def require(
    context: CheckContext,
    num_samples: int,
    detectable: Callable[[int], float],
    *,
    things: str,
    how: str = "",
    unlocks: Mapping[Capability, str] | None = None,
    subject: Any = None,
    num_tokens: int = 1,
) -> float:
    """The total variation that this sample would have caught. Raises Inconclusive where it is above the limit.

    detectable: total variation that a number of samples shows. things: what was sampled, in the plural.
    how: how the user gets more of them; the effort that it takes where nothing is said.
    unlocks: capabilities that would give more, or tell more, and what each gives; said where the subject lacks them.
    num_tokens: tokens whose joint law is judged.
    """
    tv, limit = detectable(num_samples), gross_tv(num_tokens)
    if tv <= limit:
        return tv
    seen = f"{num_samples:,} {things} show nothing wrong, which decides nothing"
    missed = "even a gross fault could hide" if tv >= 1.0 else f"a total variation of {tv:.2g} could hide"
    needed = _needed(detectable, num_samples, limit)
    advice = [f"declare {one.name} ({gain})" for one, gain in (unlocks or {}).items() if _lacks(subject, one)]
    if needed is not None:
        effort = math.ceil(10.0 * context.effort * needed / max(1, num_samples)) / 10.0
        advice.insert(0, f"about {needed:,} of them decide it: {how or f'--effort {effort:g}'}")
    raise Inconclusive("; ".join([f"{seen}: {missed}, and a pass must exclude {limit:g}", ", or ".join(advice) or how]))


def more_drafts(subject: Any) -> str:
    """How the standard drafting runs get longer; empty where the effort does it."""
    if evidence.is_recorded(subject):
        return "record more of them"
    if getattr(subject, "is_slow", False):
        return "give the adapter more `prompts`, or a larger `max_new_tokens`"
    return ""


def _lacks(subject: Any, capability: Capability) -> bool:
    return capability not in getattr(subject, "capabilities", ())


def _needed(detectable: Callable[[int], float], start: int, limit: float) -> int | None:
    """Samples that would show the limit, to two digits; None where no bearable number does."""
    low, high = max(1, start), max(2, 2 * start)
    while detectable(high) > limit:
        low, high = high, 2 * high
        if high > _MOST:
            return None
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        low, high = (low, middle) if detectable(middle) <= limit else (middle, high)
    unit: int = 10 ** max(0, len(str(high)) - 2)
    return math.ceil(high / unit) * unit
