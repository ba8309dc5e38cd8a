"""Measures one cell: acceptance and tokens per pass on many requests, speed in pairs of plain and speculative runs.

Speed is counted in CPU seconds of this process on one thread: on a quiet machine that is the time that passes, and on
a busy one the other programs do not count. On a GPU it is the time that passes. Both runs of a pair decode the same
requests, one after the other, and their ratio is one measurement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from specverify.core.types import Request, SamplingParams, Step
from specverify.reference.subject import ReferenceSubject
from specverify.sweep.families import Effort, Family
from specverify.sweep.plan import Cell
from specverify.sweep.rows import Row, Speed, row

Clock = Callable[[], float]
# Tokens of the runs that warm up caches and lazily made tables before anything is timed.
_WARM_UP_TOKENS = 4
_TREE_FACTOR = 4


@dataclass
class Stopwatch:
    """Seconds by part of the engine, inclusive: "round" contains "draft" and "verify"; counts beside them."""

    clock: Clock
    seconds: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def attach(self, subject: ReferenceSubject) -> None:
        """Times the parts of this subject's own engine; the methods of its classes stay as they are."""
        engine, proposer = subject.engine, subject.engine.proposer
        parts = [
            (engine, "prefill", "prompt"),
            (engine, "plain_step", "plain"),
            (engine, "speculative_step", "round"),
            (engine, "verify_pass", "verify"),
            *((proposer, name, "draft") for name in ("propose", "observe", "commit")),
        ]
        for owner, method, part in parts:
            if hasattr(owner, method):
                setattr(owner, method, self._timed(getattr(owner, method), part))

    def _timed(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = self.clock()
            result = function(*args, **kwargs)
            self.seconds[part] = self.seconds.get(part, 0.0) + self.clock() - start
            self.counts[part] = self.counts.get(part, 0) + 1
            return result

        return timed

    def mean(self, part: str) -> float:
        """Seconds per call; 0 where there was none."""
        return self.seconds.get(part, 0.0) / max(1, self.counts.get(part, 0))


@dataclass(frozen=True)
class Pair:
    """Seconds per token of the two runs."""

    plain: float
    speculative: float

    @property
    def speedup(self) -> float:
        return self.plain / self.speculative


def clock_of(family: Family) -> Clock:
    """CPU seconds of this process; on a GPU, seconds that passed until everything asked of it was done."""
    if family.target.device.type != "cuda":
        return time.process_time

    def finished() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return finished


def measure(cell: Cell, family: Family, effort: Effort, *, growth: Any = None) -> Row:
    """growth: how the tree of this cell grows, where it is one."""
    clock = clock_of(family)
    subject = family.subject(
        cell.proposer, num_draft_tokens=cell.num_draft_tokens, draft=cell.draft, int8=cell.int8, growth=growth
    )
    # Trees gain little over chains: telling them apart takes more texts than anything else here.
    num_requests = effort.num_requests * (_TREE_FACTOR if cell.axis == "tree" else 1)
    requests = requests_of(cell, family, max(num_requests, cell.batch_size))
    answers = sample(subject, requests, effort.sample_batch)
    watch, pairs = Stopwatch(clock), list[Pair]()
    for speculate in (False, True):
        subject.generate([_short(request) for request in requests[: cell.batch_size]], speculate=speculate)
    watch.attach(subject)
    begin = clock()
    while len(pairs) < effort.min_pairs or clock() - begin < effort.seconds:
        batch = _turn(requests, len(pairs), cell.batch_size)
        pairs.append(Pair(*(_seconds_per_token(subject, batch, clock, speculate=on) for on in (False, True))))
    return row(cell, answers, _speed(watch, pairs))


def requests_of(cell: Cell, family: Family, count: int) -> list[Request]:
    """Seeded requests of this cell, the same every time."""
    prompts = family.prompts(cell.workload, cell.prompt_length, count)
    sampling = SamplingParams(temperature=cell.temperature)
    return [
        Request(prompt, cell.output_length, sampling, seed=i, eos_token_ids=family.eos_token_ids, request_id=str(i))
        for i, prompt in enumerate(prompts)
    ]


def sample(subject: ReferenceSubject, requests: Sequence[Request], batch_size: int) -> list[Sequence[Step]]:
    """Steps of each request, decoded in large batches: what is accepted does not depend on who is decoded beside."""
    batches = [requests[first : first + batch_size] for first in range(0, len(requests), batch_size)]
    return [trace.steps for batch in batches for trace in subject.generate(batch, speculate=True)]


def _speed(watch: Stopwatch, pairs: Sequence[Pair]) -> Speed:
    step = watch.mean("plain")
    return Speed(
        speedups=[pair.speedup for pair in pairs],
        plain=1.0 / float(np.median([pair.plain for pair in pairs])),
        speculative=1.0 / float(np.median([pair.speculative for pair in pairs])),
        round=watch.mean("round") / step,
        draft=watch.seconds["draft"] / watch.counts["round"] / step,
        verify=watch.mean("verify") / step,
        prompt=watch.mean("prompt") / step,
    )


def _seconds_per_token(subject: ReferenceSubject, batch: Sequence[Request], clock: Clock, *, speculate: bool) -> float:
    start = clock()
    traces = subject.generate(batch, speculate=speculate)
    return (clock() - start) / sum(len(trace.token_ids) for trace in traces)


def _turn(requests: Sequence[Request], turn: int, size: int) -> list[Request]:
    """The next `size` requests, round and round."""
    return [requests[(turn * size + i) % len(requests)] for i in range(size)]


def _short(request: Request) -> Request:
    return replace(request, max_new_tokens=_WARM_UP_TOKENS)
