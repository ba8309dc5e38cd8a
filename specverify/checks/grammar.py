"""Outputs under a constraint: every token allowed where it stands, and no other request touched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from specverify.checks import ambient, evidence, noise, places, wording
from specverify.checks.calls import generate_in_calls
from specverify.checks.divergence import Divergence, bugs_among, finding_of, first_divergence, with_margins
from specverify.checks.evidence import GREEDY, Run
from specverify.checks.grammar_automata import Asked, asked
from specverify.checks.grammar_findings import Breach, breach_finding, company_finding
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind
from specverify.core.types import Trace

# Of the requests that run together, these many alone too: one of each automaton.
_NUM_ALONE = 4


@check(
    "grammar.outputs-conform",
    claim="Under a constraint every emitted token is allowed where it stands, and other requests get what they would.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE, Capability.GRAMMAR},
    exercised_by=(Exercised("constrained-tokens"),),
    catches=(
        "grammar-not-rolled-back",
        "grammar-one-mask-per-step",
        "grammar-mask-one-late",
        "grammar-zeros-for-others",
        "grammar-end-missed",
        "grammar-mask-row-missing",
    ),
    source="vllm-project/vllm#9423: the state was not rolled back with the draft; sgl-project/sglang#21723: outputs "
    "did not end with the grammar; vllm-project/vllm-gaudi#1200: requests without a grammar were masked too",
)
def outputs_conform(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Greedy and sampled requests, each with a constraint: a cycle through three classes of words, a branch with loops,
    or three or four words and the end. With the engine's own drafter and every standard one; in one batch, beside
    requests without a constraint, and some alone.

    A constraint is an automaton over token ids (Request.constraint), so every token is judged by itself: allowed after
    the tokens before it, or not. Nothing follows a complete output but an end token, and no output ends elsewhere.
    Greedy outputs are those of plain decoding under the same constraint, near ties among allowed tokens apart; greedy
    requests without a constraint get what they get without company. Neither is asked of an engine that is lossy by
    design. Inconclusive where nothing was drafted or accepted under a constraint, and where the constraints changed no
    greedy output.
    """
    with ambient.repeatable(subject, context, "grammar"):
        free = evidence.plain_run(subject, context).traces
        wanted = asked(subject, context, free)
        off = Run("", GREEDY, generate_in_calls(evidence.quiet(subject), wanted.requests, speculate=False), subject)
        runs = list(_speculated(subject, wanted))
    breaches = [
        breach
        for run in (off, *runs)
        for trace in run.traces
        if trace.request.constraint is not None and (breach := _breach(subject, run, trace, context)) is not None
    ]
    if breaches:
        yield breach_finding(breaches, wanted, [trace for run in runs for trace in run.traces])
        return
    _require_bite(off.traces, free, wanted)
    if Capability.LOSSY_BY_DESIGN not in subject.capabilities:
        tolerance = 2.0 * noise.log_prob_noise(subject, context)
        parted = list(_parted(subject, context, runs, off.traces, free))
        own = [one for one in parted if one.on.request.constraint is not None]
        if bugs := bugs_among(own, tolerance, context):
            yield finding_of(bugs, tolerance, context)
        others = [one for one in parted if one.on.request.constraint is None]
        if bugs := bugs_among(others, tolerance, context):
            yield company_finding(bugs, tolerance)
    drafted = _drafted_text([trace for run in runs for trace in run.traces])
    context.worth(
        f"{context.counters['constrained-tokens']:,} tokens allowed where they stand, "
        f"{wording.plural(context.counters['ends'], 'output')} ended where the constraint does; {drafted}"
    )


