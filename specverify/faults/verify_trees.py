"""Recursive rejection over draft trees, correct and broken: several candidates for a position, tried in turn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specverify.faults.verify_correct import Law, Rows


class TreeVerifier:
    """Candidates are tried in order; each rejection leaves the residual as the law for the next one.

    draft_probs [n, vocab] holds for each candidate the law it was drawn from, given the siblings before it, so that
    drawing with and without replacement are the same rule.

    Source: Miao et al. 2023, SpecInfer, arXiv 2305.09781, algorithm 2.
    """

    def __call__(
        self,
        draft_token_ids: NDArray[np.int64],
        parents: NDArray[np.int64],
        draft_probs: Rows,
        target_probs: Rows,
        rng: np.random.Generator,
    ) -> tuple[list[int], int]:
        tokens: list[int] = []
        node = -1
        while True:
            law = target_probs[node + 1]
            accepted = None
            for child in np.flatnonzero(parents == node).tolist():
                token = int(draft_token_ids[child])
                if rng.random() * draft_probs[child, token] < self.tested(law, target_probs[node + 1])[token]:
                    accepted = child
                    break
                law = self.after_rejection(law, draft_probs[child], token, target_probs[node + 1])
            if accepted is None:
                return [*tokens, int(rng.choice(len(law), p=law / law.sum()))], len(tokens)
            tokens.append(int(draft_token_ids[accepted]))
            node = accepted

    def tested(self, law: Law, target: Law) -> Law:
        return law

    def after_rejection(self, law: Law, draft: Law, token: int, target: Law) -> Law:
        mass: Law = np.maximum(law - draft, 0.0)
        return mass / mass.sum() if mass.sum() > 0.0 else target


class SiblingsAgainstTarget(TreeVerifier):
    """Tests every sibling against the target law itself, as if none had been rejected before."""

    def tested(self, law: Law, target: Law) -> Law:
        return target


class SiblingsNotRenormalised(TreeVerifier):
    """Takes the residual, but leaves it unnormalised for the next sibling's test."""

    def after_rejection(self, law: Law, draft: Law, token: int, target: Law) -> Law:
        mass: Law = np.maximum(law - draft, 0.0)
        return mass if mass.sum() > 0.0 else target
