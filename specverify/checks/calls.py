"""Many requests, in calls of a size that the engine takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specverify.checks import evidence
from specverify.core.capabilities import Capability
from specverify.core.types import Request, Trace


def generate_in_calls(
    engine: Any, requests: Sequence[Request], *, speculate: bool, size: int | None = None
) -> tuple[Trace, ...]:
    """Traces of all requests, in their order: calls of `size` requests; unless given, as many as the engine takes.

    That is one where it takes no batches, and all where it does not say how many.
    """
    if size is None:
        is_batched = Capability.BATCH in engine.capabilities
        size = int(getattr(engine, "max_batch_size", len(requests) or 1)) if is_batched else 1
    parts = (requests[first : first + size] for first in range(0, len(requests), size))
    return tuple(trace for part in parts for trace in evidence.generate(engine, part, speculate=speculate))
