"""What the log-probability of a token can mean, and what was reported beside what each meaning wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specverify.checks.evidence import Run
from specverify.core.types import SamplingParams, Step, Trace
from specverify.laws.sampling import processed_logits

Array = NDArray[np.float64]

# Not a convention: what plain decoding reported, where nobody knows the target's law.
PLAIN = "plain"


@dataclass(frozen=True)
class Convention:
    """What an engine reports throughout. sampled, greedy: the reading of a row of logits, see `read`."""

    sampled: str
    greedy: str
    text: str

    def reading(self, sampling: SamplingParams) -> str:
        return self.greedy if sampling.is_greedy else self.sampled


# The likeliest first: where two fit, the first one is named. Greedy tokens have no temperature to be divided by, so
# engines that go by the sampling parameters report the raw value there, or certainty.
CONVENTIONS: Mapping[str, Convention] = {
    "raw": Convention("raw", "raw", "those of the target's logits, before temperature and filters"),
    "processed": Convention("processed", "raw", "those of the law that a token is drawn from, greedily of the logits"),
    "processed, certain": Convention("processed", "certain", "those of the law that a token is drawn from"),
    "tempered": Convention("tempered", "raw", "those at the request's temperature, before filters"),
    "tempered, certain": Convention("tempered", "certain", "those at the request's temperature, greedily 0"),
}


def read(logits: Array, sampling: SamplingParams, reading: str, allowed: float) -> Array:
    """Log-probabilities [n, vocab] of logits [n, vocab] in this reading; NaN where rounding decides about them.

    raw: at temperature 1. tempered: at the request's temperature. processed: after top-k too, which is where rounding
    decides, if the last token kept and the next one are closer than `allowed` apart on both sides. certain: 0.
    """
    if reading == "certain":
        return np.zeros_like(logits)
    if reading == "raw":
        return _log_softmax(logits)
    if reading == "tempered":
        return _log_softmax(logits / sampling.temperature)
    law = _log_softmax(processed_logits(logits, sampling))
    law[np.isneginf(law)] = np.nan
    if 0 < sampling.top_k < logits.shape[1]:
        ordered = np.sort(logits, axis=1)
        law[ordered[:, -sampling.top_k] - ordered[:, -sampling.top_k - 1] <= 2.0 * allowed] = np.nan
    return law


def _log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(axis=1, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def is_complete(trace: Trace) -> bool:
    """Whether there is an entry for each token."""
    return trace.log_probs is not None and len(trace.log_probs) == len(trace.token_ids)


@dataclass(frozen=True, eq=False)
class Held:
    """One trace whose entries are as many as its tokens.

    wanted: by convention, [tokens]; NaN where nothing is held against the entry.
    """

    run: Run
    trace: Trace
    wanted: Mapping[str, Array]

    @property
    def reported(self) -> Array:
        return np.asarray(self.trace.log_probs, dtype=np.float64)

    @property
    def num_judged(self) -> int:
        return int(np.isfinite(next(iter(self.wanted.values()))).sum())

    def wrong(self, convention: str, allowed: float) -> list[int]:
        """Tokens whose entry is another one than the convention wants."""
        gap = np.abs(self.reported - self.wanted[convention])  # -inf reported is infinitely wrong
        return [int(index) for index in np.flatnonzero(gap > allowed)]


@dataclass(frozen=True, eq=False)
class Wrong:
    """One token whose log-probability is wrong. wanted: by the convention that fits best."""

    held: Held
    index: int
    wanted: float

    @property
    def reported(self) -> float:
        return float(self.held.reported[self.index])

    @property
    def token(self) -> int:
        return self.held.trace.token_ids[self.index]

    @property
    def step(self) -> tuple[Step, int] | None:
        """The step that emitted it and its place among the step's tokens."""
        return step_of(self.held.trace, self.index)


def step_of(trace: Trace, index: int) -> tuple[Step, int] | None:
    """The step that emitted new token number index, and its place there; None for prefill and plain decoding."""
    position = len(trace.request.prompt_token_ids) + index
    for step in trace.steps:
        if step.start_position <= position < step.start_position + len(step.token_ids):
            return step, position - step.start_position
    return None


def kind_of(run: Run, trace: Trace, index: int) -> str:
    """What the token was to the engine."""
    if not run.drafter:
        return "tokens of plain decoding"
    found = step_of(trace, index)
    if found is None:
        return "tokens of prefill" if trace.steps else "tokens with speculation"
    return "accepted draft tokens" if found[1] < found[0].num_accepted else "final tokens"
