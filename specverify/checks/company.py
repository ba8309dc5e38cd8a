"""Seeded requests in company: when other tokens than before are a bug, and not rounding or another draft length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specverify.checks import noise
from specverify.core.types import Trace
from specverify.trace.pipeline import common_length

# Rounding flips a sampled token with about this chance per token and unit of law noise; above it, sampled outputs of
# different batch shapes may rightly differ and only repeats of the same call are compared.
_COMPANY_LAW_NOISE = 1e-4


@dataclass(frozen=True, eq=False)
class Broken:
    """A request that got other tokens than expected. how: when."""

    how: str
    expected: Trace
    got: Trace


def is_exact_enough(subject: Any) -> bool:
    """Whether sampled outputs of different batch shapes can be compared token by token."""
    return noise.floor(noise.LAW_FLOOR, subject) <= _COMPANY_LAW_NOISE


def broken_among(subject: Any, how: str, pairs: Sequence[tuple[Trace, Trace]]) -> list[Broken]:
    """The seeded requests that got other tokens in this kind of company."""
    found = [
        Broken(how, one, two) for one, two in pairs if one.token_ids != two.token_ids and _have_drafted_alike(one, two)
    ]
    # Below float64 rounding flips one sampled token in ten thousand runs or so; a bug breaks every request of several.
    return found if noise.dtype_of(subject) == "float64" or len(found) == len(pairs) > 2 else []


def _have_drafted_alike(one: Trace, two: Trace) -> bool:
    """Whether both drafted as many tokens in each step, up to where their tokens part.

    An engine that drafts by its load takes other random numbers for the same place in company: no fault of the seed.
    """
    part = common_length(one.token_ids, two.token_ids) + len(one.request.prompt_token_ids)
    lengths = [[step.num_draft_tokens for step in trace.steps if step.start_position <= part] for trace in (one, two)]
    return lengths[0] == lengths[1]
