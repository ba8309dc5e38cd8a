"""Building blocks of the named mistakes: the token-wise rule with one part, or one row, replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specverify.laws.residual import accept_ratio, normalised
from specverify.laws.steps import Law, StepRule, assembled_law, block_quantities
from specverify.laws.validate import checked_step, required_draft

Rows: TypeAlias = NDArray[np.float64]
Parts: TypeAlias = tuple[Rows, Rows, Rows]
"""Acceptance [k], replacement [k, vocab] and bonus [vocab] of a token-wise step."""


def rule_of(parts: Callable[[list[int], Rows, Rows], Parts]) -> StepRule:
    """A token-wise rule from its three parts; without draft_probs the draft is a point mass on its tokens."""

    def rule(draft_token_ids: Sequence[int], draft_probs: ArrayLike | None, target_probs: ArrayLike) -> Law:
        tokens, draft, target = checked_step(draft_token_ids, draft_probs, target_probs)
        if draft is None:
            draft = np.eye(target.shape[1])[list(tokens)]
        accept, replacement, bonus = parts(list(tokens), draft, target)
        return assembled_law(tokens, accept, replacement, bonus)

    return rule


def correct_parts(tokens: list[int], draft: Rows, target: Rows) -> Parts:
    """The right parts, but for any non-negative rows: mistakes change a row and go on as if it were a law."""
    positions = np.arange(len(tokens))
    accept = accept_ratio(draft[positions, tokens], target[positions, tokens])
    residual = normalised(np.maximum(target[:-1] - draft, 0.0), otherwise=normalised(target[:-1], otherwise=draft))
    return accept, residual, target[-1] / target[-1].sum()


def with_rows(wrong: Callable[[Rows, Rows], tuple[Rows, Rows]]) -> StepRule:
    """The right rule on wrong (draft, target) rows."""
    return rule_of(
        lambda tokens, draft, target: correct_parts(tokens, *(wrong(draft, target) if tokens else (draft, target)))
    )


def with_accept(accept_of: Callable[[Rows, Rows], Rows]) -> StepRule:
    """The right rule with another acceptance: a function of the drafted tokens' draft and target probability."""

    def parts(tokens: list[int], draft: Rows, target: Rows) -> Parts:
        positions = np.arange(len(tokens))
        _, residual, bonus = correct_parts(tokens, draft, target)
        return accept_of(draft[positions, tokens], target[positions, tokens]), residual, bonus

    return rule_of(parts)


def with_accept_row(shift: int) -> StepRule:
    """The right rule, but each draft token is tested against the target row so many positions on."""

    def parts(tokens: list[int], draft: Rows, target: Rows) -> Parts:
        positions = np.arange(len(tokens))
        _, residual, bonus = correct_parts(tokens, draft, target)
        rows = np.clip(positions + shift, 0, len(tokens))
        return accept_ratio(draft[positions, tokens], target[rows, tokens]), residual, bonus

    return rule_of(parts)


def with_replacement(mass_of: Callable[[list[int], Rows, Rows], Rows]) -> StepRule:
    """The right rule with another mass for the replacement of a rejected token, [k, vocab]; normalised here.

    Where the mass is all zero (equal rows, say) the target's row stands in.
    """

    def parts(tokens: list[int], draft: Rows, target: Rows) -> Parts:
        accept, _, bonus = correct_parts(tokens, draft, target)
        return accept, normalised(mass_of(tokens, draft, target), otherwise=target[:-1]), bonus

    return rule_of(parts)


def with_bonus(bonus_of: Callable[[Rows], Rows]) -> StepRule:
    def parts(tokens: list[int], draft: Rows, target: Rows) -> Parts:
        accept, residual, _ = correct_parts(tokens, draft, target)
        return accept, residual, bonus_of(target)

    return rule_of(parts)


def one_hot(rows: Rows) -> Rows:
    best: Rows = (np.arange(rows.shape[-1]) == rows.argmax(axis=-1)[..., None]).astype(np.float64)
    return best


def without_drafted(tokens: list[int], draft: Rows, target: Rows) -> Rows:
    mass = target[:-1].copy()
    mass[np.arange(len(tokens)), tokens] = 0.0
    return mass


def residual_of_next_row(tokens: list[int], draft: Rows, target: Rows) -> Rows:
    next_draft = draft[np.minimum(np.arange(len(tokens)) + 1, len(tokens) - 1)] if tokens else draft
    return np.maximum(target[1:] - next_draft, 0.0)


def residual_filled_up(tokens: list[int], draft: Rows, target: Rows) -> Rows:
    """The residual with its last entry raised so that the row sums to 1: a search of its running sum for a uniform."""
    mass = np.maximum(target[:-1] - draft, 0.0)
    mass[:, -1] += 1.0 - mass.sum(axis=-1)
    return mass


def inverse_cdf_of_rejecting_uniform(tokens: list[int], draft: Rows, target: Rows) -> Rows:
    """The residual's inverse CDF, in token order, read at the uniform that rejected: one between accept and 1."""
    accept, residual, _ = correct_parts(tokens, draft, target)
    upper = np.cumsum(residual, axis=-1)
    upper[..., -1] = 1.0
    edges = np.maximum(np.concatenate([np.zeros((len(tokens), 1)), upper], axis=1), accept[:, None])
    widths: Rows = np.maximum(np.diff(edges, axis=-1), 0.0)
    return widths


def shared_uniform(tokens: list[int], draft: Rows, target: Rows) -> Parts:
    """One uniform for all positions: what passed the first ratio passes every larger one."""
    accept, residual, bonus = correct_parts(tokens, draft, target)
    reached = np.minimum.accumulate(np.concatenate([[1.0], accept]))
    return accept_ratio(reached[:-1], reached[1:]), residual, bonus


def block_stopped_step(draft_token_ids: Sequence[int], draft_probs: ArrayLike | None, target_probs: ArrayLike) -> Law:
    """Block verification's tests and finals, but the first failing test ends the step."""
    tokens, draft, target = checked_step(draft_token_ids, draft_probs, target_probs)
    passes, finals = block_quantities(tokens, required_draft(draft, "block verification"), target)
    return assembled_law(tokens, passes[1:], finals[:-1], finals[-1])


def softened(law: Rows, temperature: float) -> Rows:
    mass = law ** (1.0 / temperature)
    rows: Rows = mass / mass.sum(axis=-1, keepdims=True)
    return rows


def nucleus(law: Rows, top_p: float) -> Rows:
    """The smallest set of likeliest tokens that reaches top_p, renormalised; ties by token id."""
    order = np.argsort(-law, axis=-1, kind="stable")
    before = np.cumsum(np.take_along_axis(law, order, axis=-1), axis=-1) - np.take_along_axis(law, order, axis=-1)
    is_kept = np.zeros(law.shape, dtype=bool)
    np.put_along_axis(is_kept, order, before < top_p, axis=-1)
    return normalised(np.where(is_kept, law, 0.0), otherwise=law)


def bfloat16_rounded(rows: Rows) -> Rows:
    """Rows rounded to bfloat16 (nearest, ties to even), as float64; not renormalised."""
    bits = np.ascontiguousarray(rows, dtype=np.float32).view(np.uint32).astype(np.int64)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    rounded: Rows = kept.astype(np.uint32).view(np.float32).astype(np.float64).reshape(rows.shape)
    return rounded


def softmax_of_probabilities(target: Rows) -> Rows:
    mass = np.exp(target)
    rows: Rows = mass / mass.sum(axis=-1, keepdims=True)
    return rows
