"""Combining e-values: averages inside a check, Bonferroni across checks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specverify.core.errors import UsageError
from specverify.stats.budget import alarm_threshold


def average_log_e(
    log_e: ArrayLike, *, weights: ArrayLike | None = None, axis: int | None = None
) -> NDArray[np.float64]:
    """Log of the average of e-values given as logs: an e-value under any dependence between them.

    weights: non-negative, normalised here. Source: Vovk and Wang, arXiv 1912.06116, section 3.
    """
    values = np.asarray(log_e, dtype=np.float64)
    shares = np.ones_like(values) if weights is None else np.broadcast_to(np.asarray(weights, float), values.shape)
    highest = values.max(axis=axis, keepdims=True)
    # An infinite e-value is an impossible outcome and makes every average infinite; -inf everywhere is evidence 0.
    centre = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        mass = (np.exp(values - centre) * shares).sum(axis=axis, keepdims=True) / shares.sum(axis=axis, keepdims=True)
        result = np.log(mass) + centre
    return np.asarray(result.reshape(()) if axis is None else np.squeeze(result, axis=axis))


def e_bonferroni(log_e_by_check: Mapping[str, float], alpha: float) -> tuple[str, ...]:
    """The checks that fail when all together may raise a false alarm with probability alpha.

    A check fails when its e-value reaches the number of checks over alpha.
    """
    if not log_e_by_check:
        raise UsageError("no e-values given; name at least one check")
    threshold = alarm_threshold(alpha / len(log_e_by_check))
    return tuple(name for name, log_e in log_e_by_check.items() if log_e >= threshold)
