"""An end token ends the output, on whatever place of a draft it falls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from specverify.checks import evidence, places, wording
from specverify.checks.evidence import Run
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.types import Request, Trace


@check(
    "tokens.eos-ends-output",
    claim="An output ends at its first end token, wherever in a draft that falls, and no sooner.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE, Capability.STOP},
    exercised_by=(Exercised("end-tokens"),),
    catches=(
        "eos-inside-draft-missed",
        "eos-draft-goes-on",
        "eos-limit-comes-first",
        "eos-later-ids-missed",
        "eos-in-prompt-ends",
    ),
    source="huggingface/transformers#47912: stop criteria saw only the last token of an accepted block",
)
def eos_ends_output(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Takes tokens that greedy decoding is known to emit, and declares each in turn to be the end token.

    With drafters that accept everything the end token falls on every place of a draft. The output must stop at its
    first occurrence, and must be what plain decoding gives for the same request (where plain decoding stops too).
    """
    plain = evidence.plain_run(subject, context)
    wanted = _requests_with_end(plain, num_ends=2 * evidence.num_draft_tokens(subject) + 2)
    names = ("self", "own") if Capability.SCRIPTED_PROPOSER in subject.capabilities else ("own",)
    wrong: list[tuple[str, Trace, int]] = []
    early: list[tuple[str, Trace]] = []
    generated: list[Trace] = []
    num_right = 0
    for name in names:
        engine = evidence.with_drafter(subject, name)
        traces = evidence.generate(engine, [request for request, _ in wanted], speculate=True)
        generated += traces
        for trace in traces:
            end = trace.request.eos_token_ids[-1]
            if not set(trace.request.eos_token_ids) & set(trace.token_ids):
                if len(trace.token_ids) < trace.request.max_new_tokens:
                    early.append((name, trace))
                continue
            if end not in trace.token_ids:
                continue
            first = trace.token_ids.index(end)
            context.exercised("end-tokens")
            if first < len(trace.token_ids) - 1:
                wrong.append((name, trace, first))
            inside = _falls_inside_draft(trace, end)
            context.exercised("end-tokens-inside-draft", inside)
            num_right += inside if first == len(trace.token_ids) - 1 else 0
    if early:
        yield _early_finding(early)
    if wrong:
        name, trace, first = min(wrong, key=lambda item: item[2])
        after = trace.token_ids[first + 1 :]
        yield Finding(
            headline=f"End token {trace.request.eos_token_ids[-1]} came as new token {first}, "
            f"and {wording.plural(len(after), 'token')} followed it.",
            table=Table(
                rows=(
                    ("output", *wording.token_text(trace.token_ids[max(0, first - 3) : first + 4])),
                    ("should be", *wording.token_text(trace.token_ids[max(0, first - 3) : first + 1])),
                )
            ),
            not_noise="Tokens are counted: the case is exact.",
            where=(
                f"Seen with the {name} drafter, prompt {list(trace.request.prompt_token_ids)}.",
                *_end_step(trace, trace.request.eos_token_ids[-1]),
                f"{len(wrong)} of {context.counters['end-tokens']} outputs with their end token go on after it.",
            ),
            likely_cause=_end_cause(wrong, num_right),
            details={"wrong": len(wrong), "seen": context.counters["end-tokens"]},
        )
    inside = context.counters["end-tokens-inside-draft"]
    # An engine that cuts its drafts before every end token never has one inside: it says so.
    cuts_drafts = bool(getattr(subject, "drafts_stop_before_end", False))
    if not inside and Capability.TRACE in subject.capabilities and not cuts_drafts:
        raise Inconclusive(f"{context.counters['end-tokens']} end tokens were emitted, none inside an accepted draft")
    context.worth(f"{context.counters['end-tokens']} end tokens, {places.inside_draft_text(inside, generated)}")


def _early_finding(early: Sequence[tuple[str, Trace]]) -> Finding:
    name, trace = min(early, key=lambda item: len(item[1].token_ids))
    request = trace.request
    in_prompt = [token for token in request.eos_token_ids if token in request.prompt_token_ids]
    return Finding(
        headline=f"The output ends after {wording.plural(len(trace.token_ids), 'token')} of {request.max_new_tokens}, "
        "and none of them is an end token.",
        table=Table(
            rows=(
                ("end tokens", *map(str, request.eos_token_ids)),
                ("output ends", *wording.token_text(trace.token_ids[-6:])),
            )
        ),
        not_noise="Tokens are counted: the case is exact.",
        where=(
            f"Seen with the {name} drafter, prompt {list(request.prompt_token_ids)}; finish reason "
            f"{trace.finish_reason!r}; {wording.plural(len(early), 'output')} in all.",
        ),
        likely_cause="the prompt is searched for end tokens too, not only what was generated."
        if in_prompt and all(set(one.request.eos_token_ids) & set(one.request.prompt_token_ids) for _, one in early)
        else "",
        details={"ended_early": len(early)},
    )


def _requests_with_end(plain: Run, *, num_ends: int) -> list[tuple[Request, int]]:
    """Requests whose end token is the greedy token of a known index, first occurrence at that index.

    It is the last end token of the request; every second request has another one before it, which never comes.
    """
    wanted: list[tuple[Request, int]] = []
    for trace in plain.traces:
        for index in range(1, min(num_ends, len(trace.token_ids))):
            end = trace.token_ids[index]
            if end not in trace.token_ids[:index]:
                ends = (*_never_emitted(trace)[: index % 2], end)
                request = replace(trace.request, eos_token_ids=ends, request_id=f"{trace.request.request_id}/{index}")
                wanted.append((request, index))
                # The length limit one token behind the end token: both fall into one block.
                wanted.append((replace(request, max_new_tokens=index + 2), index))
    return wanted


def _never_emitted(trace: Trace) -> tuple[int, ...]:
    """A token id that neither the prompt nor the greedy text holds, if there is one below the largest they do hold."""
    held = {*trace.request.prompt_token_ids, *trace.token_ids}
    return tuple(token for token in range(max(held)) if token not in held)[-1:]


def _falls_inside_draft(trace: Trace, end: int) -> int:
    return sum(1 for step in trace.steps if end in step.draft_token_ids[: step.num_accepted])


def _end_step(trace: Trace, end: int) -> Iterator[str]:
    for step in trace.steps:
        if end in step.token_ids:
            offset = step.token_ids.index(end)
            what = "draft token" if offset < step.num_accepted else "final token, slot"
            yield f"In step {step.index} it is {what} {offset} of {step.num_draft_tokens} drafted."
            return


def _end_cause(wrong: Sequence[tuple[str, Trace, int]], num_right: int) -> str:
    """num_right: outputs that end rightly, inside an accepted draft: then not all such end tokens are missed."""
    last_in_step = []
    in_last_step = []
    for _, trace, _ in wrong:
        end = trace.request.eos_token_ids[-1]
        step = next((step for step in trace.steps if end in step.token_ids), None)
        last_in_step.append(step is None or step.token_ids.index(end) == len(step.token_ids) - 1)
        in_last_step.append(step is not None and step is trace.steps[-1])
    if all(in_last_step) and all(len(trace.token_ids) == trace.request.max_new_tokens for _, trace, _ in wrong):
        return "the length limit is looked at before the end tokens: a block with both is cut at the limit only."
    if num_right and all(len(trace.request.eos_token_ids) > 1 for _, trace, _ in wrong):
        return "inside a draft only the first of several end tokens is looked for."
    if num_right or any(last_in_step):
        return ""
    return "only the last token of a step is compared with the end tokens, not every token of the accepted block."
