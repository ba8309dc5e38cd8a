"""Rows and families for tests: figures that are known, and a probe family that is quick to measure."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from specverify.core.types import Step
from specverify.laws.economics import expected_tokens
from specverify.sweep.families import Effort, Family, load_family
from specverify.sweep.plan import Cell
from specverify.sweep.rows import Row, Speed, row

SPEED = Speed(speedups=[1.4, 1.5, 1.6], plain=10.0, speculative=15.0, round=2.0, draft=0.4, verify=1.2, prompt=0.0)


@cache
def quick_probe() -> Family:
    """The probe family with next to no effort."""
    effort = Effort(seconds=0.0, min_pairs=1, num_requests=4, sample_batch=4, pass_seconds=0.0)
    return replace(load_family("probe"), quick=effort, full=effort, output_length=8)


def step(num_drafted: int, num_accepted: int, **fields: object) -> Step:
    drafted = tuple(range(num_drafted))
    return Step(0, 5, drafted, (*drafted[:num_accepted], 9), num_accepted, **fields)  # type: ignore[arg-type]


def length_row(k: int, *, acceptance: float, fixed: float, draft_cost: float, spread: float = 0.0) -> Row:
    """What a sweep of draft lengths would measure where the closed form is exact."""
    steps = [[step(k, k)] * 10]
    cost = 1.0 + fixed + k * draft_cost
    gained = expected_tokens(acceptance, k) / cost
    speed = replace(SPEED, speedups=[gained - spread, gained, gained + spread], round=cost, draft=k * draft_cost)
    made = row(Cell("draft-length", str(k), num_draft_tokens=k), steps, speed)
    return replace(made, num_accepted=round(1000 * acceptance), num_judged=1000, acceptance=acceptance)
