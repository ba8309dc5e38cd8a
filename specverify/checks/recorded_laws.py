"""Draft laws that an engine recorded in its steps, brought to the tokens that were emitted in their places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from specverify.core.types import Step, Trace

Array = NDArray[np.float64]

# Rows summing to 1 within half precision's rounding; one that does not is no law: the engine left tokens out of it.
_SUM = 0.02
_POINT_MASS = 1.0 - 1e-6


def recorded_draft_laws(traces: Sequence[Trace], vocab_size: int) -> Array | None:
    """Draft laws of the new tokens of all traces, [tokens, vocab]; rows of NaN where none is known, None if all are.

    Row i of a step is the draft law of the token at that place after the draft tokens before it, which were accepted
    if a token was emitted there at all. It was known before that token was accepted or replaced, so a test may order
    tokens by it. There is no row for prefill, for the bonus token, for steps without drafts, and none is taken
    * from a tree, whose rows follow the siblings that were tried, not the text,
    * where all is on one token: that tells which token was drafted, and a drafter that shares its randomness with the
      verifier may be lossless given the text alone,
    * from any step of these traces, if one has a row of another size or one that is no law.
    """
    rows = np.full((sum(len(trace.token_ids) for trace in traces), vocab_size), np.nan)
    first = 0
    for trace in traces:
        for step in trace.steps:
            if step.draft_probs is None or step.parents is not None or not step.num_draft_tokens:
                continue
            laws = _laws(step, vocab_size)
            if laws is None:
                return None
            start = step.start_position - len(trace.request.prompt_token_ids)
            num_known = min(len(laws), step.num_accepted + 1, len(step.token_ids), len(trace.token_ids) - start)
            if start >= 0 and num_known > 0:
                rows[first + start : first + start + num_known] = laws[:num_known]
        first += len(trace.token_ids)
    rows[rows.max(axis=1) >= _POINT_MASS] = np.nan
    return None if np.isnan(rows).all() else rows


def _laws(step: Step, vocab_size: int) -> Array | None:
    """The step's rows, each summing to 1; None where one is no law over this vocabulary."""
    laws = np.asarray(step.draft_probs, dtype=np.float64)
    if laws.shape != (step.num_draft_tokens, vocab_size) or not np.isfinite(laws).all() or (laws < 0.0).any():
        return None
    sums = laws.sum(axis=1, keepdims=True)
    return laws / sums if (np.abs(sums - 1.0) <= _SUM).all() else None