def _speculated(subject: Any, wanted: Asked) -> Iterator[Run]:
    """All requests together with each drafter, and one of each automaton alone with the engine's own."""
    for name in evidence.drafters(subject):
        engine = evidence.quiet(evidence.with_drafter(subject, name))
        yield Run(name, GREEDY, generate_in_calls(engine, wanted.requests, speculate=True), engine)
    if Capability.BATCH not in subject.capabilities:
        return
    engine = evidence.quiet(subject)
    first = {
        name: request
        for name, request in zip(reversed(wanted.names), reversed(wanted.requests), strict=True)
        if name and request.sampling.is_greedy
    }
    traces = [evidence.generate(engine, [one], speculate=True)[0] for one in list(first.values())[:_NUM_ALONE]]
    yield Run("own", GREEDY, tuple(traces), engine)


def _breach(subject: Any, run: Run, trace: Trace, context: CheckContext) -> Breach | None:
    """The first token that is not allowed, or the end where the output may not end; None where there is neither."""
    constraint, request = trace.request.constraint, trace.request
    assert constraint is not None
    state = 0
    is_short = len(trace.token_ids) < request.max_new_tokens
    for index, token in enumerate(trace.token_ids):
        following = constraint.state_from(state, (token,))
        context.exercised("constrained-tokens")
        if following is None:
            may_end = state in constraint.accepting
            is_last = index == len(trace.token_ids) - 1
            # An engine whose checkpoint nobody knows may have an end token of its own.
            is_own_end = is_last and is_short and getattr(subject, "checkpoint", None) is None
            if may_end and (token in request.eos_token_ids or (is_own_end and token not in constraint.token_ids)):
                context.exercised("ends")
                return None
            return Breach(run, trace, index, token, state)
        state = following
    if is_short and state not in constraint.accepting:
        return Breach(run, trace, len(trace.token_ids), None, state)
    context.exercised("ends", is_short)
    return None


def _require_bite(off: Sequence[Trace], free: Sequence[Trace], wanted: Asked) -> None:
    """Raises Inconclusive where no constraint changed any greedy output of plain decoding."""
    plain = {trace.request.prompt_token_ids: trace.token_ids for trace in free}
    held = [trace for trace in off if trace.request.constraint is not None and trace.request.sampling.is_greedy]
    if all(trace.token_ids == plain.get(trace.request.prompt_token_ids, ())[: len(trace.token_ids)] for trace in held):
        raise Inconclusive(
            f"{len(held)} greedy outputs are what they are without a constraint: constraints that forbid nothing show "
            "nothing; bring `prompts` that leave more choice"
        )


def _parted(
    subject: Any, context: CheckContext, runs: Sequence[Run], off: Sequence[Trace], free: Sequence[Trace]
) -> Iterator[Divergence]:
    """Where greedy outputs part from plain decoding: under the same constraint, or without any and without company."""
    plain = {trace.request.request_id: trace for trace in off}
    alone = {trace.request.prompt_token_ids: trace for trace in free}
    for run in runs:
        for trace in run.traces:
            if not trace.request.sampling.is_greedy:
                continue
            other = plain[trace.request.request_id]
            if trace.request.constraint is None:
                other = alone[trace.request.prompt_token_ids]
                other = replace(other, token_ids=other.token_ids[: trace.request.max_new_tokens])
            divergence = first_divergence(run, trace, other)
            context.exercised("tokens", divergence.token_index if divergence else len(trace.token_ids))
            if divergence is not None:
                yield with_margins(divergence, subject, context)


def _drafted_text(traces: Sequence[Trace]) -> str:
    """For the pass line: how much was drafted. Raises Inconclusive where nothing was, or nothing of it accepted."""
    held = [trace for trace in traces if trace.request.constraint is not None]
    if not any(map(places.tells_drafts, held)):
        return "whether drafted is not recorded"
    if not any(map(places.num_drafted, held)):
        raise Inconclusive(f"nothing was drafted in {len(held)} requests: do constraints switch speculation off here?")
    num_accepted = sum(map(places.num_accepted, held))
    if not num_accepted:
        raise Inconclusive(f"no draft token was accepted in {len(held)} requests with a constraint")
    return f"{num_accepted:,} of {sum(map(places.num_drafted, held)):,} draft tokens accepted"
