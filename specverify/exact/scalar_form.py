"""What one symbolic random number holds: a + b times a core, which is a monotone function of one uniform variable."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import array

from specverify.exact.comparisons import UNIFORM
from specverify.exact.opaque import Opaque
from specverify.exact.run import Run
from specverify.exact.symbols import POWER_U, Form, Symbols

_new = object.__new__


class ScalarForm(Opaque):
    """f(U) for one uniform variable U, without what can be done with it.

    core: (kind, mirror, c, parent), what a and b shift and scale; UNIFORM itself where it is U.
    """

    __slots__ = ("a", "b", "core", "variable")

    def __init__(
        self, run: Run, variable: int, kind: int = POWER_U, *, mirror: bool = False, a: float = 0.0, b: float = 1.0,
        c: float = 1.0, parent: int = 0,
    ) -> None:  # fmt: skip
        self.run = run
        self.variable = variable
        self.a = a
        self.b = b
        core = (kind, mirror, c, parent)
        self.core = UNIFORM if core == UNIFORM else core

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
        symbol = _new(type(self))
        symbol.run = self.run
        symbol.variable = self.variable
        symbol.a = a
        symbol.b = b
        symbol.core = self.core
        return symbol
