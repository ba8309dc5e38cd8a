"""Keeps the caller's global random state: a check must not change what a user's program draws next."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator


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
