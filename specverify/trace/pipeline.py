"""The components of a step, in the order in which they are computed, and when two of them may be compared."""

from __future__ import annotations

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
    if name == "draft token ids":
        return tuple(step.draft_token_ids)
    if name == "draft probs":
        return step.draft_probs
    if name == "target probs":
        return step.target_probs
    if name == "uniforms":
        return step.uniforms
    if name == "decision":
        return step.num_accepted
    if name == "final token":
        return final_token(step)
    if name == "kv lengths":
        lengths = (step.target_kv_length_after, step.draft_kv_length_after)
        return None if lengths == (None, None) else lengths
    positions = (step.target_positions, step.draft_positions)
    return None if positions == (None, None) else positions


def final_token(step: Step) -> int | None:
    """The token behind the accepted ones; None where it was cut off."""
    return step.token_ids[step.num_accepted] if len(step.token_ids) > step.num_accepted else None


def may_compare(name: str, golden: Step, now: Step) -> bool:
    """Whether a difference of this component says something of its own, given the components before it."""
    if name in ("decision", "final token", "uniforms") and golden.draft_token_ids != now.draft_token_ids:
        return False
    # After another decision the caches hold, and the final token answers, something else.
    return name not in ("final token", "kv lengths") or golden.num_accepted == now.num_accepted


def num_comparable_rows(golden: Step, now: Step) -> int:
    """Rows of the laws that belong to the same text: up to the first draft token that differs, and its own."""
    same = 0
    for a, b in zip(golden.draft_token_ids, now.draft_token_ids, strict=False):
        if a != b:
            break
        same += 1
    return same + 1


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
