"""The requests being decoded together. Text lives on the host; row r of every tensor belongs to running[r]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specverify.core.types import Request, Step
from specverify.reference.draws import FINAL, RequestStreams, draw_tokens
from specverify.reference.sampling import SamplingRows, TokenCounts

# In batches of this size, rows that finish are replaced by rows from the end: moving all rows up costs too much.
MANY_ROWS = 128


@dataclass
class RunningRequest:
    """One request on its way. token_ids: prompt, then everything committed so far.

    log_probs: of the committed new tokens, or None where they are not recorded. allowed_table: which tokens may come in
    each state of its constraint, once that was asked for.
    """

    request: Request
    index: int
    token_ids: list[int]
    streams: RequestStreams
    steps: list[Step] = field(default_factory=list)
    log_probs: list[float] | None = None
    finish_reason: str = ""
    allowed_table: Tensor | None = None
    prompt_length: int = field(init=False)
    most_tokens: int = field(init=False)

    def __post_init__(self) -> None:
        self.prompt_length = len(self.request.prompt_token_ids)
        self.most_tokens = self.prompt_length + self.request.max_new_tokens

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.prompt_length

    @property
    def num_remaining(self) -> int:
        return self.most_tokens - len(self.token_ids)

    @property
    def newest_position(self) -> int:
        """Position of the newest committed token: the one that has no KV row yet."""
        return len(self.token_ids) - 1


class Batch:
    """The rows that still run, and what their tensors share."""

    def __init__(self, running: Sequence[RunningRequest], vocab_size: int, device: torch.device) -> None:
        self.running = list(running)
        self.vocab_size = vocab_size
        self.device = device
        self.streams = [r.streams for r in self.running]
        self.sampling = SamplingRows([r.request.sampling for r in self.running], device)
        self.has_constraints = any(r.request.constraint is not None for r in self.running)

    @property
    def num_rows(self) -> int:
        return len(self.running)

    def select(self, rows: Sequence[int]) -> Batch:
        """The same batch without its other rows."""
        return Batch([self.running[row] for row in rows], self.vocab_size, self.device)

    def token_counts(self) -> TokenCounts | None:
        """What penalties count in the committed text; None where no row has penalties."""
        if not self.sampling.has_penalties:
            return None
        texts = [(r.request.prompt_token_ids, r.token_ids[r.prompt_length :]) for r in self.running]
        return TokenCounts.of(texts, self.vocab_size, self.device)

    def draw(self, law: Tensor, stream: str = FINAL, is_wanted: Sequence[bool] | None = None) -> Tensor:
        """One token per row from laws [rows, vocab]; greedy batches draw no random number."""
        if self.sampling.is_greedy:
            return law.argmax(dim=-1)
        return draw_tokens(law, self.streams, stream, is_wanted or [True] * self.num_rows)


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Token ids of unequal length as one tensor [rows, width], zeros on the right."""
    width = max(len(row) for row in rows)
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=torch.int64, device=device)


def along_paths(states: Tensor, accepted: Sequence[Sequence[int]]) -> Tensor:
    """The states [rows, width, ...] of the newest token and the accepted nodes, padded on the right."""
    index = padded([[0, *(node + 1 for node in path)] for path in accepted], states.device)
    return states[torch.arange(len(accepted), device=states.device)[:, None], index]


def gaps_filled(rows: Sequence[int]) -> list[int]:
    """The same rows in another order: rows below len(rows) stay in their places, later ones fill the gaps."""
    places: list[int | None] = [None] * len(rows)
    later = []
    for row in rows:
        if row < len(rows):
            places[row] = row
        else:
            later.append(row)
    filling = iter(later)
    return [next(filling) if row is None else row for row in places]
