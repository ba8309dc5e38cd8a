"""The components of a step, in the order in which they are computed, and when two of them may be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specverify.core.types import Step

# The order in which a step computes things, which is the order in which a change can cause another.
PIPELINE = (
    "prompt token ids",
    "draft token ids",
    "draft probs",
    "target probs",
    "uniforms",
    "decision",
    "final token",
    "kv lengths",
    "positions",
    "text",
)


def value_of(name: str, step: Step) -> Any:
    """What the step recorded of this component; None where it recorded nothing."""
    value = {
        "draft token ids": tuple(step.draft_token_ids),
        "draft probs": step.draft_probs,
        "target probs": step.target_probs,
        "uniforms": step.uniforms,
        "decision": step.num_accepted,
        "final token": final_token(step),
        "kv lengths": (step.target_kv_length_after, step.draft_kv_length_after),
        "positions": (step.target_positions, step.draft_positions),
    }[name]
    return None if isinstance(value, tuple) and value == (None, None) else value


def final_token(step: Step) -> int | None:
    """The token behind the accepted ones; None where it was cut off."""
    return step.token_ids[step.num_accepted] if len(step.token_ids) > step.num_accepted else None


def may_compare(name: str, golden: Step, now: Step) -> bool:
    """Whether a difference of this component says something of its own, given the components before it."""
    if name in ("decision", "final token", "uniforms") and golden.draft_token_ids != now.draft_token_ids:
        return False
    # After another decision the caches hold, and the final token answers, something else.
    return name not in ("final token", "kv lengths") or golden.num_accepted == now.num_accepted


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def num_comparable_rows(golden: Step, now: Step) -> int:
    """Rows of the laws that belong to the same text: up to the first draft token that differs, and its own."""
    return common_length(golden.draft_token_ids, now.draft_token_ids) + 1


def law_distance(golden: Any, now: Any, num_rows: int) -> float:
    """Largest difference of a probability in the first num_rows rows; infinite where the laws do not even fit."""
    a = np.asarray(golden, dtype=np.float64)[:num_rows]
    b = np.asarray(now, dtype=np.float64)[:num_rows]
    rows = min(len(a), len(b))
    if rows == 0:
        return 0.0
    if a.shape[1:] != b.shape[1:]:
        return float("inf")
    distance = float(np.max(np.abs(a[:rows] - b[:rows])))
    return float("inf") if np.isnan(distance) else distance
