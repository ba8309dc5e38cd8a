"""The closed form of a whole round, with the figures that were measured put in, and the best k that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specverify.laws.economics import expected_tokens, request_speedup

MOST_DRAFT_TOKENS = 24


@dataclass(frozen=True)
class RoundModel:
    """What a round yields and costs as k changes. Costs in plain decoding steps.

    share_drafting: rounds in which anything was drafted; prompt lookup often finds nothing.
    cost: of a round that drafts nothing; draft_cost: what every draft token adds, in drafting and in the target's pass.
    prompt_cost: of taking in the prompt, which yields the first of num_tokens tokens either way.
    """

    acceptance: float
    share_drafting: float
    cost: float
    draft_cost: float
    prompt_cost: float = 0.0
    num_tokens: int = 2

    def tokens(self, num_draft_tokens: int) -> float:
        """Expected tokens per target pass."""
        return 1.0 + self.share_drafting * (expected_tokens(self.acceptance, num_draft_tokens) - 1.0)

    def speedup(self, num_draft_tokens: int) -> float:
        """Of a whole request."""
        decoding = self.tokens(num_draft_tokens) / (self.cost + num_draft_tokens * self.draft_cost)
        return request_speedup(decoding, max(1, self.num_tokens - 1), fixed_cost=self.prompt_cost)

    def best(self, among: Sequence[int] = range(1, MOST_DRAFT_TOKENS + 1)) -> int:
        """The k with the largest speed-up, 0 where plain decoding is fastest."""
        k = max(among, key=self.speedup)
        return k if self.speedup(k) > 1.0 else 0
