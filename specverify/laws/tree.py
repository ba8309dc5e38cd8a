"""Fixtures: random trees of conditional laws, with the corners in which verify functions go wrong built in.

A fixture's law depends on the whole prefix; one row repeated at every position would hide every off-by-one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from specverify.core.errors import UsageError
from specverify.laws.rows import (
    avoiding,
    default_spread,
    draft_support,
    normalised_row,
    restricted,
    tilted,
    tilted_to,
    with_special,
)
from specverify.laws.sampling import softmax

Conditional: TypeAlias = Callable[[tuple[int, ...]], NDArray[np.float64]]
"""Prefix of new tokens -> law of the next token, float64 [vocab]."""

# A near-equal draft row: ratios within about a tenth of a per cent of 1, so the residual lives on rounding-sized mass.
_NEAR_EQUAL_NOISE = 1e-3
# Logits of a long-tailed row fall by this much from the first to the last token: e**-12 is 6e-6.
_TAIL_DEPTH = 12.0
# Share of a draft row that may leave the target's support, so that some drafts must be rejected for certain.
_OUTSIDE_SHARE = 0.1

TARGET_SPECIALS = ("zeros", "ties", "one-hot", "flat", "long-tail")
DRAFT_SPECIALS = ("equal", "near-equal", "disjoint", "one-hot", "zeros", "ties")


class ConditionalTree:
    """A random tree of conditional laws, the same for the same arguments, computed where it is looked at.

    vocab_size: at least 2. seed: any non-negative integer. support: tokens with positive probability per row
      (default all); the way to keep draft paths few in a large vocabulary.
    specials: kinds of special rows to mix in, from TARGET_SPECIALS; special_chance: how often a row is one of them.
    Rows are float64, [vocab], read-only: copy before writing.

    Raises UsageError for an unknown special, a vocabulary below 2 or a support outside 1 to vocab_size.
    """

    known_specials: Sequence[str] = TARGET_SPECIALS

    def __init__(
        self, vocab_size: int, seed: int, *, support: int | None = None, specials: Sequence[str] = (),
        special_chance: float = 0.5,
    ) -> None:  # fmt: skip
        if vocab_size < 2:
            raise UsageError(f"vocab_size is {vocab_size}; a tree needs at least 2 tokens")
        if support is not None and not 1 <= support <= vocab_size:
            raise UsageError(f"support is {support}; give 1 to {vocab_size} tokens, or None for all")
        for special in specials:
            if special not in self.known_specials:
                raise UsageError(f"special {special!r} is unknown here; choose from {', '.join(self.known_specials)}")
        self.vocab_size = vocab_size
        self.seed = seed
        self._support = support
        self._specials = tuple(specials)
        self._special_chance = special_chance
        self._cache: dict[tuple[int, ...], NDArray[np.float64]] = {}

    def __call__(self, prefix: tuple[int, ...]) -> NDArray[np.float64]:
        """The law of the token after the prefix, [vocab]."""
        row = self._cache.get(prefix)
        if row is None:
            row = self._new_row(prefix)
            # A draft row that equals its target row is that row itself: renormalising twice would move the last bit.
            row = normalised_row(row) if row.flags.writeable else row
            self._cache[prefix] = row
        return row

    def draft(
        self, seed: int, *, disagreement: float = 0.4, support: int | None = None, specials: Sequence[str] = (),
        special_chance: float = 0.5,
    ) -> ConditionalTree:  # fmt: skip
        """A draft tree that disagrees with this one by a stated total variation at every prefix.

        disagreement: total variation between the two rows (0 to below 1); reached within 1e-5 where the target row
          and the support allow it. support: most tokens per draft row, the target's likeliest among them.
        specials: from DRAFT_SPECIALS. "disjoint" rows put all mass where the target has none, or least.
        """
        return _DraftTree(self, seed, disagreement, support=support, specials=specials, special_chance=special_chance)

    def rows(self, token_ids: Sequence[int], *, prefix: tuple[int, ...] = ()) -> NDArray[np.float64]:
        """The laws met along a path: after 0, 1, ... len(token_ids) of its tokens, [len(token_ids) + 1, vocab]."""
        return path_rows(self, token_ids, prefix=prefix)

    def _generator(self, prefix: tuple[int, ...]) -> np.random.Generator:
        # The length and token + 1 keep (), (0,) and (0, 0) apart: trailing zeros do not change a numpy seed.
        return np.random.default_rng([self.seed, len(prefix), *(token + 1 for token in prefix)])

    def _special(self, generator: np.random.Generator) -> str:
        is_special = generator.random() < self._special_chance
        return str(generator.choice(self._specials)) if self._specials and is_special else ""

    def _new_row(self, prefix: tuple[int, ...]) -> NDArray[np.float64]:
        generator = self._generator(prefix)
        special = self._special(generator)
        logits = generator.normal(size=self.vocab_size) * default_spread(self.vocab_size)
        if special == "long-tail":
            logits = logits - _TAIL_DEPTH * generator.permutation(self.vocab_size) / (self.vocab_size - 1)
        if special == "flat":
            logits = np.zeros(self.vocab_size)
        row = softmax(logits)
        if self._support is not None:
            row = restricted(row, generator.choice(self.vocab_size, self._support, replace=False))
        return with_special(row, special, generator)


class _DraftTree(ConditionalTree):
    """A tree whose rows are the base tree's rows, tilted until they disagree by the wanted total variation."""

    known_specials = DRAFT_SPECIALS

    def __init__(self, base: ConditionalTree, seed: int, disagreement: float, **options: Any) -> None:
        if not 0.0 <= disagreement < 1.0:
            raise UsageError(f"disagreement is {disagreement}; it is a total variation: give 0 up to, not including, 1")
        super().__init__(base.vocab_size, seed, **options)
        self._base = base
        self._disagreement = disagreement

    def _new_row(self, prefix: tuple[int, ...]) -> NDArray[np.float64]:
        generator = self._generator(prefix)
        row = self._special_or_tilted(self._base(prefix), generator)
        if self._support is not None and np.count_nonzero(row) > self._support:
            row = restricted(row, draft_support(row, self._support, generator))
        return row

    def _special_or_tilted(self, target: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.float64]:
        special = self._special(generator)
        noise = generator.normal(size=self.vocab_size)
        if special == "equal":
            return target
        if special == "near-equal":
            return tilted(target, noise, _NEAR_EQUAL_NOISE)
        if special == "disjoint":
            return avoiding(target, generator)
        row = target
        if self._support is not None and self._support < self.vocab_size:
            row = restricted(row, draft_support(row, self._support, generator))
        elif self._disagreement > 0.0 and (row == 0.0).any():
            row = (1.0 - _OUTSIDE_SHARE) * row + _OUTSIDE_SHARE * softmax(noise)
        row = tilted_to(row, target, noise, self._disagreement)
        return with_special(row, special, generator)


def path_rows(
    conditional: Conditional, token_ids: Sequence[int], *, prefix: tuple[int, ...] = ()
) -> NDArray[np.float64]:
    """The laws met along a path of any conditional: after 0, 1, ... of its tokens, [len(token_ids) + 1, vocab]."""
    tokens = tuple(int(token) for token in token_ids)
    return np.array([conditional(prefix + tokens[:count]) for count in range(len(tokens) + 1)])
