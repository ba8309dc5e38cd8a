"""Named random streams from one root seed, so that every draw can be rerun and no two checks share one."""

from __future__ import annotations

import contextlib
import hashlib
import random
import sys
from collections.abc import Iterator
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


@contextlib.contextmanager
def kept_global_randomness() -> Iterator[None]:
    """Restores the state of random, numpy.random and torch at the end. Libraries not yet imported have none."""
    python_state = random.getstate()
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    numpy_state = numpy.random.get_state() if numpy is not None else None
    torch_state = torch.random.get_rng_state() if torch is not None else None
    try:
        yield
    finally:
        random.setstate(python_state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)
        if torch is not None:
            torch.random.set_rng_state(torch_state)
