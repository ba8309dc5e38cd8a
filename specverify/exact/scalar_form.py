"""What one symbolic random number holds: a + b times a core, which is a monotone function of one uniform variable."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import array

from specverify.exact.comparisons import UNIFORM, Core
from specverify.exact.opaque import Opaque
from specverify.exact.symbols import Form, Symbols


class ScalarForm(Opaque):
    """f(U) for one uniform variable U, without what can be done with it.

    core: (kind, mirror, c, parent), what a and b shift and scale; UNIFORM itself where it is U. There is no __init__:
    to call the class and set the slots takes half of the time. See new_symbol.
    """

    __slots__ = ("a", "b", "core", "variable")
    variable: int
    a: float
    b: float
    core: Core

    @property
    def kind(self) -> int:
        return self.core[0]

    @property
    def mirror(self) -> bool:
        return self.core[1]

    @property
    def c(self) -> float:
        return self.core[2]

    @property
    def is_affine(self) -> bool:
        """Whether it is a + b U."""
        return self.core is UNIFORM

    def block(self) -> Symbols:
        """The same symbol as a block of shape ()."""
        kind, mirror, c, parent = self.core
        return Symbols(
            self.run,
            array(self.variable, dtype=np.int64),
            array(kind, dtype=np.uint8),
            array(mirror),
            array(self.a),
            array(self.b),
            array(c),
            array(parent, dtype=np.int64),
            form=[Form(kind, mirror, c, self.a == 0.0 and self.b > 0.0)],
        )

    def _with(self, a: float, b: float) -> Any:
        symbol = type(self)()
        symbol.run = self.run
        symbol.variable = self.variable
        symbol.a = a
        symbol.b = b
        symbol.core = self.core
        return symbol
