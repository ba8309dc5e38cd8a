"""A recorded run as the page shows it: token ids, decisions and the probabilities of the drafted tokens, no whole laws.

trace.js reads the same from a trace file in the browser; tests compare the two on real traces: change both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from specverify.core.errors import UsageError
from specverify.core.types import Step, Trace
from specverify.trace.files import TraceFile


def page_trace(file: TraceFile, *, name: str) -> Mapping[str, Any]:
    """JSON types only; numbers that JSON lacks (NaN, infinity) become None."""
    return {
        "name": name,
        "meta": file.meta,
        "is_complete": file.is_complete,
        "traces": [_trace(trace) for trace in file.traces],
    }


def _trace(trace: Trace) -> Mapping[str, Any]:
    return {
        "request_id": trace.request.request_id,
        "temperature": trace.request.sampling.temperature,
        "steps": [_step(step) for step in trace.steps],
    }


def _step(step: Step) -> Mapping[str, Any]:
    tokens = step.draft_token_ids
    parents = step.parents
    if parents is not None and step.accepted_nodes is None:
        raise UsageError(f"step {step.index} is a draft tree without accepted_nodes; record which nodes were accepted")
    return {
        "start_position": step.start_position,
        "draft_token_ids": list(tokens),
        "token_ids": list(step.token_ids),
        "num_accepted": step.num_accepted,
        "parents": None if parents is None else list(parents),
        "accepted_nodes": None if step.accepted_nodes is None else list(step.accepted_nodes),
        "draft_chances": _chances(step.draft_probs, tokens, lambda i: i),
        "target_chances": _chances(step.target_probs, tokens, lambda i: i if parents is None else parents[i] + 1),
        "uniforms": None if step.uniforms is None else [_number(value) for value in step.uniforms],
    }


def _chances(probs: Any, tokens: Sequence[int], row_of: Callable[[int], int]) -> list[float | None] | None:
    """Probability of each drafted token in its row of probs, [rows, vocab]."""
    if probs is None:
        return None
    rows = np.asarray(probs)
    return [_number(rows[row_of(i), token]) for i, token in enumerate(tokens)]


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
