"""Greedy decoding: the same tokens with speculation on and off, or an explanation that is not a bug."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from specverify.checks import evidence, noise, places
from specverify.checks.divergence import Divergence, bugs_among, finding_of, first_divergence, with_margins
from specverify.checks.evidence import Run
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind
from specverify.core.types import SamplingParams
from specverify.trace.pipeline import common_length

_PENALISED = SamplingParams(temperature=0.0, repetition_penalty=1.5, presence_penalty=0.3, frequency_penalty=0.4)


@check(
    "greedy.on-equals-off",
    claim="At temperature 0 speculation changes no token.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE},
    exercised_by=(Exercised("tokens"),),
    catches=(
        "kv-not-rolled-back",
        "position-target-off-by-one",
        "bonus-row-off-by-one",
        "tree-greedy-takes-first",
        "sampling-penalties-ignored",
    ),
    source="arXiv 2211.17192, section 2; huggingface/transformers#39421 for divergences that are only rounding",
)
def on_equals_off(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Token for token, for every standard drafter; also with penalties. The first divergence of a prompt is explained.

    It is a near tie where both tokens' log-probabilities, computed in float64 or by the engine's own score(), are
    within a noise floor of the best one; that floor is measured on the engine (the same context in different
    shapes), never below what its dtype implies. Anything else is a bug. After a near tie the two texts differ, so the
    rest of that output is not compared.
    """
    plain = evidence.plain_run(subject, context)
    again = evidence.generate(subject, [trace.request for trace in plain.traces], speculate=False)
    unstable = {
        first.request.request_id
        for first, second in zip(plain.traces, again, strict=True)
        if first.token_ids != second.token_ids
    }
    tolerance = 2.0 * noise.log_prob_noise(subject, context)
    found: list[Divergence] = []
    for run in evidence.greedy_runs(subject, context):
        places.count_steps(context, list(places.all_places([run])))
        for on, off in zip(run.traces, plain.traces, strict=True):
            if on.request.request_id in unstable:
                continue
            divergence = first_divergence(run, on, off)
            compared = divergence.token_index if divergence else len(on.token_ids)
            context.exercised("tokens", compared)
            if divergence is not None:
                found.append(with_margins(divergence, subject, context))
    found += _penalised(subject, context)
    if unstable and len(unstable) == len(plain.traces):
        raise Inconclusive("plain greedy decoding gave other tokens when repeated; there is nothing to compare with")
    bugs = bugs_among(found, tolerance, context)
    if bugs:
        yield finding_of(bugs, tolerance, context)
    _say_worth(subject, context, found, bugs, unstable, tolerance)


def _penalised(subject: Any, context: CheckContext) -> list[Divergence]:
    """Divergences of requests with penalties: their greedy token is the best one after the penalties."""
    has_oracle = Capability.LOAD_CHECKPOINT in subject.capabilities and hasattr(subject, "checkpoint")
    if Capability.PENALTIES not in subject.capabilities or not has_oracle:
        return []
    requests = evidence.standard_requests(subject, context, _PENALISED)
    on, off = (evidence.generate(subject, requests, speculate=speculate) for speculate in (True, False))
    run = Run("penalised own", _PENALISED, on, subject)
    parted = [first_divergence(run, one, other) for one, other in zip(on, off, strict=True)]
    context.exercised("tokens", sum(common_length(a.token_ids, b.token_ids) for a, b in zip(on, off, strict=True)))
    return [with_margins(divergence, subject, context) for divergence in parted if divergence is not None]


def _say_worth(
    subject: Any,
    context: CheckContext,
    found: Sequence[Divergence],
    bugs: Sequence[Divergence],
    unstable: set[str],
    tolerance: float,
) -> None:
    ties = len(found) - len(bugs)
    line = f"{context.counters['tokens']:,} tokens equal, "
    line += f"{context.counters['rejections']} rejections" if context.counters["steps"] else "rejections not recorded"
    if ties:
        line += f"; {ties} near ties within {tolerance:.1g} explained{noise.assumed_text(subject)}"
    if unstable:
        line += f"; {len(unstable)} prompts left out, plain decoding is not repeatable there"
    context.figures.update(near_ties=ties, divergences=len(found), log_prob_tolerance=tolerance)
    context.worth(line)
