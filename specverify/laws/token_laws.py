"""What a broken verifier emits in one place, given the two laws there: for thousands of places at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from specverify.laws.residual import normalised

Rows = NDArray[np.float64]
TokenLaw = Callable[[Rows, Rows], Rows]
"""Target and draft rows, [places, vocab], to the law of the token emitted in each place."""


def replacing_rejected(replacement: TokenLaw) -> TokenLaw:
    """The right accept test, and this law (any non-negative mass) for the token that replaces a rejected one."""

    def law(target: Rows, draft: Rows) -> Rows:
        accepted = np.minimum(draft, target)
        rejected = 1.0 - accepted.sum(axis=-1, keepdims=True)
        emitted: Rows = accepted + rejected * normalised(replacement(target, draft), otherwise=target)
        return emitted

    return law


def accepting(accept: TokenLaw) -> TokenLaw:
    """The right residual, and these probabilities of accepting each token."""

    def law(target: Rows, draft: Rows) -> Rows:
        accepted = draft * accept(target, draft)
        rejected = 1.0 - accepted.sum(axis=-1, keepdims=True)
        emitted: Rows = accepted + rejected * normalised(np.maximum(target - draft, 0.0), otherwise=target)
        return emitted

    return law


def _best(rows: Rows) -> Rows:
    result: Rows = (np.arange(rows.shape[-1]) == rows.argmax(axis=-1)[..., None]).astype(np.float64)
    return result


def _any_other(target: Rows, draft: Rows) -> Rows:
    """Replaced by any token but the drafted one, by the target's law: summed over what was drafted and rejected."""
    rejected = np.maximum(draft - target, 0.0)
    # Only one token can leave no other: then there was nothing to reject.
    share = rejected / np.maximum(1.0 - target, 1e-300)
    result: Rows = np.maximum(target * (share.sum(axis=-1, keepdims=True) - share), 0.0)
    return result


def _inverted_ratio(target: Rows, draft: Rows) -> Rows:
    ratio: Rows = np.minimum(1.0, draft / np.maximum(target, 1e-300))
    return ratio


# By name of the mistake in laws.mistakes: those whose token follows from the two laws in its own place.
TOKEN_LAWS: Mapping[str, TokenLaw] = {
    "resamples-from-target": replacing_rejected(lambda target, draft: target),
    "resamples-from-draft": replacing_rejected(lambda target, draft: draft),
    "rejected-token-excluded": replacing_rejected(_any_other),
    "residual-not-clipped": replacing_rejected(lambda target, draft: np.abs(target - draft)),
    "residual-inverted": replacing_rejected(lambda target, draft: np.maximum(draft - target, 0.0)),
    "residual-argmax": replacing_rejected(lambda target, draft: _best(np.maximum(target - draft, 0.0))),
    "ratio-inverted": accepting(_inverted_ratio),
    "draft-not-divided-by": accepting(lambda target, draft: target),
    "always-accepts": accepting(lambda target, draft: np.ones_like(draft)),
    "greedy-target": lambda target, draft: _best(target),
}
