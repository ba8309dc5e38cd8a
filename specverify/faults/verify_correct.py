"""Correct verify functions in the styles met in the wild: faults replace methods of them, checks must let them pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Law = NDArray[np.float64]
Rows = NDArray[np.float64]


class TokenwiseVerifier:
    """Token-wise rejection in numpy, one token at a time: every step is a method, so that a fault overrides one.

    Source: Leviathan et al. 2023, arXiv 2211.17192, algorithm 1.
    """

    def __call__(
        self, draft_token_ids: NDArray[np.int64], draft_probs: Rows, target_probs: Rows, rng: np.random.Generator
    ) -> Any:
        draft, target = self.laws(draft_probs, target_probs)
        tokens: list[int] = []
        for position, token in enumerate(draft_token_ids.tolist()):
            uniform = self.uniform(rng, position)
            if not uniform < self.accept_ratio(draft, target, position, token):
                tokens.append(self.residual_token(draft, target, position, token, uniform, rng))
                return self.answer(draft_token_ids, tokens, position)
            tokens.append(token)
        tokens.append(self.bonus_token(target, rng))
        return self.answer(draft_token_ids, tokens, len(draft_token_ids))

    def laws(self, draft_probs: Rows, target_probs: Rows) -> tuple[Rows, Rows]:
        return draft_probs, target_probs

    def uniform(self, rng: np.random.Generator, position: int) -> float:
        return rng.random()

    def accept_ratio(self, draft: Rows, target: Rows, position: int, token: int) -> float:
        return float(target[position, token] / draft[position, token])

    def residual_mass(self, draft: Rows, target: Rows, position: int, token: int) -> Law:
        mass: Law = np.maximum(target[position] - draft[position], 0.0)
        return mass

    def residual_token(
        self, draft: Rows, target: Rows, position: int, token: int, uniform: float, rng: np.random.Generator
    ) -> int:
        return self.draw(self.residual_mass(draft, target, position, token), rng)

    def bonus_token(self, target: Rows, rng: np.random.Generator) -> int:
        return self.draw(target[-1], rng)

    def draw(self, mass: Law, rng: np.random.Generator) -> int:
        return int(rng.choice(len(mass), p=mass / mass.sum()))

    def answer(self, draft_token_ids: NDArray[np.int64], tokens: list[int], accepted: int) -> Any:
        return tokens, accepted


def vectorised(
    draft_token_ids: NDArray[np.int64], draft_probs: Rows, target_probs: Rows, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Token-wise rejection in numpy, all positions at once, inverse CDF for the final token."""
    positions = np.arange(len(draft_token_ids))
    ratio = target_probs[positions, draft_token_ids] / draft_probs[positions, draft_token_ids]
    is_rejected = rng.random(len(positions)) >= ratio
    accepted = int(np.argmax(is_rejected)) if is_rejected.any() else len(positions)
    mass = target_probs[accepted].copy()
    if accepted < len(positions):
        mass = np.maximum(mass - draft_probs[accepted], 0.0)
    cumulative = np.cumsum(mass)
    # Scaled by the sum as it came out, a uniform just below 1 cannot land behind the last possible token.
    final = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
    return np.append(draft_token_ids[:accepted], final)


def exponential_race(
    draft_token_ids: NDArray[np.int64], draft_probs: Rows, target_probs: Rows, rng: np.random.Generator
) -> tuple[list[int], int]:
    """Token-wise rejection in numpy; the final token wins a race of exponentials."""
    for position, token in enumerate(draft_token_ids.tolist()):
        if rng.random() * draft_probs[position, token] >= target_probs[position, token]:
            mass = np.maximum(target_probs[position] - draft_probs[position], 0.0)
            return [*draft_token_ids[:position].tolist(), _race(mass, rng)], position
    return [*draft_token_ids.tolist(), _race(target_probs[-1], rng)], len(draft_token_ids)


def _race(mass: Law, rng: np.random.Generator) -> int:
    possible = np.flatnonzero(mass)
    return int(possible[np.argmin(rng.exponential(size=len(possible)) / mass[possible])])


def gumbel_max(
    draft_token_ids: NDArray[np.int64], draft_logprobs: Rows, target_logprobs: Rows, rng: np.random.Generator
) -> tuple[list[int], int]:
    """Token-wise rejection on log-probabilities; the final token is the argmax of log mass plus Gumbel noise."""
    for position, token in enumerate(draft_token_ids.tolist()):
        if rng.random() >= np.exp(target_logprobs[position, token] - draft_logprobs[position, token]):
            mass = np.maximum(np.exp(target_logprobs[position]) - np.exp(draft_logprobs[position]), 0.0)
            with np.errstate(divide="ignore"):
                scores = np.log(mass) + rng.gumbel(size=len(mass))
            return [*draft_token_ids[:position].tolist(), int(np.argmax(scores))], position
    scores = target_logprobs[-1] + rng.gumbel(size=target_logprobs.shape[1])
    return [*draft_token_ids.tolist(), int(np.argmax(scores))], len(draft_token_ids)


