"""The row of a batch whose law is wanted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, ...]


@dataclass(frozen=True)
class FocusRow:
    """One row of a batch: its randomness is symbolic, that of the other rows is drawn natively from a fixed seed.

    A random tensor belongs to the batch where its first dimension is a multiple of num_rows.
    """

    row: int
    num_rows: int

    def mask(self, shape: Shape) -> NDArray[np.bool_] | None:
        """Which elements are the row's own; None where the tensor has no batch dimension, so that all are."""
        if not shape or shape[0] == 0 or shape[0] % self.num_rows:
            return None
        each = shape[0] // self.num_rows
        own = np.zeros(shape, dtype=np.bool_)
        own[self.row * each : (self.row + 1) * each] = True
        return own
