"""Where randomness enters: named streams per request, uniforms and tokens drawn from them.

A request with a seed has one generator per stream: its output depends on nothing but its seed, so neither on other
requests, nor on the device, nor on how many numbers another purpose consumed. A request without a seed draws from
torch's global generator, where a caller can replace or enumerate the randomness of a whole call.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from specverify.core.randomness import Streams

DRAFT, ACCEPT, FINAL = "draft", "accept", "final"  # draft tokens; accept tests; residual, bonus and plain tokens

# A uniform of 53 bits times a total times this is below the total, rounded or not.
_BELOW_ONE = 1.0 - 2.0**-52


class RequestStreams:
    """The random streams of one request."""

    def __init__(self, seed: int | None, device: torch.device) -> None:
        self.seed = seed
        self.device = device
        self._generators: dict[str, random.Random] = {}

    def uniforms(self, stream: str, count: int) -> list[float]:
        """The next uniforms in [0, 1) of that stream; without a seed, of torch's global generator."""
        if self.seed is None:
            numbers: list[float] = torch.rand(count, dtype=torch.float64, device=self.device).tolist()
            return numbers
        draw = self.generator(stream).random
        return [draw()] if count == 1 else [draw() for _ in range(count)]

    def generator(self, stream: str) -> random.Random:
        """The generator of that stream, for a request with a seed."""
        known = self._generators.get(stream)
        if known is None:
            known = self._generators[stream] = random.Random(self.stream_seed(stream))
        return known

    def stream_seed(self, stream: str) -> int:
        """Seeds of different streams are unrelated, those of equal (request seed, stream) equal."""
        return Streams(self.seed or 0).integer(stream)


def draw_uniforms(streams: Sequence[RequestStreams], stream: str, num_uniforms: Sequence[int]) -> Tensor:
    """Uniforms in [0, 1), [rows, width], float64; row r has num_uniforms[r] of them, padded with 1."""
    width, device = max(num_uniforms), streams[0].device
    if all(row.seed is None for row in streams):
        return torch.rand((len(streams), width), dtype=torch.float64, device=device)
    rows = [
        [*owner.uniforms(stream, wanted), *[1.0] * (width - wanted)]
        for owner, wanted in zip(streams, num_uniforms, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.float64, device=device)


def draw_tokens(law: Tensor, streams: Sequence[RequestStreams], stream: str, is_wanted: Sequence[bool]) -> Tensor:
    """One token per row from laws [rows, vocab]; 0 where none is wanted."""
    if all(row.seed is None for row in streams):
        return torch.multinomial(law, 1)[:, 0]
    uniforms = [
        owner.uniforms(stream, 1)[0] if wanted else 0.0 for owner, wanted in zip(streams, is_wanted, strict=True)
    ]
    # The first token whose cumulative probability lies above the uniform: never one of probability 0.
    cumulative = law.cumsum(dim=-1, dtype=torch.float64)
    point = torch.tensor(uniforms, dtype=torch.float64, device=law.device) * (cumulative[:, -1] * _BELOW_ONE)
    token_ids = torch.searchsorted(cumulative, point[:, None], right=True)[:, 0]
    # A law of zeros, or one with NaN, has no such token.
    token_ids.clamp_(max=law.shape[-1] - 1)
    return token_ids if all(is_wanted) else token_ids.mul_(torch.tensor(is_wanted, device=law.device))