def plain_python(
    draft_token_ids: list[int], draft_probs: list[list[float]], target_probs: list[list[float]], rng: Any
) -> list[int]:
    """Token-wise rejection on lists, with random.Random."""
    tokens: list[int] = []
    for token, draft, target in zip(draft_token_ids, draft_probs, target_probs, strict=False):
        if rng.random() * draft[token] >= target[token]:
            mass = [max(wanted - drafted, 0.0) for wanted, drafted in zip(target, draft, strict=True)]
            return [*tokens, rng.choices(range(len(mass)), weights=mass)[0]]
        tokens.append(token)
    return [*tokens, rng.choices(range(len(target_probs[-1])), weights=target_probs[-1])[0]]


class BlockVerifier:
    """Block verification: the longest draft prefix whose own test passes is kept.

    Source: Sun et al. 2024, arXiv 2403.10444, algorithm 2.
    """

    def __call__(
        self, draft_token_ids: NDArray[np.int64], draft_probs: Rows, target_probs: Rows, rng: np.random.Generator
    ) -> tuple[list[int], int]:
        drafted = draft_token_ids.tolist()
        accepted, weight, final_mass = 0, 1.0, np.maximum(target_probs[0] - draft_probs[0], 0.0)
        for length in range(1, len(drafted) + 1):
            token = drafted[length - 1]
            weight = min(1.0, weight * float(target_probs[length - 1, token] / draft_probs[length - 1, token]))
            if length == len(drafted):
                mass, chance = target_probs[length], weight
            else:
                mass = np.maximum(weight * target_probs[length] - draft_probs[length], 0.0)
                rest = float(mass.sum())
                chance = rest / (rest + 1.0 - weight) if rest + 1.0 - weight > 0.0 else 1.0
            if rng.random() < chance:
                accepted, final_mass = length, mass
            elif self.stops_at_first_failure():
                break
        if final_mass.sum() == 0.0:
            final_mass = target_probs[accepted]
        final = int(rng.choice(len(final_mass), p=final_mass / final_mass.sum()))
        return [*drafted[:accepted], final], accepted

    def stops_at_first_failure(self) -> bool:
        return False


class PointMassVerifier:
    """For drafts without a law: a draft token is accepted with its target probability, else another is drawn."""

    def __call__(
        self, draft_token_ids: NDArray[np.int64], target_probs: Rows, rng: np.random.Generator
    ) -> tuple[list[int], int]:
        for position, token in enumerate(draft_token_ids.tolist()):
            if not rng.random() < target_probs[position, token]:
                mass = self.others(target_probs[position], token)
                final = int(rng.choice(len(mass), p=mass / mass.sum()))
                return [*draft_token_ids[:position].tolist(), final], position
        final = int(rng.choice(target_probs.shape[1], p=target_probs[-1]))
        return [*draft_token_ids.tolist(), final], len(draft_token_ids)

    def others(self, law: Law, token: int) -> Law:
        mass = law.copy()
        mass[token] = 0.0
        return mass


class TreeVerifier:
    """Candidates are tried in order; each rejection leaves the residual as the law for the next one.

    draft_probs [n, vocab] holds for each candidate the law it was drawn from, given the siblings before it, so that
    drawing with and without replacement are the same rule.

    Source: Miao et al. 2023, SpecInfer, arXiv 2305.09781, algorithm 2.
    """

    def __call__(
        self, draft_token_ids: NDArray[np.int64], parents: NDArray[np.int64], draft_probs: Rows, target_probs: Rows,
        rng: np.random.Generator,
    ) -> tuple[list[int], int]:  # fmt: skip
        tokens: list[int] = []
        node: int | None = -1
        while node is not None:
            target = law = target_probs[node + 1]
            parent, node = node, None
            for child in np.flatnonzero(parents == parent).tolist():
                token = int(draft_token_ids[child])
                if rng.random() * draft_probs[child, token] < self.tested(law, target)[token]:
                    tokens.append(token)
                    node = child
                    break
                law = self.after_rejection(law, draft_probs[child], target)
        return [*tokens, int(rng.choice(len(law), p=law / law.sum()))], len(tokens)

    def tested(self, law: Law, target: Law) -> Law:
        return law

    def after_rejection(self, law: Law, draft: Law, target: Law) -> Law:
        mass: Law = np.maximum(law - draft, 0.0)
        return mass / mass.sum() if mass.sum() > 0.0 else target


def sampler_match(
    draft_token_ids: NDArray[np.int64], target_probs: Rows, rng: np.random.Generator
) -> tuple[list[int], int]:
    """Draws every position from the target and keeps going while the draw equals the draft."""
    tokens: list[int] = []
    for position, row in enumerate(target_probs):
        tokens.append(int(rng.choice(len(row), p=row)))
        if position == len(draft_token_ids) or tokens[-1] != draft_token_ids[position]:
            return tokens, position
    raise AssertionError("the last row always returns")


def accept_test_only(draft_token_ids: Sequence[int], draft_probs: Rows, target_probs: Rows, uniforms: Law) -> int:
    """Only decides how many draft tokens to accept, by uniforms from outside."""
    for position, token in enumerate(draft_token_ids):
        if uniforms[position] >= target_probs[position, token] / draft_probs[position, token]:
            return position
    return len(draft_token_ids)


def greedy(draft_token_ids: Sequence[int], target_logits: Rows) -> list[int]:
    """Temperature 0: drafts are kept while they are the target's argmax."""
    tokens: list[int] = []
    for position, row in enumerate(target_logits):
        tokens.append(int(np.argmax(row)))
        if position == len(draft_token_ids) or tokens[-1] != draft_token_ids[position]:
            break
    return tokens
