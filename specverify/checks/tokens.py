"""What comes out: the accepted prefix and one token a step, no more than asked for, nothing after an end token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from specverify.checks import evidence, places, tree_shape, wording
from specverify.checks.evidence import Run
from specverify.checks.places import Place
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.types import Request, Trace
from specverify.trace.pipeline import common_length


@check(
    "tokens.prefix-termination",
    claim="Nothing after the first rejected draft token survives: a step emits the accepted prefix and one token.",
    kind=Kind.EXACT,
    needs={Capability.TRACE},
    exercised_by=(Exercised("rejections"),),
    catches=("tokens-kept-after-rejection", "tokens-accepted-lost"),
    source="arXiv 2211.17192, algorithm 1; lucidrains/speculative-decoding#3: rejected tokens stayed in the output",
)
def prefix_termination(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Step by step: emitted = draft[:accepted] + one final token; and the steps joined up are the output.

    A step that accepts everything may leave the bonus token out. A step cut short by an end token or by the length
    limit must be a prefix of that.
    """
    seen = list(places.all_places(evidence.speculated_runs(subject, context)))
    if not seen:
        raise Inconclusive("no steps were recorded with speculation on")
    places.count_steps(context, seen)
    wrong = [(place, reason) for place in seen if (reason := _step_fault(place))]
    if wrong:
        place = places.smallest([place for place, _ in wrong])
        reason = next(text for other, text in wrong if other is place)
        yield _step_finding(place, reason, len(wrong), len(seen))
    else:
        yield from _joined_up(evidence.speculated_runs(subject, context))
    context.worth(places.accept_length_line(context))


def _step_fault(place: Place) -> str:
    """What is wrong with the tokens of one step, or an empty string."""
    step = place.step
    accepted = _accepted(place)
    if step.num_accepted > step.num_draft_tokens:
        return f"it accepted {step.num_accepted} of {step.num_draft_tokens} draft tokens"
    kept = min(len(step.token_ids), step.num_accepted)
    if step.token_ids[:kept] != accepted[:kept]:
        return "its first tokens are not the accepted draft tokens"
    if len(step.token_ids) > step.num_accepted + 1:
        return f"it emitted {len(step.token_ids)} tokens, {step.num_accepted + 1} at most are right"
    if step.is_truncated or len(step.token_ids) == step.num_accepted + 1:
        return ""
    if len(step.token_ids) == step.num_accepted and not step.is_rejection and step.token_ids:
        return ""  # everything accepted and no bonus token: slower, still lossless
    return f"it emitted {len(step.token_ids)} tokens, {step.num_accepted + 1} are due"


def _accepted(place: Place) -> tuple[int, ...]:
    """The accepted draft tokens; where a tree names some that are not there, as many as are."""
    nodes = tree_shape.accepted_nodes(place.step)
    return tree_shape.tokens_of(place.step, [node for node in nodes if 0 <= node < place.step.num_draft_tokens])


def _step_finding(place: Place, reason: str, num_wrong: int, num_steps: int) -> Finding:
    step = place.step
    survivors = tuple(step.token_ids[step.num_accepted + 1 :])
    rejected_tail = tuple(step.draft_token_ids[step.num_accepted + 1 : len(step.token_ids)])
    cause = ""
    if survivors and survivors == rejected_tail and step.parents is None:
        cause = f"draft tokens after the first rejection were kept: {', '.join(map(str, survivors))}."
    return Finding(
        headline=f"Step {step.index}: {reason}.",
        table=Table(
            rows=(
                ("draft", *(wording.token_text(step.draft_token_ids) or ["none"])),
                ("accepted", str(step.num_accepted)),
                ("emitted", *(wording.token_text(step.token_ids) or ["none"])),
                ("should be", *wording.token_text(_accepted(place)), "one token"),
            )
        ),
        not_noise="Tokens are counted: the case is exact.",
        where=(f"Seen in: {place.describe()}; {wording.plural(num_wrong, 'step')} of {num_steps:,} wrong.",),
        likely_cause=cause,
        details={"wrong_steps": num_wrong, "steps": num_steps},
    )


