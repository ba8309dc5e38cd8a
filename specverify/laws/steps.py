"""Laws of one verify step in closed form: what correct verifiers emit, for given draft tokens and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specverify.core.errors import UsageError
from specverify.laws.residual import accept_ratio, normalised, residual
from specverify.laws.tree import Conditional, path_rows
from specverify.laws.validate import checked_law, checked_step, required_draft

Law: TypeAlias = dict[tuple[int, ...], float]
"""Emitted tuple -> probability. Impossible tuples are left out."""

StepRule: TypeAlias = Callable[[Sequence[int], ArrayLike | None, ArrayLike], Law]
"""(draft_token_ids [k], draft_probs [k, vocab] or None, target_probs [k + 1, vocab]) -> law of the emitted tuple."""


def chain_step(draft_token_ids: Sequence[int], draft_probs: ArrayLike | None, target_probs: ArrayLike) -> Law:
    """Token-wise rejection: each draft token accepted with min(1, target / draft), the first rejected one replaced.

    Source: Leviathan et al. 2023, arXiv 2211.17192, algorithm 1; Chen et al. 2023, arXiv 2302.01318, algorithm 2.
    """
    tokens, draft_rows, target = checked_step(draft_token_ids, draft_probs, target_probs)
    draft = required_draft(draft_rows, "chain_step")
    positions = np.arange(len(tokens))
    accept = accept_ratio(draft[positions, list(tokens)], target[positions, list(tokens)])
    return assembled_law(tokens, accept, residual(draft, target[:-1]) if tokens else draft, target[-1])


def block_step(draft_token_ids: Sequence[int], draft_probs: ArrayLike | None, target_probs: ArrayLike) -> Law:
    """Block verification: the longest draft prefix that passes is kept, although a shorter one may have failed.

    Source: Sun et al. 2024, arXiv 2403.10444, algorithm 2.
    """
    tokens, draft_rows, target = checked_step(draft_token_ids, draft_probs, target_probs)
    draft = required_draft(draft_rows, "block_step")
    passes, finals = block_quantities(tokens, draft, target)
    law: Law = {}
    remaining = 1.0
    for num_accepted in range(len(tokens), -1, -1):
        _add_final(law, tokens[:num_accepted], remaining * passes[num_accepted], finals[num_accepted])
        remaining *= 1.0 - passes[num_accepted]
    return law


def block_quantities(
    tokens: tuple[int, ...], draft: NDArray[np.float64], target: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For every draft prefix length i: the probability that its test passes [k + 1], and its final law [k + 1, vocab].

    Prefix length 0 always passes. Source: Sun et al. 2024, arXiv 2403.10444, equations 3 and 4.
    """
    num_draft_tokens = len(tokens)
    passes = np.ones(num_draft_tokens + 1)
    finals = np.array(target)
    weight = 1.0  # the running product of ratios, cut at 1 after each factor
    for i in range(num_draft_tokens + 1):
        if i > 0:
            drafted, wanted = draft[i - 1, tokens[i - 1]], target[i - 1, tokens[i - 1]]
            # A token that the draft law calls impossible passes if the target allows it, as in accept_ratio.
            weight = min(1.0, weight * wanted / drafted) if drafted > 0.0 else float(weight * wanted > 0.0)
        if i == num_draft_tokens:
            passes[i] = weight if i > 0 else 1.0
            continue
        mass = np.maximum(weight * target[i] - draft[i], 0.0)
        finals[i] = normalised(mass, otherwise=target[i])
        denominator = mass.sum() + 1.0 - weight
        # No mass and weight 1: both rows agree, so the next prefix passes for certain and this one is never final.
        passes[i] = mass.sum() / denominator if denominator > 0.0 else 1.0
    passes[0] = 1.0
    return passes, finals


def point_mass_step(draft_token_ids: Sequence[int], draft_probs: ArrayLike | None, target_probs: ArrayLike) -> Law:
    """A draft without a law (n-gram): accepted with its target probability, else another token by the target.

    draft_probs is ignored. Lossless for any proposer, at the price of acceptance. It is also the law of sampling every
    position from the target for as long as the sample equals the draft token.
    """
    tokens, _, target = checked_step(draft_token_ids, None, target_probs)
    positions = np.arange(len(tokens))
    accept = target[positions, list(tokens)]
    others = target[:-1].copy()
    others[positions, list(tokens)] = 0.0
    # A certain draft token is never rejected: its row of others has no mass and no weight.
    return assembled_law(tokens, accept, normalised(others, otherwise=target[:-1]), target[-1])


def assembled_law(
    tokens: tuple[int, ...], accept: NDArray[np.float64], replacement: NDArray[np.float64], bonus: NDArray[np.float64]
) -> Law:
    """Law of a token-wise step from its parts.

    accept: [k], given that the tokens before were accepted. replacement: [k, vocab], law of the token in place of a
    rejected one. bonus: [vocab], law of the token after k accepted ones.
    """
    law: Law = {}
    reached = 1.0
    for i in range(len(tokens)):
        _add_final(law, tokens[:i], reached * (1.0 - accept[i]), replacement[i])
        reached *= float(accept[i])
    _add_final(law, tokens, reached, bonus)
    return law


DraftPath: TypeAlias = tuple[tuple[int, ...], float, NDArray[np.float64], NDArray[np.float64]]
"""Draft tokens, their probability, draft rows [k, vocab] and target rows [k + 1, vocab]."""


def step_law(rule: StepRule, draft: Conditional, target: Conditional, num_draft_tokens: int) -> Law:
    """Law of what a step emits when its draft tokens come from the draft law: the rule, summed over draft paths.

    The rule sees the draft rows. Cost: (support of a draft row) ** num_draft_tokens calls of the rule.
    """
    return law_over_paths(rule, paths_with_rows(draft, target, num_draft_tokens))


def paths_with_rows(
    draft: Conditional, target: Conditional, num_draft_tokens: int, *, prefix: tuple[int, ...] = ()
) -> Iterator[DraftPath]:
    """Every draft with its probability and the rows along it."""
    for tokens, weight in draft_paths(draft, num_draft_tokens, prefix=prefix):
        yield tokens, weight, path_rows(draft, tokens, prefix=prefix)[:-1], path_rows(target, tokens, prefix=prefix)


def law_over_paths(rule: StepRule, paths: Iterable[DraftPath]) -> Law:
    """What the rule emits, averaged over drafts."""
    law: Law = {}
    for tokens, weight, draft_rows, target_rows in paths:
        for emitted, probability in rule(tokens, draft_rows, target_rows).items():
            law[emitted] = law.get(emitted, 0.0) + weight * probability
    return law


def draft_paths(
    draft: Conditional, num_draft_tokens: int, *, prefix: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every draft of that many tokens that the draft law can produce, with its probability."""
    if num_draft_tokens < 0:
        raise UsageError(f"num_draft_tokens is {num_draft_tokens}; give 0 or more")
    pending: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while pending:
        tokens, weight = pending.pop()
        if len(tokens) == num_draft_tokens:
            yield tokens, weight
            continue
        row = checked_law(draft(prefix + tokens), f"draft law after {prefix + tokens}")
        pending += [((*tokens, int(token)), weight * float(row[token])) for token in np.flatnonzero(row)[::-1]]


def _add_final(law: Law, accepted: tuple[int, ...], weight: float, final: NDArray[np.float64]) -> None:
    if weight <= 0.0:
        return
    mass = weight * final
    for token in np.flatnonzero(mass):
        emitted = (*accepted, int(token))
        law[emitted] = law.get(emitted, 0.0) + float(mass[token])
