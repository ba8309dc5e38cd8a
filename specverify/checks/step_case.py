"""One case of a verify step: two laws over prefixes, and the calls that can be made of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specverify.core.types import VerifyInput, WholeStepInput
from specverify.laws.tree import Conditional, path_rows


@dataclass(frozen=True)
class Scenario:
    """Two laws over prefixes, and how many tokens are drafted.

    draft: the law that draft tokens are drawn from and that the function is told of. is_told: whether the function
    is told of it; if not, every draft must be lossless by itself. told: rows [k, vocab] that the function is told
    instead. given: target laws that the function is given, where it is meant to turn them into `target`. neighbour:
    in a batch, the other row, at the place that `row` leaves. parents: for a draft tree; `draft` is then the law of
    the next token of the tree given those before it in the list. drafts_itself: the function draws the draft tokens.
    """

    name: str
    vocab_size: int
    num_draft_tokens: int
    target: Conditional
    draft: Conditional
    is_told: bool = True
    neighbour: VerifyInput | None = None
    row: int = 0
    told: NDArray[np.float64] | None = None
    given: Conditional | None = None
    parents: tuple[int, ...] | None = None
    drafts_itself: bool = False
    _cases: dict[tuple[int, ...], VerifyInput] = field(default_factory=dict, repr=False, compare=False)

    def case(self, tokens: tuple[int, ...]) -> VerifyInput:
        """The input of one call, for these draft tokens."""
        if self.drafts_itself:
            law = self.given or self.target
            return WholeStepInput((), None, law(())[None], None, self.draft, law, self.num_draft_tokens)
        if tokens not in self._cases:
            draft = None
            if self.is_told:
                draft = path_rows(self.draft, tokens)[:-1] if self.told is None else self.told
            law = self.given or self.target
            rows = np.stack([law(path) for path in [(), *tree_paths(tokens, self.parents)]])
            self._cases[tokens] = VerifyInput(tokens, draft, rows, self.parents)
        return self._cases[tokens]

    def drawn(self, generator: np.random.Generator) -> tuple[int, ...]:
        """Draft tokens, drawn one by one from the draft law."""
        tokens: tuple[int, ...] = ()
        for _ in range(self.num_drawn):
            row = self.draft(tokens)
            tokens += (int(generator.choice(len(row), p=row)),)
        return tokens

    @property
    def num_drawn(self) -> int:
        """How many draft tokens are drawn before the call."""
        return 0 if self.drafts_itself else self.num_draft_tokens

    def is_rejection(self, drafted: tuple[int, ...], emitted: tuple[int, ...]) -> bool:
        """Whether not all draft tokens came out."""
        if self.drafts_itself:
            return len(emitted) <= self.num_draft_tokens
        return emitted[: len(drafted)] != drafted

    @property
    def is_chain(self) -> bool:
        """Whether there is one candidate for each position."""
        return self.parents is None or self.parents == tuple(range(-1, len(self.parents) - 1))

    @property
    def depth(self) -> int:
        """Most draft tokens that can be accepted."""
        return max(map(len, tree_paths((0,) * self.num_draft_tokens, self.parents)), default=0)

    def batch(self, tokens: tuple[int, ...]) -> list[VerifyInput]:
        """The rows of one call: the case, and its neighbour if there is one."""
        rows = [self.case(tokens)]
        if self.neighbour is not None:
            rows.insert(1 - self.row, self.neighbour)
        return rows

    @property
    def size(self) -> str:
        if not self.is_chain:
            return f"vocabulary {self.vocab_size}, draft tree with parents {list(self.parents or ())}"
        tokens = "one draft token" if self.num_draft_tokens == 1 else f"{self.num_draft_tokens} draft tokens"
        return f"vocabulary {self.vocab_size}, {tokens}"


def tree_paths(tokens: tuple[int, ...], parents: tuple[int, ...] | None) -> list[tuple[int, ...]]:
    """The tokens from the root to each draft token, itself included."""
    paths: list[tuple[int, ...]] = []
    for place, token in enumerate(tokens):
        parent = place - 1 if parents is None else parents[place]
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return paths
