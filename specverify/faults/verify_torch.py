"""A correct batched verify function in torch, in the style of serving engines, and one that reuses its noise."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


class BatchedVerifier:
    """Token-wise rejection of a batch: all accept tests at once, final tokens by a race of exponentials on every row.

    Source: Leviathan et al. 2023, arXiv 2211.17192, algorithm 1.
    """

    def __call__(
        self, draft_token_ids: Tensor, draft_probs: Tensor, target_probs: Tensor, generator: Generator | None = None
    ) -> Tensor:
        batch, num_draft_tokens = draft_token_ids.shape
        drafted = draft_probs.gather(-1, draft_token_ids[..., None]).squeeze(-1)  # [batch, k]
        wanted = target_probs[:, :-1].gather(-1, draft_token_ids[..., None]).squeeze(-1)  # [batch, k]
        uniforms = self.uniforms(batch, num_draft_tokens, draft_probs, generator)
        accepted = self.num_accepted(uniforms < wanted / drafted)  # [batch]
        mass = self.final_mass(draft_probs, target_probs, accepted)  # [batch, vocab]
        final = self.draw(mass, generator)  # [batch]
        output = torch.full((batch, num_draft_tokens + 1), -1, dtype=torch.long)
        positions = torch.arange(num_draft_tokens)
        output[:, :-1] = torch.where(positions < accepted[:, None], draft_token_ids, output[:, :-1])
        output.scatter_(1, accepted[:, None], final[:, None])
        return output

    def uniforms(self, batch: int, num_draft_tokens: int, like: Tensor, generator: Generator | None) -> Tensor:
        return torch.rand((batch, num_draft_tokens), dtype=like.dtype, generator=generator)

    def num_accepted(self, flags: Tensor) -> Tensor:
        return flags.long().cumprod(dim=1).sum(dim=1)

    def final_mass(self, draft_probs: Tensor, target_probs: Tensor, accepted: Tensor) -> Tensor:
        rows = self.row_index(accepted)
        # A draft law of nothing behind the last draft makes the residual of the bonus row the row itself.
        padded = torch.cat([draft_probs, torch.zeros_like(draft_probs[:, :1])], dim=1)
        return (target_probs[rows, accepted] - padded[rows, accepted]).clamp(min=0.0)

    def row_index(self, accepted: Tensor) -> Tensor:
        return torch.arange(len(accepted))

    def draw(self, mass: Tensor, generator: Generator | None) -> Tensor:
        return race(torch.empty_like(mass).exponential_(generator=generator), mass)


def race(noise: Tensor, mass: Tensor) -> Tensor:
    """The first of exponentials with these rates. On the CPU noise may be 0, and 0 / 0 must not win for mass 0."""
    return torch.where(mass > 0.0, noise / mass, torch.inf).argmin(dim=-1)


class NoiseReused(BatchedVerifier):
    """Decides the accept tests with the noise of the race that draws the final token."""

    def __call__(
        self, draft_token_ids: Tensor, draft_probs: Tensor, target_probs: Tensor, generator: Generator | None = None
    ) -> Tensor:
        self.noise = torch.empty_like(target_probs).exponential_(generator=generator)  # [batch, k + 1, vocab]
        return super().__call__(draft_token_ids, draft_probs, target_probs, generator)

    def uniforms(self, batch: int, num_draft_tokens: int, like: Tensor, generator: Generator | None) -> Tensor:
        return torch.exp(-self.noise[:, :num_draft_tokens, 0])

    def draw(self, mass: Tensor, generator: Generator | None) -> Tensor:
        return race(self.noise[:, 0], mass)
