"""An end token ends the output, on whatever place of a draft it falls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from specverify.checks import evidence, wording
from specverify.checks.evidence import Run
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.types import Request, Trace


@check(
    "tokens.eos-ends-output",
    claim="Nothing follows an end token, wherever in a draft it falls.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE, Capability.STOP},
    exercised_by=(Exercised("end-tokens"),),
    catches=("eos-inside-draft-missed", "eos-draft-goes-on", "eos-limit-comes-first"),
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
    for name in names:
        engine = evidence.with_drafter(subject, name)
        for trace in evidence.generate(engine, [request for request, _ in wanted], speculate=True):
            end = trace.request.eos_token_ids[0]
            if end not in trace.token_ids:
                continue
            first = trace.token_ids.index(end)
            context.exercised("end-tokens")
            if first < len(trace.token_ids) - 1:
                wrong.append((name, trace, first))
            context.exercised("end-tokens-inside-draft", _falls_inside_draft(trace, end))
    if wrong:
        name, trace, first = min(wrong, key=lambda item: item[2])
        after = trace.token_ids[first + 1 :]
        yield Finding(
            headline=f"End token {trace.request.eos_token_ids[0]} came as new token {first}, "
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
                *_end_step(trace, trace.request.eos_token_ids[0]),
                f"{len(wrong)} of {context.counters['end-tokens']} outputs with their end token go on after it.",
            ),
            likely_cause=_end_cause(wrong),
            details={"wrong": len(wrong), "seen": context.counters["end-tokens"]},
        )
    inside = context.counters["end-tokens-inside-draft"]
    # An engine that cuts its drafts before every end token never has one inside: it says so.
    cuts_drafts = bool(getattr(subject, "drafts_stop_before_end", False))
    if not inside and Capability.TRACE in subject.capabilities and not cuts_drafts:
        raise Inconclusive(f"{context.counters['end-tokens']} end tokens were emitted, none inside an accepted draft")
    context.worth(f"{context.counters['end-tokens']} end tokens, {inside} inside an accepted draft")


def _requests_with_end(plain: Run, *, num_ends: int) -> list[tuple[Request, int]]:
    """Requests whose end token is the greedy token of a known index, first occurrence at that index."""
    wanted: list[tuple[Request, int]] = []
    for trace in plain.traces:
        for index in range(1, min(num_ends, len(trace.token_ids))):
            end = trace.token_ids[index]
            if end not in trace.token_ids[:index]:
                request = replace(trace.request, eos_token_ids=(end,), request_id=f"{trace.request.request_id}/{index}")
                wanted.append((request, index))
                # The length limit one token behind the end token: both fall into one block.
                wanted.append((replace(request, max_new_tokens=index + 2), index))
    return wanted


def _falls_inside_draft(trace: Trace, end: int) -> int:
    return sum(1 for step in trace.steps if end in step.draft_token_ids[: step.num_accepted])


def _end_step(trace: Trace, end: int) -> Iterator[str]:
    for step in trace.steps:
        if end in step.token_ids:
            offset = step.token_ids.index(end)
            what = "draft token" if offset < step.num_accepted else "final token, slot"
            yield f"In step {step.index} it is {what} {offset} of {step.num_draft_tokens} drafted."
            return


def _end_cause(wrong: Sequence[tuple[str, Trace, int]]) -> str:
    """Fits only if every miss is an end token that is not the last token of its step."""
    for _, trace, _ in wrong:
        end = trace.request.eos_token_ids[0]
        step = next((step for step in trace.steps if end in step.token_ids), None)
        if step is None or step.token_ids.index(end) == len(step.token_ids) - 1:
            return ""
    return "only the last token of a step is compared with the end tokens, not every token of the accepted block."
