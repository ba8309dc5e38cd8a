"""What a set of traces exercised, as counters: a claim about rejections means nothing where none happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from specverify.core.types import Trace


def coverage(traces: Iterable[Trace]) -> Counter[str]:
    """Counts over all steps of the traces.

    steps, proposed and accepted (draft tokens), empty-drafts, rejections, full-accepts, accepted-0, accepted-1 and so
    on (steps with a draft, by accept length), eos-inside-draft (an end token, with something behind it that was cut),
    limit-inside-draft (cut by max_new_tokens).
    """
    counts: Counter[str] = Counter()
    for trace in traces:
        for step in trace.steps:
            counts["steps"] += 1
            counts["proposed"] += step.num_draft_tokens
            counts["accepted"] += step.num_accepted
            if step.num_draft_tokens == 0:
                counts["empty-drafts"] += 1
            else:
                counts["rejections" if step.is_rejection else "full-accepts"] += 1
                counts[f"accepted-{step.num_accepted}"] += 1
            if step.is_truncated:
                is_at_end = bool(step.token_ids) and step.token_ids[-1] in trace.request.eos_token_ids
                counts["eos-inside-draft" if is_at_end else "limit-inside-draft"] += 1
    return counts
