"""Where randomness enters: named streams per request, uniforms and tokens drawn from them. Torch draws, nothing else.

A request with a seed has one torch.Generator per stream: its output depends on nothing but its seed, so neither on
other requests nor on how many numbers another purpose consumed. A request without a seed draws from torch's global
generator, where a caller can replace or enumerate the randomness of a whole call.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specverify.core.randomness import Streams

DRAFT, ACCEPT, FINAL = "draft", "accept", "final"  # draft tokens; accept tests; residual, bonus and plain tokens


class RequestStreams:
    """The random streams of one request."""

    def __init__(self, seed: int | None, device: torch.device) -> None:
        self.seed = seed
        self.device = device
        self._generators: dict[str, torch.Generator] = {}

    def generator(self, stream: str) -> torch.Generator | None:
        """The generator of that stream; None stands for torch's global one."""
        if self.seed is None:
            return None
        known = self._generators.get(stream)
        if known is None:
            known = self._generators[stream] = torch.Generator(device=self.device)
            known.manual_seed(self.stream_seed(stream))
        return known

    def stream_seed(self, stream: str) -> int:
        """Seeds of different streams are unrelated, those of equal (request seed, stream) equal."""
        return Streams(self.seed or 0).integer(stream)


def draw_uniforms(
    streams: Sequence[RequestStreams], stream: str, num_uniforms: Sequence[int], *, dtype: torch.dtype
) -> Tensor:
    """Uniforms in [0, 1), [rows, width]; row r has num_uniforms[r] of them, padded with 1."""
    width, device = max(num_uniforms), streams[0].device
    if all(row.seed is None for row in streams):
        return torch.rand((len(streams), width), dtype=dtype, device=device)
    uniforms = torch.ones((len(streams), width), dtype=dtype, device=device)
    for row, owner, wanted in zip(uniforms.unbind(), streams, num_uniforms, strict=True):
        if wanted:
            own = row if wanted == width else row.narrow(0, 0, wanted)
            own.uniform_(generator=owner.generator(stream))  # the numbers of torch.rand
    return uniforms


def draw_tokens(law: Tensor, streams: Sequence[RequestStreams], stream: str, is_wanted: Sequence[bool]) -> Tensor:
    """One token per row from laws [rows, vocab]; 0 where none is wanted."""
    if all(row.seed is None for row in streams):
        return torch.multinomial(law, 1)[:, 0]
    # The race that torch.multinomial runs for one token, number for number, but for all rows at once: the token whose
    # exponential, over its probability, is smallest.
    times = torch.empty_like(law)
    for row, owner, wanted in zip(times.unbind(), streams, is_wanted, strict=True):
        if wanted:
            row.exponential_(generator=owner.generator(stream))
    token_ids = torch.div(law, times, out=times).argmax(dim=-1)
    return token_ids if all(is_wanted) else token_ids.mul_(torch.tensor(is_wanted, device=law.device))
