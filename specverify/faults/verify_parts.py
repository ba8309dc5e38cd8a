"""Broken verify functions in numpy: each overrides one method of a correct one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.faults.verify_correct import BlockVerifier, Law, PointMassVerifier, Rows, TokenwiseVerifier


class RatioInverted(TokenwiseVerifier):
    def accept_ratio(self, draft: Rows, target: Rows, position: int, token: int) -> float:
        return float(draft[position, token] / target[position, token]) if target[position, token] > 0.0 else np.inf


class AlwaysAccepts(TokenwiseVerifier):
    def accept_ratio(self, draft: Rows, target: Rows, position: int, token: int) -> float:
        return np.inf


class UniformIsZero(TokenwiseVerifier):
    def uniform(self, rng: np.random.Generator, position: int) -> float:
        return 0.0


class AcceptsSlightlyMore(TokenwiseVerifier):
    def accept_ratio(self, draft: Rows, target: Rows, position: int, token: int) -> float:
        return 1.02 * super().accept_ratio(draft, target, position, token)


class ResamplesFromTarget(TokenwiseVerifier):
    def residual_mass(self, draft: Rows, target: Rows, position: int, token: int) -> Law:
        law: Law = target[position]
        return law


class RejectedTokenExcluded(TokenwiseVerifier):
    def residual_mass(self, draft: Rows, target: Rows, position: int, token: int) -> Law:
        mass = target[position].copy()
        mass[token] = 0.0
        return _or_row(mass, target[position])


class ResidualNotClipped(TokenwiseVerifier):
    def residual_mass(self, draft: Rows, target: Rows, position: int, token: int) -> Law:
        mass: Law = np.abs(target[position] - draft[position])
        return mass


class ResidualInverted(TokenwiseVerifier):
    def residual_mass(self, draft: Rows, target: Rows, position: int, token: int) -> Law:
        mass: Law = np.maximum(draft[position] - target[position], 0.0)
        return mass


class ResidualFloor(TokenwiseVerifier):
    def residual_mass(self, draft: Rows, target: Rows, position: int, token: int) -> Law:
        mass: Law = np.maximum(target[position] - draft[position], 1e-2)
        return mass


class ResidualOfWrongRow(TokenwiseVerifier):
    def residual_mass(self, draft: Rows, target: Rows, position: int, token: int) -> Law:
        mass = np.maximum(target[position + 1] - draft[min(position + 1, len(draft) - 1)], 0.0)
        return _or_row(mass, target[position + 1])


class ResidualArgmax(TokenwiseVerifier):
    def residual_token(
        self, draft: Rows, target: Rows, position: int, token: int, uniform: float, rng: np.random.Generator
    ) -> int:
        return int(np.argmax(self.residual_mass(draft, target, position, token)))


class UniformReused(TokenwiseVerifier):
    def residual_token(
        self, draft: Rows, target: Rows, position: int, token: int, uniform: float, rng: np.random.Generator
    ) -> int:
        mass = self.residual_mass(draft, target, position, token)
        return int(np.searchsorted(np.cumsum(mass / mass.sum())[:-1], uniform, side="right"))


class UniformSharedByPositions(TokenwiseVerifier):
    def uniform(self, rng: np.random.Generator, position: int) -> float:
        if position == 0:
            self.shared = rng.random()
        return self.shared


class BonusOfLastRow(TokenwiseVerifier):
    def bonus_token(self, target: Rows, rng: np.random.Generator) -> int:
        return self.draw(target[-2], rng)


class BonusArgmax(TokenwiseVerifier):
    def bonus_token(self, target: Rows, rng: np.random.Generator) -> int:
        return int(np.argmax(target[-1]))


class TargetRowsShifted(TokenwiseVerifier):
    def laws(self, draft_probs: Rows, target_probs: Rows) -> tuple[Rows, Rows]:
        return draft_probs, np.concatenate([target_probs[1:], target_probs[-1:]])

    def residual_mass(self, draft: Rows, target: Rows, position: int, token: int) -> Law:
        mass = super().residual_mass(draft, target, position, token)
        return _or_row(mass, target[position])


class DraftRowsShifted(TokenwiseVerifier):
    def laws(self, draft_probs: Rows, target_probs: Rows) -> tuple[Rows, Rows]:
        return np.concatenate([draft_probs[:1], draft_probs[:-1]]), target_probs

    def accept_ratio(self, draft: Rows, target: Rows, position: int, token: int) -> float:
        return super().accept_ratio(draft, target, position, token) if draft[position, token] > 0.0 else np.inf

    def residual_mass(self, draft: Rows, target: Rows, position: int, token: int) -> Law:
        mass = super().residual_mass(draft, target, position, token)
        return _or_row(mass, target[position])


class FirstDraftUnchecked(TokenwiseVerifier):
    def accept_ratio(self, draft: Rows, target: Rows, position: int, token: int) -> float:
        return np.inf if position == 0 else super().accept_ratio(draft, target, position, token)


class DraftTemperature(TokenwiseVerifier):
    def laws(self, draft_probs: Rows, target_probs: Rows) -> tuple[Rows, Rows]:
        softer = draft_probs ** (1.0 / 1.1)
        return softer / softer.sum(axis=1, keepdims=True), target_probs

    def residual_mass(self, draft: Rows, target: Rows, position: int, token: int) -> Law:
        mass = super().residual_mass(draft, target, position, token)
        return _or_row(mass, target[position])


class TopPOnTargetOnly(TokenwiseVerifier):
    def laws(self, draft_probs: Rows, target_probs: Rows) -> tuple[Rows, Rows]:
        return draft_probs, np.stack([_nucleus(row, 0.95) for row in target_probs])


class TargetInBfloat16(TokenwiseVerifier):
    def laws(self, draft_probs: Rows, target_probs: Rows) -> tuple[Rows, Rows]:
        bits = target_probs.astype(np.float32).view(np.uint32)
        return draft_probs, ((bits + 0x8000) & 0xFFFF0000).view(np.float32).astype(np.float64)

    def residual_mass(self, draft: Rows, target: Rows, position: int, token: int) -> Law:
        mass = super().residual_mass(draft, target, position, token)
        return _or_row(mass, target[position])


class TargetInFloat16(TargetInBfloat16):
    def laws(self, draft_probs: Rows, target_probs: Rows) -> tuple[Rows, Rows]:
        return draft_probs, target_probs.astype(np.float16).astype(np.float64)


class MixesDraftIntoTarget(TokenwiseVerifier):
    def laws(self, draft_probs: Rows, target_probs: Rows) -> tuple[Rows, Rows]:
        mixed = target_probs.copy()
        mixed[: len(draft_probs)] = 0.7 * target_probs[: len(draft_probs)] + 0.3 * draft_probs
        return draft_probs, mixed


class SoftmaxTwice(TokenwiseVerifier):
    def laws(self, draft_probs: Rows, target_probs: Rows) -> tuple[Rows, Rows]:
        again = np.exp(target_probs)
        return draft_probs, again / again.sum(axis=1, keepdims=True)


class GreedyForAll(TokenwiseVerifier):
    def laws(self, draft_probs: Rows, target_probs: Rows) -> tuple[Rows, Rows]:
        return draft_probs, np.eye(target_probs.shape[1])[target_probs.argmax(axis=1)]


class KeptAfterRejection(TokenwiseVerifier):
    """Returns no count, so that nobody can tell where the drafts that should have gone begin."""

    def answer(self, draft_token_ids: NDArray[np.int64], tokens: list[int], accepted: int) -> Any:
        return [*tokens, *draft_token_ids[accepted + 1 :].tolist()]


class CountOneMore(TokenwiseVerifier):
    def answer(self, draft_token_ids: NDArray[np.int64], tokens: list[int], accepted: int) -> Any:
        is_wrong = 0 < accepted < len(draft_token_ids)
        return {"token_ids": tokens, "num_accepted": accepted + int(is_wrong)}


class InputsChanged(TokenwiseVerifier):
    def residual_mass(self, draft: Rows, target: Rows, position: int, token: int) -> Law:
        target[position] -= draft[position]
        mass: Law = np.maximum(target[position], 0.0, out=target[position])
        return mass


class AcceptsImpossibleAtZero(TokenwiseVerifier):
    """Accepts where the uniform is at most the ratio: a token of probability 0 passes when the uniform is 0."""

    def accept_ratio(self, draft: Rows, target: Rows, position: int, token: int) -> float:
        return float(np.nextafter(super().accept_ratio(draft, target, position, token), np.inf))


class InverseCdfOverruns(TokenwiseVerifier):
    """Inverse CDF in float32 without a guard: the running sum may end below 1, and the token after the last wins."""

    def draw(self, mass: Law, rng: np.random.Generator) -> int:
        cumulative = np.cumsum((mass / mass.sum()).astype(np.float32) * np.float32(1.0 - 2e-7))
        return int(np.searchsorted(cumulative, rng.random(), side="right"))


class BlockStopsAtFirstFailure(BlockVerifier):
    def stops_at_first_failure(self) -> bool:
        return True


class PointMassKeepsDraft(PointMassVerifier):
    def others(self, law: Law, token: int) -> Law:
        return law


def _nucleus(row: Law, top_p: float) -> Law:
    order = np.argsort(-row, kind="stable")
    kept = order[: int(np.searchsorted(np.cumsum(row[order]), top_p)) + 1]
    law = np.zeros_like(row)
    law[kept] = row[kept]
    nucleus: Law = law / law.sum()
    return nucleus


def _or_row(mass: Law, row: Law) -> Law:
    return mass if mass.sum() > 0.0 else row
