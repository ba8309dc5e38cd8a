"""The children of the nodes of one level: drawn, or the likeliest; and what penalties see there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from specverify.core.types import SamplingParams
from specverify.reference.batch import Batch
from specverify.reference.draws import DRAFT, draw_tokens
from specverify.reference.sampling import SamplingRows


class History:
    """What penalties see at the nodes of the current level: [rows, nodes, vocab], or nothing without penalties."""

    def __init__(self, batch: Batch) -> None:
        self.counts = batch.token_counts()
        self.in_output = None if self.counts is None else self.counts.in_output[:, None]

    def go_on(self, places: Sequence[int] | Tensor, token_ids: Tensor) -> None:
        """To the nodes with these tokens [rows, n], whose parents stood at these places of the level before."""
        if self.in_output is None:
            return
        if isinstance(places, Tensor):
            above = self.in_output.gather(1, places[:, :, None].expand(-1, -1, self.in_output.shape[-1]))
        else:
            above = self.in_output[:, list(places)]
        self.in_output = above + one_hot(token_ids, above.shape[-1])


def confidence(batch: Batch, logits: Tensor, history: History) -> Tensor:
    """Scores [rows, nodes, vocab] by which children are ranked: the logits, after penalties."""
    if history.counts is None:
        return logits
    bare = SamplingParams()
    params = [
        replace(
            bare,
            repetition_penalty=running.request.sampling.repetition_penalty,
            presence_penalty=running.request.sampling.presence_penalty,
            frequency_penalty=running.request.sampling.frequency_penalty,
        )
        for running in batch.running
    ]
    return SamplingRows(params, batch.device).law(logits, history.counts, history.in_output).log()


class Children:
    """Hands out the children of the nodes of one level, rank by rank."""

    def __init__(
        self,
        batch: Batch,
        logits: Tensor,
        history: History,
        is_wanted: Sequence[bool],
        *,
        is_drawn: bool,
        with_replacement: bool,
    ) -> None:
        self.batch, self.with_replacement = batch, with_replacement
        # A row that goes no deeper draws nothing more, or what it draws later would depend on its neighbours.
        self.is_wanted = is_wanted
        self.law: Tensor | None = None
        self.ranked: Tensor | None = None
        self.rank = 0
        if is_drawn and not batch.sampling.is_greedy:
            self.law = batch.sampling.law(logits, history.counts, history.in_output)
        if not is_drawn or batch.sampling.has_greedy:
            self.ranked = confidence(batch, logits, history).argsort(dim=-1, descending=True, stable=True)

    def next(self, places: Sequence[int]) -> tuple[Tensor, Tensor | None, Tensor]:
        """(tokens [rows, n], laws [rows, n, vocab] or None, whether there was one [rows, n]) for these parents."""
        batch, places = self.batch, list(places)
        rank, self.rank = self.rank, self.rank + 1
        if self.ranked is not None:
            chosen = self.ranked[:, places, min(rank, batch.vocab_size - 1)]
            has_rank = torch.full_like(chosen, rank < batch.vocab_size, dtype=torch.bool)
        if self.law is None:
            return chosen, None, has_rank
        law = self.law[:, places]
        has_mass = law.sum(dim=-1) > 0.0
        # Where nothing is left to draw, something is drawn all the same, and dropped.
        drawable = torch.where(has_mass[:, :, None], law, one_hot(law.argmax(dim=-1), law.shape[-1]).to(law.dtype))
        streams = [stream for stream in batch.streams for _ in places]
        is_wanted = [wanted for wanted in self.is_wanted for _ in places]
        drawn = draw_tokens(drawable.flatten(0, 1), streams, DRAFT, is_wanted).view(has_mass.shape)
        if self.ranked is not None:
            is_greedy = torch.tensor([p.is_greedy for p in batch.sampling.params], device=batch.device)[:, None]
            drawn, has_mass = torch.where(is_greedy, chosen, drawn), torch.where(is_greedy, has_rank, has_mass)
            law = torch.where(is_greedy[:, :, None], one_hot(chosen, law.shape[-1]).to(law.dtype), law)
        if not self.with_replacement:
            rest = law.scatter(-1, drawn[:, :, None], 0.0)
            total = rest.sum(dim=-1, keepdim=True)
            self.law = self.law.clone()
            self.law[:, places] = torch.where(total > 0.0, rest / total, 0.0)
        return drawn, law, has_mass
