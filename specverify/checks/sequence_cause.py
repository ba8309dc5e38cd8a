"""Which known mistake predicts the law that was seen: a mixture of draft and target, or a named verify mistake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from specverify.core.types import Request
from specverify.laws.mistakes import MISTAKES
from specverify.laws.sequence import total_variation
from specverify.laws.steps import Law, StepRule, step_law
from specverify.laws.tree import Conditional

Tokens: TypeAlias = tuple[int, ...]

# A share of the draft law below this is not told from rounding.
_LEAST_SHARE = 1e-3


def conditional_of(law: Mapping[Tokens, float], vocab_size: int) -> Conditional:
    """The next-token laws of a law over sequences. A prefix that never occurs has a row of zeros."""
    sums: dict[Tokens, NDArray[np.float64]] = {}
    for tokens, probability in law.items():
        for index, token in enumerate(tokens):
            row = sums.setdefault(tokens[:index], np.zeros(vocab_size))
            if 0 <= token < vocab_size:
                row[token] += probability

    def conditional(prefix: Tokens) -> NDArray[np.float64]:
        row = sums.get(prefix)
        if row is None or not row.sum() > 0.0:
            return np.zeros(vocab_size)
        normalised: NDArray[np.float64] = row / row.sum()
        return normalised

    return conditional


def likely_cause(
    law: Mapping[Tokens, float],
    request: Request,
    target: Conditional,
    draft: Conditional | None,
    prefix: Tokens,
    *,
    num_draft_tokens: int,
    tolerance: float,
) -> str:
    """A sentence, only where the law that the mistake predicts is the law that was seen."""
    if draft is None:
        return ""
    try:
        share = mixture_share(conditional_of(law, len(target(())))(prefix), target(prefix), draft(prefix), tolerance)
    except KeyError:  # the draft law is known at some places only
        return ""
    if share is not None:
        return (
            f"lossy: what is emitted is {1 - share:.3g} x target + {share:.3g} x draft, which fits to {tolerance:.0e}. "
            "If that is intended, declare lossy_by_design."
        )
    fitting = []
    for mistake in MISTAKES:
        for room in (1, 0):
            try:
                predicted = sequence_law_of_rule(
                    mistake.rule, draft, target, request, num_draft_tokens=num_draft_tokens, room=room
                )
            except KeyError:
                return ""
            if total_variation(predicted, law) <= tolerance:
                fitting.append(mistake)
                break
    if len(fitting) != 1:
        return ""
    sentence = fitting[0].sentence.rstrip(".")
    return f"the verifier {sentence}. That predicts this law, of all {len(MISTAKES)} known mistakes it alone."


def mixture_share(
    observed: NDArray[np.float64], target: NDArray[np.float64], draft: NDArray[np.float64], tolerance: float
) -> float | None:
    """Share of the draft law in what was emitted, where emitted = (1 - share) x target + share x draft fits."""
    size = max(len(observed), len(target), len(draft))
    seen, wanted, drafted = (np.pad(np.asarray(row), (0, size - len(row))) for row in (observed, target, draft))
    direction = drafted - wanted
    length = float(direction @ direction)
    if length < tolerance:
        return None
    share = float((seen - wanted) @ direction) / length
    misfit = 0.5 * float(np.abs(seen - wanted - share * direction).sum())
    if misfit > 10 * tolerance or not _LEAST_SHARE < share <= 1.0 + tolerance:
        return None
    return share


def sequence_law_of_rule(
    rule: StepRule, draft: Conditional, target: Conditional, request: Request, *, num_draft_tokens: int, room: int
) -> dict[Tokens, float]:
    """Law of a whole call: one token from prefill, then steps with this rule until the limit or an end token.

    room: 1 where the engine drafts no more than leaves room for the final token, 0 where it fills up to the limit.
    """
    length, ends = request.max_new_tokens, request.eos_token_ids
    finished: dict[Tokens, float] = {}
    pending: dict[Tokens, float] = {(): 1.0}
    while pending:
        tokens, weight = pending.popitem()
        if len(tokens) >= length or (tokens and tokens[-1] in ends):
            finished[tokens] = finished.get(tokens, 0.0) + weight
            continue
        if not tokens:
            row = target(())
            emitted_law: Law = {(int(token),): float(row[token]) for token in np.flatnonzero(row)}
        else:
            num_draft = max(0, min(num_draft_tokens, length - len(tokens) - room))
            emitted_law = step_law(rule, draft, target, num_draft, prefix=tokens)
        for emitted, probability in emitted_law.items():
            longer = (*tokens, *_cut(emitted, length - len(tokens), ends))
            pending[longer] = pending.get(longer, 0.0) + weight * probability
    return finished


def _cut(emitted: Tokens, limit: int, ends: Tokens) -> Tokens:
    """What survives of a step: up to the first end token, within the limit."""
    for index, token in enumerate(emitted[:limit]):
        if token in ends:
            return emitted[: index + 1]
    return emitted[:limit]
