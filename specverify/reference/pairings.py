"""What rounding target, draft or both to int8 does to acceptance and to speed: four pairings, measured side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specverify.core.types import Request
from specverify.reference.model import Model
from specverify.reference.quantize import num_bytes
from specverify.reference.subject import ReferenceSubject, reference_subject

ROUNDED = ((), ("target",), ("draft",), ("target", "draft"))


@dataclass(frozen=True)
class Pairing:
    """One of the four. rounded: which models have int8 weights.

    accepted: share of the draft tokens that are accepted. tokens_per_pass: new tokens a verify pass. Seconds a token
    are CPU seconds, the median over the repeats; plain: without speculation. *_bytes: what a pass of the model reads.
    """

    rounded: tuple[str, ...]
    accepted: float
    tokens_per_pass: float
    seconds_per_token: float
    plain_seconds_per_token: float
    target_bytes: int
    draft_bytes: int

    @property
    def speedup(self) -> float:
        """Over plain decoding with the same target."""
        return self.plain_seconds_per_token / self.seconds_per_token


def measure_pairings(
    target: Model,
    draft: Model,
    requests: Sequence[Request],
    *,
    num_draft_tokens: int = 4,
    repeats: int = 3,
    **options: Any,
) -> list[Pairing]:
    """All four pairings on the same requests, in turn, so that a busy moment meets them all.

    options: of reference_subject.
    """
    options = {"record_probs": False, "record_kv_rows": False, "num_threads": 1, **options}
    subjects = [
        reference_subject(
            target=target,
            draft=draft,
            num_draft_tokens=num_draft_tokens,
            quantize=dict.fromkeys(rounded, "int8"),
            **options,
        )
        for rounded in ROUNDED
    ]
    times: dict[tuple[int, bool], list[float]] = {}
    drafted: dict[int, tuple[int, int, int]] = {}
    for _ in range(repeats):
        for index, subject in enumerate(subjects):
            for speculate in (True, False):
                seconds, counts = _run(subject, requests, speculate)
                times.setdefault((index, speculate), []).append(seconds)
                if speculate:
                    drafted[index] = counts
    return [
        Pairing(
            rounded=rounded,
            accepted=drafted[index][1] / max(1, drafted[index][0]),
            tokens_per_pass=1.0 + drafted[index][1] / max(1, drafted[index][2]),
            seconds_per_token=statistics.median(times[index, True]),
            plain_seconds_per_token=statistics.median(times[index, False]),
            target_bytes=num_bytes(subject.target),
            draft_bytes=num_bytes(subject.draft) if subject.draft is not None else 0,
        )
        for index, (rounded, subject) in enumerate(zip(ROUNDED, subjects, strict=True))
    ]


def _run(subject: ReferenceSubject, requests: Sequence[Request], speculate: bool) -> tuple[float, tuple[int, int, int]]:
    """CPU seconds a new token, and (drafted, accepted, steps)."""
    started = time.process_time()
    traces = subject.generate(requests, speculate=speculate)
    seconds = time.process_time() - started
    steps = [step for trace in traces for step in trace.steps]
    counts = sum(s.num_draft_tokens for s in steps), sum(s.num_accepted for s in steps), len(steps)
    return seconds / sum(len(trace.token_ids) for trace in traces), counts
