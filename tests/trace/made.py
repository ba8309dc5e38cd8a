"""Traces made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from specverify.core.types import Request, SamplingParams, Step, Trace

DRAFT = np.array([[0.25, 0.75], [0.4, 0.6]])
TARGET = np.array([[0.5, 0.5], [0.1, 0.9], [0.3, 0.7]])
SAMPLING = SamplingParams(temperature=0.7)


def trace(seed: int = 1) -> Trace:
    """Two prompt tokens, one from prefill, a step that accepts one of two, a step that accepts both and is cut."""
    steps = (
        Step(
            index=0,
            start_position=3,
            draft_token_ids=(1, 0),
            token_ids=(1, 1),
            num_accepted=1,
            draft_probs=DRAFT,
            target_probs=TARGET,
            uniforms=(0.125, 0.9375),
            target_kv_length_after=4,
            draft_kv_length_after=4,
            target_positions=(2, 3, 4),
            draft_positions=(0, 1, 2, 3),
            target_kv_rows=np.arange(16, dtype=np.float32).reshape(1, 2, 4, 1, 2),
        ),
        Step(
            index=1,
            start_position=5,
            draft_token_ids=(1, 1),
            token_ids=(1, 1),
            num_accepted=2,
            is_truncated=True,
            draft_probs=DRAFT,
            target_probs=TARGET,
            uniforms=(0.5, 0.25),
            target_kv_length_after=6,
            draft_kv_length_after=6,
            target_positions=(4, 5, 6),
            draft_positions=(4, 5),
        ),
    )
    return Trace(
        request=Request((0, 1), 5, SAMPLING, seed=seed, eos_token_ids=(9,), request_id=f"made-{seed}"),
        token_ids=(0, 1, 1, 1, 1),
        steps=steps,
        draft_kv_lag=1,
        num_proposed=4,
        num_accepted=3,
        finish_reason="length",
        meta={"note": "by hand"},
        log_probs=(-0.125, -0.1, -2.5, -float("inf"), 0.0),
    )


def changed(index: int, **fields: Any) -> Trace:
    """The trace with one step changed; its text follows."""
    made = trace()
    steps = list(made.steps)
    steps[index] = replace(steps[index], **fields)
    if "token_ids" in fields:
        steps = steps[: index + 1]
    return replace(made, steps=tuple(steps), token_ids=(0, *(token for step in steps for token in step.token_ids)))
