"""What an engine says of a run beside its tokens: how much was drafted and accepted, and why the output ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specverify.checks import evidence, wording
from specverify.checks.evidence import GREEDY, Run
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.types import Trace

# Of the tokens that plain decoding is known to emit, this one is declared to be the end token.
_END_INDEX = 4
_END_REASONS = ("eos", "stop")


@dataclass(frozen=True, eq=False)
class _Wrong:
    """One statement of a trace, and what the record says. kind: what the statement is about."""

    kind: str
    said: str
    recorded: str
    run: Run
    trace: Trace


@check(
    "trace.agrees-with-itself",
    claim="What an engine reports of a run (drafted, accepted, why it ended) is what its steps and its tokens say.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE},
    exercised_by=(Exercised("statements"),),
    catches=("report-accepted-counts-bonus", "report-ends-by-length"),
    source="sgl-project/sglang#23530: accepted counts held the bonus tokens; sgl-project/sglang#31599: finish reasons",
)
def agrees_with_itself(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """The standard runs, and one in which each request meets an end token. Judged is what a trace states, no more.

    num_proposed and num_accepted must be the sums over the steps, where there are steps; of a step that was cut short,
    tokens behind the cut may count or not. Never are more tokens accepted than proposed. A finish reason "eos" or
    "stop" wants an end token in the last place, "length" wants max_new_tokens tokens; where both came, either is right.
    """
    wrong: list[_Wrong] = []
    for run in (*evidence.speculated_runs(subject, context), *_ending_run(subject, context)):
        for trace in run.traces:
            wrong += _miscounted(run, trace, context)
            wrong += _ended_otherwise(subject, run, trace, context)
    if wrong:
        yield _finding(wrong, context)
    if not context.counters["statements"]:
        raise Inconclusive(
            "its traces state nothing of themselves: fill in num_proposed, num_accepted and finish_reason, as far as "
            "the engine reports them"
        )
    context.worth(f"{context.counters['statements']} statements; {context.counters['ends']} outputs met an end token")


def _ending_run(subject: Any, context: CheckContext) -> Iterator[Run]:
    """Greedy, each request with an end token that comes after a few tokens, if the engine honours end tokens."""
    if Capability.STOP not in subject.capabilities or evidence.is_recorded(subject):
        return
    name = "self" if Capability.SCRIPTED_PROPOSER in subject.capabilities else "own"
    requests = [
        replace(trace.request, eos_token_ids=(trace.token_ids[_END_INDEX],))
        for trace in evidence.plain_run(subject, context).traces
        if len(trace.token_ids) > _END_INDEX
    ]
    if requests:
        engine = evidence.quiet(evidence.with_drafter(subject, name))
        yield Run(name, GREEDY, evidence.generate(engine, requests, speculate=True), engine)


def _miscounted(run: Run, trace: Trace, context: CheckContext) -> Iterator[_Wrong]:
    proposed, accepted = trace.num_proposed, trace.num_accepted
    context.exercised("statements", (proposed is not None) + (accepted is not None))
    if trace.steps and proposed is not None:
        drafted = sum(step.num_draft_tokens for step in trace.steps)
        if proposed != drafted:
            yield _Wrong("num_proposed", str(proposed), f"the steps drafted {drafted}", run, trace)
    if trace.steps and accepted is not None:
        most = sum(step.num_accepted for step in trace.steps)
        least = sum(
            min(step.num_accepted, max(0, len(step.token_ids) - 1)) if step.is_truncated else step.num_accepted
            for step in trace.steps
        )
        if not least <= accepted <= most:
            counted = str(most) if least == most else f"{least} to {most}"
            yield _Wrong("num_accepted", str(accepted), f"the steps accepted {counted}", run, trace)
    elif proposed is not None and accepted is not None and accepted > proposed:
        yield _Wrong("num_accepted", str(accepted), f"only {proposed} were proposed", run, trace)


def _ended_otherwise(subject: Any, run: Run, trace: Trace, context: CheckContext) -> Iterator[_Wrong]:
    reason, num_tokens = trace.finish_reason, len(trace.token_ids)
    if reason not in (*_END_REASONS, "length"):
        return
    context.exercised("statements")
    ends = _end_tokens(subject, trace)
    has_ended = bool(trace.token_ids) and trace.token_ids[-1] in ends
    context.exercised("ends", has_ended)
    if reason == "length" and num_tokens < trace.request.max_new_tokens:
        last = f"end token {trace.token_ids[-1]} came as the last of" if has_ended else "it has"
        recorded = f"{last} {num_tokens} of {trace.request.max_new_tokens} tokens"
        yield _Wrong("finish_reason", repr(reason), recorded, run, trace)
    # An engine whose checkpoint nobody knows may have an end token of its own.
    if reason in _END_REASONS and ends and not has_ended:
        last = str(trace.token_ids[-1]) if trace.token_ids else "none"
        recorded = f"the last of {num_tokens} tokens is {last}, no end token"
        yield _Wrong("finish_reason", repr(reason), recorded, run, trace)


def _end_tokens(subject: Any, trace: Trace) -> set[int]:
    own = getattr(getattr(subject, "checkpoint", None), "eos_token_id", None)
    return {*trace.request.eos_token_ids, *(() if own is None else (own,))}


def _finding(wrong: Sequence[_Wrong], context: CheckContext) -> Finding:
    shortest = sorted(wrong, key=lambda one: len(one.trace.token_ids))
    worst, kinds = shortest[0], [one.kind for one in wrong]
    return Finding(
        headline=f"The engine reports {worst.kind} {worst.said}, but {worst.recorded}.",
        table=Table(
            rows=(
                ("statement", "it says", "and yet"),
                *(
                    (kind, one.said, one.recorded)
                    for kind, one in {one.kind: one for one in reversed(shortest)}.items()
                ),
            )
        ),
        not_noise="Tokens are counted: the case is exact.",
        where=(
            f"Seen in: {worst.run.label}, request {worst.trace.request.request_id}, "
            f"output {wording.prompt_text(worst.trace.token_ids)}.",
            *(f"{kinds.count(kind)} traces state a wrong {kind}." for kind in dict.fromkeys(kinds)),
        ),
        likely_cause=_cause(wrong),
        details={"wrong": len(wrong), "statements": context.counters["statements"]},
    )


def _cause(wrong: Sequence[_Wrong]) -> str:
    accepted = [one.trace for one in wrong if one.kind == "num_accepted" and one.trace.steps]
    if len(accepted) == len(wrong) and all(
        trace.num_accepted == sum(step.num_accepted + 1 for step in trace.steps) for trace in accepted
    ):
        return "the final token of every step is counted as an accepted one."
    return ""
