"""What checking n tokens costs against making one, beside the time that moving the weights takes on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specverify.reference.cached_model import CachedModel
from specverify.reference.model import Model
from specverify.reference.threads import threads

MOST_TOKENS = 16
# A pass of a tiny model takes less than a millisecond: this many together stand well above the clock's grain.
_FEWEST_SECONDS = 2e-3


@dataclass(frozen=True)
class PassCost:
    """A target pass over num_tokens tokens of one text. relative: against one token."""

    num_tokens: int
    seconds: float
    relative: float


@dataclass(frozen=True)
class PassCosts:
    """Pass costs over 1 to 16 tokens behind `context` tokens, and what the machine allows at best.

    weight_bytes: read by every pass. copy_bandwidth, read_bandwidth: bytes per second of this thread, from copying and
    from summing a buffer as large as the weights (a copy counts its bytes twice, read and written).
    floor_seconds: reading the weights once at the better of the two.
    """

    passes: Sequence[PassCost]
    context: int
    weight_bytes: int
    copy_bandwidth: float
    read_bandwidth: float
    floor_seconds: float

    @property
    def share_of_floor(self) -> float:
        """Floor over a pass of one token: 1 where nothing but memory is waited for."""
        return self.floor_seconds / self.passes[0].seconds


@torch.inference_mode()
def pass_costs(model: Model, *, context: int, seconds: float, clock: Callable[[], float]) -> PassCosts:
    """Medians over interleaved turns, on one thread. seconds: how long to go on; every pass has at least 3 turns."""
    with threads(1):
        cached = CachedModel(model, num_rows=1, capacity=context + MOST_TOKENS)
        text = torch.arange(context + MOST_TOKENS, device=model.device)[None] % model.config.vocab_size
        cached.compute(text[:, :context], first_positions=[0], num_new=[context])
        buffer = torch.ones(weight_bytes(model) // 4, dtype=torch.float32, device=model.device)
        other = torch.empty_like(buffer)
        work: dict[str | int, Callable[[], object]] = {
            "copy": lambda: other.copy_(buffer),
            "read": lambda: buffer.sum().item(),
        }
        for num in range(1, MOST_TOKENS + 1):
            work[num] = _one_pass(cached, text[:, context : context + num], context)
        found = _interleaved(work, seconds, clock)
    one = found[1]
    size = weight_bytes(model)
    copying, reading = 2 * size / found["copy"], size / found["read"]
    passes = [PassCost(num, found[num], found[num] / one) for num in range(1, MOST_TOKENS + 1)]
    return PassCosts(passes, context, size, copying, reading, size / max(copying, reading))


def weight_bytes(model: Model) -> int:
    """Bytes of the matrices that every pass reads; of the embedding it reads single rows, which do not count."""
    weights = model.weights
    matrices = [weights.head, *(m for layer in weights.layers for m in vars(layer).values() if isinstance(m, Tensor))]
    return sum(matrix.numel() * matrix.element_size() for matrix in matrices)


def _one_pass(cached: CachedModel, tokens: Tensor, context: int) -> Callable[[], object]:
    num = tokens.shape[1]

    def run() -> Tensor:
        hidden = cached.compute(tokens, first_positions=[context], num_new=[num])
        logits = cached.model.logits(hidden)
        cached.cache.keep(0, context)
        return logits

    return run


def _interleaved(
    work: dict[str | int, Callable[[], object]], seconds: float, clock: Callable[[], float]
) -> dict[str | int, float]:
    """Median seconds of each job. Turn by turn, so that a slow spell of the machine meets all of them alike."""
    times: dict[str | int, list[float]] = {name: [] for name in work}
    repeats = {}
    for name, job in work.items():
        job()
        start = clock()
        job()
        repeats[name] = 1 + int(_FEWEST_SECONDS / max(clock() - start, 1e-6))
    begin = clock()
    while len(times[1]) < 3 or clock() - begin < seconds:
        for name, job in work.items():
            start = clock()
            for _ in range(repeats[name]):
                job()
            times[name].append((clock() - start) / repeats[name])
    return {name: float(np.median(measured)) for name, measured in times.items()}
