"""Shapes of single rows: tilted to a wanted distance, restricted to a support, tied, one-hot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specverify.laws.sampling import softmax

# Standard deviation of a node's logits: entropies of natural spread, no token so likely that it hides the others.
_LOGIT_SPREAD = 1.5
# Beyond this vocabulary the spread grows like the largest of V normals, so that the likeliest token keeps its share:
# with a fixed spread no draft token of a large vocabulary would ever be accepted.
_LARGE_VOCAB = 128
# How closely a draft's disagreement is met, and the tilt at which all mass sits on one token.
_DISAGREEMENT_TOLERANCE = 1e-5
_STEEPEST_TILT = 1e6


def normalised_row(row: NDArray[np.float64]) -> NDArray[np.float64]:
    """The row divided by its sum, read-only."""
    result: NDArray[np.float64] = row / row.sum()
    result.flags.writeable = False
    return result


def default_spread(vocab_size: int) -> float:
    if vocab_size <= _LARGE_VOCAB:
        return _LOGIT_SPREAD
    return 0.9 * float(np.sqrt(2.0 * np.log(vocab_size)))


def tilted(row: NDArray[np.float64], noise: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """The row times exp(scale * noise), renormalised; zeros stay zeros."""
    exponent = scale * noise
    mass = row * np.exp(np.minimum(exponent - exponent[row > 0.0].max(), 0.0))
    result: NDArray[np.float64] = mass / mass.sum()
    return result


def tilted_to(
    row: NDArray[np.float64], target: NDArray[np.float64], noise: NDArray[np.float64], wanted: float
) -> NDArray[np.float64]:
    """The row tilted along the noise until its total variation from the target is as wanted, or as near as it gets.

    Distance grows with the tilt (monotone likelihood ratio), so bisection finds the scale.
    """

    def distance(scale: float) -> float:
        return 0.5 * float(np.abs(tilted(row, noise, scale) - target).sum())

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
            return tilted(row, noise, middle)
        low, high = (middle, high) if reached < wanted else (low, middle)
    return tilted(row, noise, high)


def restricted(row: NDArray[np.float64], kept: NDArray[np.int64]) -> NDArray[np.float64]:
    """The row conditioned on a set of tokens; uniform over them where it gives them no mass."""
    mass = np.zeros_like(row)
    mass[kept] = row[kept]
    if mass.sum() == 0.0:
        mass[kept] = 1.0
    result: NDArray[np.float64] = mass / mass.sum()
    return result


def draft_support(row: NDArray[np.float64], count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """The likeliest half of the wanted tokens, and others at random: agreement and certain rejection both occur."""
    num_likeliest = (count + 1) // 2
    order = np.argsort(-row, kind="stable")
    others = generator.choice(order[num_likeliest:], count - num_likeliest, replace=False)
    return np.concatenate([order[:num_likeliest], others])


def avoiding(target: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.float64]:
    """A law on tokens that the target forbids; where it forbids none, on its least likely token."""
    outside = np.flatnonzero(target == 0.0)
    if outside.size == 0:
        outside = np.array([int(target.argmin())])
    row = np.zeros_like(target)
    row[outside] = softmax(generator.normal(size=outside.size))
    return row


def with_special(row: NDArray[np.float64], special: str, generator: np.random.Generator) -> NDArray[np.float64]:
    possible = np.flatnonzero(row)
    if special == "one-hot":
        return restricted(row, generator.choice(possible, 1))
    if special == "zeros" and possible.size > 1:
        num_kept = int(generator.integers(1, possible.size))
        return restricted(row, generator.choice(possible, num_kept, replace=False))
    if special == "ties" and possible.size > 1:
        # The two likeliest tokens share their mass: the case where argmax, top-k and sorting choose by accident.
        first, second = np.argsort(-row, kind="stable")[:2]
        tied = row.copy()
        tied[[first, second]] = 0.5 * (row[first] + row[second])
        return tied
    return row
