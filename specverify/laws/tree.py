"""Fixtures: random trees of conditional laws, with the corners in which verify functions go wrong built in.

A fixture's law depends on the whole prefix; one row repeated at every position would hide every off-by-one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from specverify.core.errors import UsageError
from specverify.laws.sampling import softmax

Conditional: TypeAlias = Callable[[tuple[int, ...]], NDArray[np.float64]]
"""Prefix of new tokens -> law of the next token, float64 [vocab]."""

# Standard deviation of a node's logits: entropies of natural spread, no token so likely that it hides the others.
_LOGIT_SPREAD = 1.5
# Beyond this vocabulary the spread grows like the largest of V normals, so that the likeliest token keeps its share:
# with a fixed spread no draft token of a large vocabulary would ever be accepted.
_LARGE_VOCAB = 128
# A near-equal draft row: ratios within about a tenth of a per cent of 1, so the residual lives on rounding-sized mass.
_NEAR_EQUAL_NOISE = 1e-3
# Logits of a long-tailed row fall by this much from the first to the last token: e**-12 is 6e-6.
_TAIL_DEPTH = 12.0
# How closely a draft's disagreement is met, and the tilt at which all mass sits on one token.
_DISAGREEMENT_TOLERANCE = 1e-5
_STEEPEST_TILT = 1e6
# Share of a draft row that may leave the target's support, so that some drafts must be rejected for certain.
_OUTSIDE_SHARE = 0.1

TARGET_SPECIALS = ("zeros", "ties", "one-hot", "flat", "long-tail")
DRAFT_SPECIALS = ("equal", "near-equal", "disjoint", "one-hot", "zeros", "ties")


class ConditionalTree:
    """A random tree of conditional laws, the same for the same arguments, computed where it is looked at.

    vocab_size: at least 2. seed: any non-negative integer. spread: standard deviation of the logits;
      the default is 1.5, more in a large vocabulary.
    temperature: divides the logits. support: tokens with positive probability per row (default all); the way to
      keep draft paths few in a large vocabulary.
    specials: kinds of special rows to mix in, from TARGET_SPECIALS; special_chance: how often a row is one of them.
    dtype: "float64", or "float32" for rows whose values are float32 numbers, renormalised there.
    Rows are float64, [vocab], read-only: copy before writing.

    Raises UsageError for an unknown special, a vocabulary below 2 or a support outside 1 to vocab_size.
    """

    def __init__(
        self,
        vocab_size: int,
        seed: int,
        *,
        spread: float | None = None,
        temperature: float = 1.0,
        support: int | None = None,
        specials: Sequence[str] = (),
        special_chance: float = 0.5,
        dtype: str = "float64",
    ) -> None:
        _check_arguments(vocab_size, support, specials, TARGET_SPECIALS, dtype)
        self.vocab_size = vocab_size
        self.seed = seed
        self.dtype = dtype
        self._spread = _default_spread(vocab_size) if spread is None else spread
        self._temperature = temperature
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
            row = rounded_row(row, self.dtype) if row.flags.writeable else row
            self._cache[prefix] = row
        return row

    def draft(
        self,
        seed: int,
        *,
        disagreement: float = 0.4,
        temperature: float = 1.0,
        support: int | None = None,
        specials: Sequence[str] = (),
        special_chance: float = 0.5,
    ) -> ConditionalTree:
        """A draft tree that disagrees with this one by a stated total variation at every prefix.

        disagreement: total variation between the two rows (0 to below 1); reached within 1e-5 where the target row
          and the support allow it. temperature: softens the target row first; with disagreement 0 the draft is the
          target at another temperature. support: most tokens per draft row, the target's likeliest among them.
        specials: from DRAFT_SPECIALS. "disjoint" rows put all mass where the target has none, or least.
        """
        return _DraftTree(
            self, seed, disagreement, temperature=temperature, support=support, specials=specials,
            special_chance=special_chance,
        )  # fmt: skip

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
        logits = generator.normal(size=self.vocab_size) * self._spread
        if special == "long-tail":
            logits = logits - _TAIL_DEPTH * generator.permutation(self.vocab_size) / (self.vocab_size - 1)
        if special == "flat":
            logits = np.zeros(self.vocab_size)
        row = softmax(logits / self._temperature)
        if self._support is not None:
            row = _restricted(row, generator.choice(self.vocab_size, self._support, replace=False))
        return _with_special(row, special, generator)


class _DraftTree(ConditionalTree):
    """A tree whose rows are the base tree's rows, tilted until they disagree by the wanted total variation."""

    def __init__(
        self,
        base: ConditionalTree,
        seed: int,
        disagreement: float,
        *,
        temperature: float,
        support: int | None,
        specials: Sequence[str],
        special_chance: float,
    ) -> None:
        if not 0.0 <= disagreement < 1.0:
            raise UsageError(f"disagreement is {disagreement}; it is a total variation: give 0 up to, not including, 1")
        super().__init__(
            base.vocab_size, seed, temperature=temperature, support=support, special_chance=special_chance,
            dtype=base.dtype,
        )  # fmt: skip
        _check_arguments(base.vocab_size, support, specials, DRAFT_SPECIALS, base.dtype)
        self._specials = tuple(specials)
        self._base = base
        self._disagreement = disagreement

    def _new_row(self, prefix: tuple[int, ...]) -> NDArray[np.float64]:
        generator = self._generator(prefix)
        row = self._special_or_tilted(self._base(prefix), generator)
        if self._support is not None and np.count_nonzero(row) > self._support:
            row = _restricted(row, _draft_support(row, self._support, generator))
        return row

    def _special_or_tilted(self, target: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.float64]:
        special = self._special(generator)
        noise = generator.normal(size=self.vocab_size)
        if special == "equal":
            return target
        if special == "near-equal":
            return _tilted(target, noise, _NEAR_EQUAL_NOISE)
        if special == "disjoint":
            return _avoiding(target, generator)
        row = target
        if self._temperature != 1.0:
            with np.errstate(divide="ignore"):
                row = softmax(np.log(target) / self._temperature)
        if self._support is not None and self._support < self.vocab_size:
            row = _restricted(row, _draft_support(row, self._support, generator))
        elif self._disagreement > 0.0 and (row == 0.0).any():
            row = (1.0 - _OUTSIDE_SHARE) * row + _OUTSIDE_SHARE * softmax(noise)
        row = _tilted_to(row, target, noise, self._disagreement)
        return _with_special(row, special, generator)


