"""Averages of e-values."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def average_log_e(log_e: ArrayLike, *, axis: int | None = None) -> NDArray[np.float64]:
    """Log of the average of e-values given as logs: an e-value under any dependence between them.

    Source: Vovk and Wang, arXiv 1912.06116, section 3.
    """
    values = np.asarray(log_e, dtype=np.float64)
    highest = values.max(axis=axis, keepdims=True)
    # An infinite e-value is an impossible outcome and makes every average infinite; -inf everywhere is evidence 0.
    centre = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore", over="ignore"):
        result = np.log(np.exp(values - centre).mean(axis=axis, keepdims=True)) + centre
    return np.asarray(result.reshape(()) if axis is None else np.squeeze(result, axis=axis))
