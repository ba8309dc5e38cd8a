"""Which known mistake, or which mixture of target and draft, explains sampled tokens that left the target's laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from specverify.checks.samples import ScoredTokens
from specverify.laws.mistakes import mistake_named
from specverify.laws.token_laws import TOKEN_LAWS
from specverify.stats.pit import PitStream

Array = NDArray[np.float64]

# A share below this, or this close to 1, is another mistake than mixing.
_LEAST_SHARE = 0.02
# With another law in place of the target the evidence must all but vanish (log of the e-value).
_EXPLAINED = 3.0
# An explanation that makes the tokens less likely than another by this factor (its log) is only near the truth.
_AS_LIKELY = 3.0
_FEWEST_TOKENS = 200
_NAMED = 2


@dataclass(frozen=True, eq=False)
class _Verified:
    """Tokens [n] that draft tokens were verified for, with both laws there, [n, vocab]."""

    tokens: NDArray[np.int64]
    target: Array
    draft: Array

    def log_likelihood(self, law: Array) -> float:
        return float(np.log(np.maximum(law[np.arange(len(self.tokens)), self.tokens], 1e-300)).sum())

    def is_explained_by(self, law: Array, rng: np.random.Generator) -> bool:
        """Whether the tokens follow these laws as well as a lossless engine's follow the target's."""
        stream = PitStream(law.shape[1])
        stream.update(self.tokens, law, rng=rng, draft_laws=self.draft)
        return stream.num_impossible == 0 and stream.log_e < _EXPLAINED


def stream_cause(blocks: Sequence[ScoredTokens], num_draft_tokens: int, rng: np.random.Generator) -> str:
    """A sentence, only where what it says predicts the tokens; empty without draft laws.

    A known mistake goes before a mixture of target and draft, which has a free share and so explains more with less;
    the mixture is named where it makes the tokens clearly likelier. Tokens from prefill and bonus tokens are left out:
    no draft token competes with them.
    """
    seen = _verified(blocks, num_draft_tokens)
    if seen is None:
        return ""
    laws = {name: law(seen.target, seen.draft) for name, law in TOKEN_LAWS.items()}
    likely = {name: seen.log_likelihood(law) for name, law in laws.items() if seen.is_explained_by(law, rng)}
    share = _share_of_draft(seen, rng)
    mixed = -np.inf if share is None else seen.log_likelihood((1.0 - share) * seen.target + share * seen.draft)
    best = max([*likely.values(), mixed])
    fitting = [name for name, value in likely.items() if value > best - _AS_LIKELY]
    if 1 <= len(fitting) <= _NAMED:
        sentence = ", or ".join(mistake_named(name).sentence for name in fitting)
        others = len(TOKEN_LAWS) - len(fitting)
        return f"the verifier {sentence}. That explains the tokens; {others} other mistakes that were compared do not."
    if share is None or fitting:
        return ""
    return (
        f"lossy: verified tokens follow {1 - share:.2g} x target + {share:.2g} x draft, which explains them, and none "
        f"of {len(TOKEN_LAWS)} known mistakes of a verifier does. Only an engine that is meant to do so may declare "
        "lossy_by_design."
    )


def _verified(blocks: Sequence[ScoredTokens], num_draft_tokens: int) -> _Verified | None:
    known = [block for block in blocks if block.draft_laws is not None and len(block.tokens)]
    if not known:
        return None
    slots = np.concatenate([block.slots for block in known])
    tokens = np.concatenate([block.tokens for block in known])
    target = np.concatenate([block.laws for block in known])
    draft = np.concatenate([np.asarray(block.draft_laws) for block in known])
    inside = (tokens >= 0) & (tokens < target.shape[1])
    chosen = inside & (slots >= 1) & (slots <= num_draft_tokens) & np.isfinite(draft).all(axis=1)
    if chosen.sum() < _FEWEST_TOKENS:
        return None
    return _Verified(tokens[chosen], target[chosen], draft[chosen])


def _share_of_draft(seen: _Verified, rng: np.random.Generator) -> float | None:
    """The likeliest share of the draft law in the tokens; None where no share explains them."""
    places = np.arange(len(seen.tokens))
    at_target, at_draft = seen.target[places, seen.tokens], seen.draft[places, seen.tokens]

    def unlikelihood(share: float) -> float:
        return -float(np.log(np.maximum((1.0 - share) * at_target + share * at_draft, 1e-300)).sum())

    share = float(minimize_scalar(unlikelihood, bounds=(0.0, 1.0), method="bounded").x)
    if not _LEAST_SHARE < share < 1.0 - _LEAST_SHARE:
        return None
    mixture = (1.0 - share) * seen.target + share * seen.draft
    return share if seen.is_explained_by(mixture, rng) else None
