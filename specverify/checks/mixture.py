"""Whether sampled tokens follow a fixed mixture of draft and target law: the mark of a lossy option."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize_scalar

from specverify.checks.samples import ScoredTokens
from specverify.stats.pit import PitStream

# A share below this, or this close to 1, is another mistake than mixing.
_LEAST_SHARE = 0.02
# With the mixture in place of the target the evidence must all but vanish (log of the e-value).
_EXPLAINED = 3.0
_FEWEST_TOKENS = 200


def share_of_draft(blocks: Sequence[ScoredTokens], num_draft_tokens: int, rng: np.random.Generator) -> float | None:
    """Share of the draft law in the tokens that draft tokens were verified for; None where no share explains them.

    The share is the likeliest one; it explains the tokens if they follow the mixture as well as a lossless engine's
    follow the target. Tokens from prefill and bonus tokens are left out: no draft token competes with them.
    """
    known = [block for block in blocks if block.draft_laws is not None and len(block.tokens)]
    if not known:
        return None
    slots = np.concatenate([block.slots for block in known])
    verified = (slots >= 1) & (slots <= num_draft_tokens)
    tokens = np.concatenate([block.tokens for block in known])[verified]
    if len(tokens) < _FEWEST_TOKENS:
        return None
    target = np.concatenate([block.laws for block in known])[verified]
    draft = np.concatenate([np.asarray(block.draft_laws) for block in known])[verified]
    places = np.arange(len(tokens))
    at_target, at_draft = target[places, tokens], draft[places, tokens]

    def unlikelihood(share: float) -> float:
        return -float(np.log(np.maximum((1.0 - share) * at_target + share * at_draft, 1e-300)).sum())

    share = float(minimize_scalar(unlikelihood, bounds=(0.0, 1.0), method="bounded").x)
    if not _LEAST_SHARE < share < 1.0 - _LEAST_SHARE:
        return None
    mixed = PitStream(target.shape[1])
    mixed.update(tokens, (1.0 - share) * target + share * draft, rng=rng, draft_laws=draft)
    return share if mixed.num_impossible == 0 and mixed.log_e < _EXPLAINED else None
