"""Where in its verify call a new token stands: strata for statistics that are known before the token is drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specverify.core.types import Trace


def slots_of(trace: Trace, num_draft_tokens: int) -> NDArray[np.int64]:
    """Place of every new token: 0 from prefill, 1 + i for the token number i of its verify call, and the last place of
    all for a token of a step without a draft.

    Known before the token is drawn, hence a stratum that every lossless method allows.
    """
    slots = np.zeros(len(trace.token_ids), dtype=np.int64)
    prompt_length = len(trace.request.prompt_token_ids)
    for step in trace.steps:
        start = step.start_position - prompt_length
        for index in range(len(step.token_ids)):
            if 0 <= start + index < len(slots):
                without = num_slots_of(num_draft_tokens) - 1
                slots[start + index] = 1 + min(index, num_draft_tokens) if step.draft_token_ids else without
    return slots


def num_slots_of(num_draft_tokens: int) -> int:
    """Places that slots_of tells apart: prefill, the draft tokens, the bonus token, steps without a draft."""
    return num_draft_tokens + 3
