"""Many requests shared out among threads: one engine each, on the same weights.

Threads of one product wait for each other a thousand times a second, and most of a step is no product. Engines that
share nothing but weights wait for nobody, and while one keeps its books the others compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

from specverify.core.types import Request, Trace
from specverify.reference.engine import ReferenceEngine

# Fewer rows than this, and a thread of its own is not worth it.
LEAST_ROWS = 128


def num_shares(requests: Sequence[Request], device: torch.device) -> int:
    """Into how many parts the requests may be taken apart.

    Without a seed a request draws from the one global generator, which threads would take turns at by chance.
    """
    if device.type != "cpu" or any(request.seed is None for request in requests):
        return 1
    return max(1, min(torch.get_num_threads(), len(requests) // LEAST_ROWS))


def generate_in_shares(
    make_engine: Callable[[], ReferenceEngine], requests: Sequence[Request], num_shares: int, *, speculate: bool
) -> list[Trace]:
    """As ReferenceEngine.generate, with so many engines; each gets every num_shares-th request."""
    shares = [requests[first::num_shares] for first in range(num_shares)]
    engines = [make_engine() for _ in shares]
    done = _workers(num_shares).map(
        lambda engine, share: engine.generate(share, speculate=speculate), engines, shares
    )  # fmt: skip
    traces: list[Trace | None] = [None] * len(requests)
    for first, part in enumerate(done):
        traces[first::num_shares] = part
    return [trace for trace in traces if trace is not None]


@cache
def _workers(num_threads: int) -> ThreadPoolExecutor:
    """Threads whose products take one thread each."""
    return ThreadPoolExecutor(num_threads, "engine", initializer=torch.set_num_threads, initargs=(1,))