def _joined_up(runs: Sequence[Run]) -> Iterator[Finding]:
    """The output must be the prefill's token and the tokens of the steps, and each step start where the last ended."""
    for run in runs:
        for trace in run.traces:
            if not trace.steps:
                continue
            lead = trace.token_ids[: trace.first_from_prefill]
            joined = (*lead, *(token for step in trace.steps for token in step.token_ids))
            starts = _expected_starts(trace)
            misplaced = next((i for i, s in enumerate(trace.steps) if s.start_position != starts[i]), None)
            if joined == trace.token_ids and misplaced is None:
                continue
            same = common_length(joined, trace.token_ids)
            step_text = f"; step {misplaced} starts at the wrong place" if misplaced is not None else ""
            yield Finding(
                headline=f"The steps emitted {len(joined)} tokens and the output has {len(trace.token_ids)}; "
                f"they part at new token {same}{step_text}.",
                table=Table(
                    rows=(
                        ("steps emitted", *wording.token_text(joined[same : same + 8])),
                        ("output has", *wording.token_text(trace.token_ids[same : same + 8])),
                    )
                ),
                not_noise="Tokens are counted: the case is exact.",
                where=(f"Seen in: {run.label}, request {trace.request.request_id}, from new token {same} on.",),
            )
            return


def _expected_starts(trace: Trace) -> list[int]:
    start = len(trace.request.prompt_token_ids) + trace.first_from_prefill
    return list(accumulate((len(step.token_ids) for step in trace.steps), initial=start))


@check(
    "tokens.at-most-max-tokens",
    claim="A request gets exactly max_new_tokens tokens, unless an end token comes first.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE},
    exercised_by=(Exercised("limits"),),
    catches=("tokens-limit-overshot",),
    source="sgl-project/sglang#31599: one accepted block crossed the length cap",
)
def at_most_max_tokens(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Limits 1, 2, 3 ... so that the limit falls on every place of a draft, with a drafter that accepts everything."""
    name = "self" if Capability.SCRIPTED_PROPOSER in subject.capabilities else "own"
    engine = evidence.with_drafter(subject, name)
    prompts = evidence.standard_prompts(subject, context)
    limits = range(1, 2 * evidence.num_draft_tokens(subject) + 4)
    requests = [
        Request(prompts[index % len(prompts)], limit, evidence.GREEDY, request_id=f"limit {limit}")
        for index, limit in enumerate(limits)
    ]
    wrong = []
    traces = evidence.generate(engine, requests, speculate=True)
    for request, trace in zip(requests, traces, strict=True):
        context.exercised("limits")
        if any(step.is_truncated for step in trace.steps):
            context.exercised("limits-inside-draft")
        if len(trace.token_ids) > request.max_new_tokens or (
            len(trace.token_ids) < request.max_new_tokens and not _ended_itself(subject, trace)
        ):
            wrong.append((request, trace))
    if wrong:
        request, trace = wrong[0]
        last = trace.steps[-1] if trace.steps else None
        rows = [("asked for", str(request.max_new_tokens)), ("got", str(len(trace.token_ids)))]
        if last is not None:
            rows += [
                ("last step's draft", " ".join(map(str, last.draft_token_ids)) or "none"),
                ("last step emitted", " ".join(map(str, last.token_ids))),
            ]
        yield Finding(
            headline=f"max_new_tokens={request.max_new_tokens} gave {len(trace.token_ids)} tokens.",
            table=Table(rows=rows),
            not_noise="Tokens are counted: the case is exact.",
            where=(
                f"Seen with the {name} drafter; wrong for max_new_tokens "
                f"{', '.join(str(r.max_new_tokens) for r, _ in wrong)} of 1 to {len(limits)}.",
            ),
            likely_cause="the step that reaches the limit keeps its whole accepted block."
            if all(len(t.token_ids) > r.max_new_tokens for r, t in wrong)
            else "",
        )
    inside = context.counters["limits-inside-draft"]
    context.worth(f"limits 1 to {len(limits)}, {places.inside_draft_text(inside, traces)}")


def _ended_itself(subject: Any, trace: Trace) -> bool:
    """Whether the last token is an end token, of the request or of the checkpoint."""
    ends = set(trace.request.eos_token_ids)
    own = getattr(getattr(subject, "checkpoint", None), "eos_token_id", None)
    if own is not None:
        ends.add(own)
    return (bool(trace.token_ids) and trace.token_ids[-1] in ends) or trace.finish_reason in ("stop", "eos")