def path_rows(
    conditional: Conditional, token_ids: Sequence[int], *, prefix: tuple[int, ...] = ()
) -> NDArray[np.float64]:
    """The laws met along a path of any conditional: after 0, 1, ... of its tokens, [len(token_ids) + 1, vocab]."""
    tokens = tuple(int(token) for token in token_ids)
    return np.stack([conditional(prefix + tokens[:count]) for count in range(len(tokens) + 1)])


def all_sequences(vocab_size: int, length: int) -> Iterator[tuple[int, ...]]:
    """Every sequence of that many tokens, in lexicographic order."""
    return itertools.product(range(vocab_size), repeat=length)


def rounded_row(row: NDArray[np.float64], dtype: str) -> NDArray[np.float64]:
    """The row renormalised in the given dtype, as read-only float64 holding exactly those values."""
    kind: Any = np.float32 if dtype == "float32" else np.float64
    values = row.astype(kind)
    result: NDArray[np.float64] = (values / values.sum(dtype=kind)).astype(np.float64)
    result.flags.writeable = False
    return result


def _default_spread(vocab_size: int) -> float:
    if vocab_size <= _LARGE_VOCAB:
        return _LOGIT_SPREAD
    return 0.9 * float(np.sqrt(2.0 * np.log(vocab_size)))


