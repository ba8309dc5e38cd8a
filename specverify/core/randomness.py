"""Named random streams from one root seed, so that every draw can be rerun and no two checks share one."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


class Streams:
    """Independent generators by name.

    The same (root seed, names) always gives the same stream, whatever else was drawn before: a failing check
    can be rerun alone.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def integer(self, *names: str | int) -> int:
        """A 63-bit seed for the stream of that name, to hand to a torch or engine seed."""
        text = "\x1f".join(str(name) for name in names)
        digest = hashlib.sha256(f"{self.seed}\x1f{text}".encode()).digest()
        return int.from_bytes(digest[:8], "little") >> 1

    def generator(self, *names: str | int) -> np.random.Generator:
        """A numpy generator for the stream of that name."""
        import numpy

        return numpy.random.Generator(numpy.random.PCG64(self.integer(*names)))
