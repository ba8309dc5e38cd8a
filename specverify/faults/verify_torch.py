"""A correct batched verify function in torch, in the style of serving engines, for faults to override."""

from __future__ import annotations

import torch


class BatchedVerifier:
    """Token-wise rejection of a batch: all accept tests at once, final tokens by a race of exponentials on every row.

    Source: Leviathan et al. 2023, arXiv 2211.17192, algorithm 1.
    """

    def __call__(
        self,
        draft_token_ids: torch.Tensor,
        draft_probs: torch.Tensor,
        target_probs: torch.Tensor,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
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

    def uniforms(
        self, batch: int, num_draft_tokens: int, like: torch.Tensor, generator: torch.Generator | None
    ) -> torch.Tensor:
        return torch.rand((batch, num_draft_tokens), dtype=like.dtype, generator=generator)

    def num_accepted(self, flags: torch.Tensor) -> torch.Tensor:
        return flags.long().cumprod(dim=1).sum(dim=1)

    def final_mass(self, draft_probs: torch.Tensor, target_probs: torch.Tensor, accepted: torch.Tensor) -> torch.Tensor:
        rows = self.row_index(accepted)
        # A draft law of nothing behind the last draft makes the residual of the bonus row the row itself.
        padded = torch.cat([draft_probs, torch.zeros_like(draft_probs[:, :1])], dim=1)
        return (target_probs[rows, accepted] - padded[rows, accepted]).clamp(min=0.0)

    def row_index(self, accepted: torch.Tensor) -> torch.Tensor:
        return torch.arange(len(accepted))

    def draw(self, mass: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
        return race(torch.empty_like(mass).exponential_(generator=generator), mass)


def race(noise: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
    """The first of exponentials with these rates. On the CPU noise may be 0, and 0 / 0 must not win for mass 0."""
    return torch.where(mass > 0.0, noise / mass, torch.inf).argmin(dim=-1)


class RowsMixedUp(BatchedVerifier):
    """Takes the final token's laws from the rows in reverse order."""

    def row_index(self, accepted: torch.Tensor) -> torch.Tensor:
        return torch.arange(len(accepted)).flip(0)


class CountsEveryFlag(BatchedVerifier):
    """Counts all accepted drafts, also those behind a rejected one."""

    def num_accepted(self, flags: torch.Tensor) -> torch.Tensor:
        return flags.long().sum(dim=1)


class UniformSharedByPositions(BatchedVerifier):
    """Draws one uniform a row and uses it for every position."""

    def uniforms(
        self, batch: int, num_draft_tokens: int, like: torch.Tensor, generator: torch.Generator | None
    ) -> torch.Tensor:
        return torch.rand((batch, 1), dtype=like.dtype, generator=generator).expand(batch, num_draft_tokens)


class UniformsSharedByRows(BatchedVerifier):
    """Draws the uniforms once and uses them for every row of the batch."""

    def uniforms(
        self, batch: int, num_draft_tokens: int, like: torch.Tensor, generator: torch.Generator | None
    ) -> torch.Tensor:
        return torch.rand((1, num_draft_tokens), dtype=like.dtype, generator=generator).expand(batch, num_draft_tokens)


class NoiseReused(BatchedVerifier):
    """Decides the accept tests with the noise of the race that draws the final token."""

    def __call__(
        self,
        draft_token_ids: torch.Tensor,
        draft_probs: torch.Tensor,
        target_probs: torch.Tensor,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        self.noise = torch.empty_like(target_probs).exponential_(generator=generator)  # [batch, k + 1, vocab]
        return super().__call__(draft_token_ids, draft_probs, target_probs, generator)

    def uniforms(
        self, batch: int, num_draft_tokens: int, like: torch.Tensor, generator: torch.Generator | None
    ) -> torch.Tensor:
        return torch.exp(-self.noise[:, :num_draft_tokens, 0])

    def draw(self, mass: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
        return race(self.noise[:, 0], mass)