def _tilted(row: NDArray[np.float64], noise: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """The row times exp(scale * noise), renormalised; zeros stay zeros."""
    exponent = scale * noise
    mass = row * np.exp(np.minimum(exponent - exponent[row > 0.0].max(), 0.0))
    result: NDArray[np.float64] = mass / mass.sum()
    return result


def _tilted_to(
    row: NDArray[np.float64], target: NDArray[np.float64], noise: NDArray[np.float64], wanted: float
) -> NDArray[np.float64]:
    """The row tilted along the noise until its total variation from the target is as wanted, or as near as it gets.

    Distance grows with the tilt (monotone likelihood ratio), so bisection finds the scale.
    """

    def distance(scale: float) -> float:
        return 0.5 * float(np.abs(_tilted(row, noise, scale) - target).sum())

    if distance(0.0) >= wanted:
        return row
    likeliest = int(noise.argmax())
    if 1.0 - target[likeliest] <= wanted:
        # All mass on this token would still be too near; tilt towards the rarest possible token instead.
        rarest = int(np.where(row > 0.0, row, np.inf).argmin())
        noise = noise.copy()
        noise[[likeliest, rarest]] = noise[[rarest, likeliest]]
    low, high = 0.0, 1.0
    while distance(high) < wanted and high < _STEEPEST_TILT:
        high *= 2.0
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        reached = distance(middle)
        if abs(reached - wanted) < _DISAGREEMENT_TOLERANCE:
            return _tilted(row, noise, middle)
        low, high = (middle, high) if reached < wanted else (low, middle)
    return _tilted(row, noise, high)


def _restricted(row: NDArray[np.float64], kept: NDArray[np.int64]) -> NDArray[np.float64]:
    """The row conditioned on a set of tokens; uniform over them where it gives them no mass."""
    mass = np.zeros_like(row)
    mass[kept] = row[kept]
    if mass.sum() == 0.0:
        mass[kept] = 1.0
    result: NDArray[np.float64] = mass / mass.sum()
    return result


def _draft_support(row: NDArray[np.float64], count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """The likeliest half of the wanted tokens, and others at random: agreement and certain rejection both occur."""
    num_likeliest = (count + 1) // 2
    order = np.argsort(-row, kind="stable")
    others = generator.choice(order[num_likeliest:], count - num_likeliest, replace=False)
    return np.concatenate([order[:num_likeliest], others])


def _avoiding(target: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.float64]:
    """A law on tokens that the target forbids; where it forbids none, on its least likely token."""
    outside = np.flatnonzero(target == 0.0)
    if outside.size == 0:
        outside = np.array([int(target.argmin())])
    row = np.zeros_like(target)
    row[outside] = softmax(generator.normal(size=outside.size))
    return row


def _with_special(row: NDArray[np.float64], special: str, generator: np.random.Generator) -> NDArray[np.float64]:
    possible = np.flatnonzero(row)
    if special == "one-hot":
        return _restricted(row, generator.choice(possible, 1))
    if special == "zeros" and possible.size > 1:
        num_kept = int(generator.integers(1, possible.size))
        return _restricted(row, generator.choice(possible, num_kept, replace=False))
    if special == "ties" and possible.size > 1:
        # The two likeliest tokens share their mass: the case where argmax, top-k and sorting choose by accident.
        first, second = np.argsort(-row, kind="stable")[:2]
        tied = row.copy()
        tied[[first, second]] = 0.5 * (row[first] + row[second])
        return tied
    return row


def _check_arguments(
    vocab_size: int, support: int | None, specials: Sequence[str], known: Sequence[str], dtype: str
) -> None:
    if vocab_size < 2:
        raise UsageError(f"vocab_size is {vocab_size}; a tree needs at least 2 tokens")
    if support is not None and not 1 <= support <= vocab_size:
        raise UsageError(f"support is {support}; give 1 to {vocab_size} tokens, or None for all")
    for special in specials:
        if special not in known:
            raise UsageError(f"special {special!r} is unknown here; choose from {', '.join(known)}")
    if dtype not in ("float32", "float64"):
        raise UsageError(f"dtype is {dtype!r}; choose float32 or float64")
