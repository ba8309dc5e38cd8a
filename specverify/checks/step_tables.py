"""Laws written down by hand: small tables of conditional rows, and the cases made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from specverify.checks.step_subject import Scenario
from specverify.laws.tree import Conditional

Rows: TypeAlias = Mapping[tuple[int, ...], tuple[Sequence[float], Sequence[float]]]
"""Last token, if any -> draft row and target row."""

# Readable cases come first: where one of them fails, it is the one that is shown.
TWO: Rows = {
    (): ((0.7, 0.3), (0.4, 0.6)),
    (0,): ((0.5, 0.5), (0.9, 0.1)),
    (1,): ((0.2, 0.8), (0.3, 0.7)),
}
THREE: Rows = {
    (): ((0.2, 0.5, 0.3), (0.5, 0.1, 0.4)),
    (0,): ((0.3, 0.3, 0.4), (0.1, 0.6, 0.3)),
    (1,): ((0.6, 0.2, 0.2), (0.2, 0.2, 0.6)),
    (2,): ((0.1, 0.8, 0.1), (0.7, 0.2, 0.1)),
}
FIVE: Rows = {
    (): ((0.1, 0.2, 0.4, 0.2, 0.1), (0.4, 0.3, 0.15, 0.1, 0.05)),
    (0,): ((0.2, 0.2, 0.2, 0.2, 0.2), (0.1, 0.1, 0.6, 0.1, 0.1)),
    (1,): ((0.3, 0.1, 0.1, 0.2, 0.3), (0.1, 0.2, 0.1, 0.5, 0.1)),
    (2,): ((0.1, 0.1, 0.1, 0.1, 0.6), (0.5, 0.2, 0.1, 0.1, 0.1)),
    (3,): ((0.2, 0.3, 0.3, 0.1, 0.1), (0.1, 0.1, 0.2, 0.3, 0.3)),
    (4,): ((0.4, 0.2, 0.2, 0.1, 0.1), (0.2, 0.2, 0.1, 0.1, 0.4)),
}
# The likeliest draft token is accepted as often as not; the residual is as likely to be token 0 as token 2.
FOUR: Rows = {
    (): ((0.1, 0.6, 0.1, 0.2), (0.3, 0.3, 0.3, 0.1)),
    (0,): ((0.25, 0.25, 0.25, 0.25), (0.1, 0.4, 0.3, 0.2)),
    (1,): ((0.3, 0.1, 0.2, 0.4), (0.4, 0.1, 0.1, 0.4)),
    (2,): ((0.1, 0.2, 0.3, 0.4), (0.2, 0.5, 0.1, 0.2)),
    (3,): ((0.5, 0.2, 0.2, 0.1), (0.1, 0.3, 0.4, 0.2)),
}
# Impossible tokens at both ends of the vocabulary, in drafts that are proposed all the same.
ENDS: Rows = {
    (): ((0.4, 0.3, 0.1, 0.2), (0.0, 0.6, 0.4, 0.0)),
    (0,): ((0.25, 0.25, 0.25, 0.25), (0.0, 0.5, 0.5, 0.0)),
    (1,): ((0.1, 0.2, 0.3, 0.4), (0.0, 0.7, 0.3, 0.0)),
    (2,): ((0.5, 0.0, 0.0, 0.5), (0.0, 0.1, 0.9, 0.0)),
    (3,): ((0.25, 0.25, 0.25, 0.25), (0.0, 0.3, 0.7, 0.0)),
}
DYADIC = "dyadic laws"
# Every ratio, residual and sum in here is exact in half precision: a function that is off here is wrong, not rounded.
DYADIC_LAWS: Rows = {
    (): ((0.5, 0.25, 0.25, 0.0), (0.25, 0.25, 0.0, 0.5)),
    (0,): ((0.25, 0.25, 0.25, 0.25), (0.125, 0.375, 0.125, 0.375)),
    (1,): ((0.0, 0.5, 0.5, 0.0), (0.5, 0.25, 0.25, 0.0)),
    (2,): ((0.25, 0.5, 0.25, 0.0), (0.0, 0.25, 0.25, 0.5)),
    (3,): ((0.5, 0.0, 0.0, 0.5), (0.25, 0.5, 0.0, 0.25)),
}


def table(rows: Rows, which: int, *, is_rotated: bool = True) -> Conditional:
    """A law of the last token only, from a table; deeper prefixes rotate the rows, so that none is met twice."""

    def law(prefix: tuple[int, ...]) -> NDArray[np.float64]:
        row = np.array(rows[prefix[-1:]][which], dtype=np.float64)
        return np.roll(row, len(prefix) - 1) if is_rotated and len(prefix) > 1 else row

    return law


def from_table(name: str, rows: Rows, num_draft_tokens: int) -> Scenario:
    return Scenario(name, len(rows[()][0]), num_draft_tokens, table(rows, 1), table(rows, 0))
