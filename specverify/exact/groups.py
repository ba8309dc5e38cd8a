"""Decides a function of one draw by the values of the function: the path forks on these, not on every outcome."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from specverify.exact.leaves import Leaf


def decided_by_groups(value_given: Callable[[dict[int, Any]], Any], leaf: Leaf, *, nothing: Any) -> Any:
    """The value of the function on this path; `nothing` where its values do not group the outcomes.

    value_given: the function's value where each leaf (by id) takes the given one.
    """
    outcomes, weights = leaf.law()
    listed = outcomes.tolist() if isinstance(outcomes, np.ndarray) else outcomes
    shares: dict[Any, list[float]] = {}
    values = []
    try:
        for outcome, weight in zip(listed, weights, strict=True):
            value = value_given({id(leaf): outcome}) if weight else None
            if weight:
                shares.setdefault(value, []).append(weight)
            values.append(value)
    except Exception:  # a value for which the program's own arithmetic fails, or one that has no hash
        return nothing
    found = list(shares)
    if len(found) == 1:
        return found[0]
    if len(found) == sum(map(len, shares.values())):
        return nothing
    sums = [math.fsum(parts) for parts in shares.values()]
    total = math.fsum(sums)
    chosen = found[leaf.run.choose([share / total for share in sums], leaf.operation)]
    leaf.restrict(np.array([bool(w) and value == chosen for value, w in zip(values, weights, strict=True)]))
    return chosen
