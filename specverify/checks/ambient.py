"""The global random generators of this process, put into a known state for as long as an engine runs."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from specverify.checks.registry import CheckContext
from specverify.core.capabilities import Capability
from specverify.core.randomness import kept_global_randomness


@contextmanager
def repeatable(subject: Any, context: CheckContext, *names: str | int) -> Iterator[None]:
    """Seeds torch, numpy and random from the named stream, and puts their states back afterwards.

    So a run with the same root seed sees the same samples. Does nothing for engines outside this process. Never to be
    used around calls that must differ from each other.
    """
    if Capability.IN_PROCESS_RANDOMNESS not in subject.capabilities:
        yield
        return
    seed = context.streams.integer("ambient", *names) % 2**31
    with kept_global_randomness():
        seed_globals(seed)
        yield


def seed_globals(seed: int) -> None:
    """Seeds the global generators of random, numpy and torch, for whoever keeps their states."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)
