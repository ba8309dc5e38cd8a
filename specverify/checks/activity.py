"""Speculation really happened: a check that never met a draft says nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from specverify.checks import evidence, places
from specverify.checks.evidence import Run
from specverify.checks.registry import CheckContext, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table


@check(
    "activity.drafts-and-rejections",
    claim="With speculation on, tokens are drafted, some are accepted and some rejected.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE},
    catches=("speculation-silently-off",),
    source="xLLM-AI/xllm#2255: a flag vetoed speculation for the whole step; no output was wrong, nothing was tested",
)
def drafts_and_rejections(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Counts drafted and accepted tokens with speculation on.

    A standard drafter always drafts: if its drafts never arrive, speculation is off and this fails. An engine may fall
    back to plain decoding for sampled requests or under load: where that drafter drafts in other runs, or for a request
    alone, this is inconclusive. An engine's own drafter may rightly find nothing (prompt lookup): then, and where
    nothing is ever accepted or rejected, this is inconclusive, and so is everything that the other checks said.
    """
    runs = evidence.speculated_runs(subject, context)
    silent = []
    for run in runs:
        drafted, accepted, _ = _counts(run)
        context.exercised("drafted-tokens", drafted)
        context.exercised("accepted-tokens", accepted)
        if run.drafter in ("self", "anti", "alternating") and not drafted:
            silent.append(run)
    elsewhere = [_drafts_elsewhere(run, runs) for run in silent]
    dead = [run for run, where in zip(silent, elsewhere, strict=True) if not where]
    if dead:
        tokens = sum(len(trace.token_ids) for run in dead for trace in run.traces)
        yield Finding(
            headline=f"{len(dead)} runs with standard drafters and speculation on drafted nothing.",
            table=Table(rows=[("drafter", "drafted", "accepted"), *(_row(run) for run in runs)]),
            not_noise=f"These drafters draft in every step; {tokens:,} tokens were generated without one draft.",
            likely_cause="speculation is switched off somewhere although it was asked for.",
        )
        return
    if silent:
        labels = ", ".join(run.label for run in silent)
        raise Inconclusive(
            f"nothing was drafted in some runs ({labels}), although the drafter does draft: {elsewhere[0]}"
        )
    own = [run for run in runs if run.drafter in ("own", "recorded")]
    drafted, accepted, rejections = (sum(values) for values in zip(*map(_counts, own), strict=True))
    if not any(places.tells_drafts(trace) for run in own for trace in run.traces):
        raise Inconclusive("it reports neither steps nor how many tokens were drafted; set num_proposed on its traces")
    if not drafted:
        raise Inconclusive("its own drafter drafted nothing on the standard prompts; bring prompts that make it fire")
    if not accepted or not rejections:
        what = "accepted" if not accepted else "rejected"
        raise Inconclusive(f"{drafted} tokens were drafted and none was {what}; bring prompts where some are")
    context.worth(f"own drafter: {drafted:,} tokens drafted, {accepted:,} accepted, {rejections:,} rejections")


def _drafts_elsewhere(silent: Run, runs: Sequence[Run]) -> str:
    """What the drafter of a silent run drafts elsewhere, in words; empty where it is nothing."""
    for run in runs:
        if run.drafter == silent.drafter and _counts(run)[0]:
            return f"{_counts(run)[0]:,} tokens in another run ({run.label})"
    for run in runs:
        if run.drafter == silent.drafter and run.traces and not evidence.is_recorded(run.engine):
            (alone,) = evidence.generate(run.engine, [run.traces[0].request], speculate=True)
            if drafted := places.num_drafted(alone):
                return f"{drafted:,} tokens for one of these requests alone"
    return ""


def _counts(run: Run) -> tuple[int, int, int]:
    """Drafted tokens, accepted tokens, steps with a rejection."""
    drafted, accepted = sum(map(places.num_drafted, run.traces)), sum(map(places.num_accepted, run.traces))
    if not any(trace.steps for trace in run.traces):
        return drafted, accepted, drafted - accepted
    return drafted, accepted, sum(step.is_rejection for trace in run.traces for step in trace.steps)


def _row(run: Run) -> Sequence[str]:
    drafted, accepted, _ = _counts(run)
    return (run.label, str(drafted), str(accepted))
