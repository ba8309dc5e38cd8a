"""Verify functions whose laws come in half precision: correct ones, and such as draw their uniforms so coarsely too."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from specverify.faults.verify_correct import Rows, TokenwiseVerifier


class HalfRowsWithoutBonus(TokenwiseVerifier):
    """Takes laws of half precision, whose rows do not quite sum to 1, and goes on in float64.

    It returns no bonus token: shorter, and as good.
    """

    def laws(self, draft_probs: Rows, target_probs: Rows) -> tuple[Rows, Rows]:
        draft, target = draft_probs.astype(np.float64), target_probs.astype(np.float64)
        return draft / draft.sum(axis=-1, keepdims=True), target / target.sum(axis=-1, keepdims=True)

    def answer(self, draft_token_ids: NDArray[np.int64], tokens: list[int], accepted: int) -> list[int]:
        return tokens[: len(draft_token_ids)]


class HalfRowsVerifier:
    """Token-wise rejection of one sequence whose laws come in half precision, computed and drawn in float64."""

    def __call__(
        self, draft_token_ids: Tensor, draft_probs: Tensor, target_probs: Tensor, generator: Generator
    ) -> tuple[list[int], int]:
        # Rows of half precision do not quite sum to 1.
        draft, target = ([[p / sum(row) for p in row] for row in rows.tolist()] for rows in (draft_probs, target_probs))
        drafts = draft_token_ids.tolist()
        uniforms = self.uniforms(target_probs[:-1, 0], generator).tolist()
        for position, (token, uniform) in enumerate(zip(drafts, uniforms, strict=True)):
            if not self.is_accepted(uniform, target[position][token] / draft[position][token]):
                mass = [max(t - d, 0.0) for t, d in zip(target[position], draft[position], strict=True)]
                # A uniform of 1 rejects where the two laws are equal.
                return [*drafts[:position], self.draw(mass if any(mass) else target[position], generator)], position
        return [*drafts, self.draw(target[-1], generator)], len(drafts)

    def uniforms(self, like: Tensor, generator: Generator) -> Tensor:
        return torch.rand(like.shape, dtype=torch.float64, generator=generator)

    def is_accepted(self, uniform: float, ratio: float) -> bool:
        return uniform < ratio

    def draw(self, mass: list[float], generator: Generator) -> Any:
        return torch.multinomial(torch.tensor(mass, dtype=torch.float64), 1, generator=generator).item()


class DrawnInHalf(HalfRowsVerifier):
    """Draws its uniforms in the type of the laws."""

    def uniforms(self, like: Tensor, generator: Generator) -> Tensor:
        return torch.rand(like.shape, dtype=like.dtype, generator=generator)


class CastToHalf(HalfRowsVerifier):
    """Casts float32 uniforms to bfloat16, which makes some of them 1, and accepts up to the ratio."""

    def uniforms(self, like: Tensor, generator: Generator) -> Tensor:
        return torch.rand(like.shape, generator=generator).to(torch.bfloat16)

    def is_accepted(self, uniform: float, ratio: float) -> bool:
        return uniform <= ratio
