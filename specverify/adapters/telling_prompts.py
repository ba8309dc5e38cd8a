"""Finds prompts of a probe pair on which a handful of tokens tells a lot.

An exact enumeration affords only a few tokens from a narrow support. From most prompts those are nearly certain: the
draft is accepted, the option changes nothing, and a pass means nothing. The laws of a probe pair are known, so the
prompts where much happens can be computed instead of hoped for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specverify.core.errors import UsageError
from specverify.core.types import SamplingParams
from specverify.laws.sequence import sequence_law, total_variation
from specverify.probe import Oracle

Law = NDArray[np.float64]
DraftLaw = Callable[[tuple[int, ...]], Law]  # all tokens so far -> law [vocab] of the draft token

# How many candidates are left for the second, dearer look.
_SHORT_LIST = 8
# The first draft token must be accepted sometimes and rejected sometimes.
_LEAST_ACCEPTANCE, _MOST_ACCEPTANCE = 0.3, 0.8
# How often the end token should be the first draft token, and how likely the target should find it there.
_END_SHARE = 0.15


@dataclass(frozen=True)
class TellingPrompt:
    """A prompt, the token that makes the best end token after it, and what they were chosen by.

    least_choice: the smallest probability of any token on any path. acceptance: of the first draft token.
    least_effect: the smallest total variation by which an option moves the law, or by which the law under an option
      is short of certainty, whichever is less.
    """

    token_ids: tuple[int, ...]
    end_token_id: int
    least_choice: float
    acceptance: float
    least_effect: float


def find_telling_prompt(
    target: Oracle,
    draft_law: DraftLaw,
    candidates: Sequence[tuple[int, ...]],
    *,
    plain: SamplingParams,
    options: Sequence[SamplingParams],
    num_tokens: int,
) -> TellingPrompt:
    """The candidate on which every path is likely and every option moves the law of num_tokens tokens most.

    draft_law: what the drafter draws its first token from after a prompt, under `plain`.
    """
    if not candidates:
        raise UsageError("there are no candidate prompts; give at least one")
    ranked = sorted(candidates, key=lambda prompt: _rank(target, draft_law, prompt, plain), reverse=True)
    looked_at = [
        _look(target, draft_law, prompt, plain, options, num_tokens)
        for prompt in ranked[: min(_SHORT_LIST, len(ranked))]
    ]
    return max(looked_at, key=lambda found: min(found.least_effect, 2 * found.least_choice))


def _rank(target: Oracle, draft_law: DraftLaw, prompt: tuple[int, ...], plain: SamplingParams) -> tuple[bool, float]:
    """Whether the first draft token can be both accepted and rejected, then the least likely token of the first two."""
    conditional = target.conditional(prompt, plain)
    first = conditional(())
    overlap = float(np.minimum(first, draft_law(prompt)).sum())
    supports = [first, *(conditional((int(token),)) for token in np.flatnonzero(first))]
    least = min(float(law[law > 0.0].min()) if np.count_nonzero(law) > 1 else 0.0 for law in supports)
    return _LEAST_ACCEPTANCE < overlap < _MOST_ACCEPTANCE, least


def _look(
    target: Oracle,
    draft_law: DraftLaw,
    prompt: tuple[int, ...],
    plain: SamplingParams,
    options: Sequence[SamplingParams],
    num_tokens: int,
) -> TellingPrompt:
    conditional = target.conditional(prompt, plain)
    law = sequence_law(conditional, num_tokens)
    rows = [conditional(sequence[:length]) for sequence in law for length in range(num_tokens)]
    effects = [total_variation(law, sequence_law(target.conditional(prompt, option), num_tokens)) for option in options]
    first, drafted = conditional(()), draft_law(prompt)
    # An end token that both may say at once, but neither is sure of.
    end_scores = np.minimum(np.minimum(first, _END_SHARE), np.minimum(drafted, _END_SHARE)) - 0.01 * first
    return TellingPrompt(
        token_ids=prompt,
        end_token_id=int(end_scores.argmax()),
        least_choice=min(float(row[row > 0.0].min()) if np.count_nonzero(row) > 1 else 0.0 for row in rows),
        acceptance=float(np.minimum(first, drafted).sum()),
        least_effect=min(effects, default=1.0),
    )


def lookup_draft_law(vocab_size: int, *, longest_match: int = 2) -> DraftLaw:
    """What prompt lookup drafts: the token after the first earlier occurrence of the last tokens, a point mass.

    Longer matches go first (transformers: max_matching_ngram_size 2). No match is no law: all zeros.
    """

    def law(token_ids: tuple[int, ...]) -> Law:
        row = np.zeros(vocab_size)
        for length in range(min(longest_match, len(token_ids) - 1), 0, -1):
            ending = token_ids[-length:]
            for start in range(len(token_ids) - length):
                if token_ids[start : start + length] == ending:
                    row[token_ids[start + length]] = 1.0
                    return row
        return row

    return law
