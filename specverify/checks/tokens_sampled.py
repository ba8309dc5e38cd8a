"""Sampled rows of a batch end where they must: nothing of that is decided by luck."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from specverify.checks import ambient, evidence, wording
from specverify.checks.registry import CheckContext, Exercised, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.types import Request, Trace

# Every third token that the standard texts hold is an end token of half the requests: outputs of a few tokens. Of 16
# such rows none begins with an end token once in 600 runs, and hardly ever none has one inside an accepted block.
_TOKENS_PER_END = 3
_MOST_TOKENS = 10
_NUM_ROWS = 32


@check(
    "tokens.sampled-rows-end",
    claim="Sampled in company, an output ends at its first end token and at max_new_tokens, and no sooner.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE, Capability.BATCH, Capability.STOP},
    exercised_by=(Exercised("end-tokens"), Exercised("limits")),
    catches=("eos-missed-when-sampled", "limit-overshot-when-sampled", "eos-first-token-missed"),
    source="huggingface/transformers#47912 and sgl-project/sglang#31599, on the path of sampled requests",
)
def sampled_rows_end(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """One batch of requests sampled at temperature 1. Half of them have many end tokens, so that one comes soon, on any
    place of a draft or as the first token; the others have limits of 1, 2, 3 ... tokens.

    Which tokens come is luck; that nothing follows an end token, and that no limit is passed or missed, is not.
    """
    requests = _requests(subject, context)
    with ambient.repeatable(subject, context, "sampled-ends"):
        traces = evidence.generate(evidence.quiet(subject), requests, speculate=True)
    wrong = [(trace, reason) for trace in traces if (reason := _fault(subject, trace, context))]
    if wrong:
        yield _finding(wrong, len(traces))
    ends, limits = context.counters["end-tokens"], context.counters["limits"]
    context.worth(f"{len(traces)} sampled rows: {ends} end tokens, {limits} limits")


def _requests(subject: Any, context: CheckContext) -> list[Request]:
    prompts = evidence.standard_prompts(subject, context)
    plain = evidence.plain_run(subject, context).traces
    held = sorted({token for trace in plain for token in (*trace.request.prompt_token_ids, *trace.token_ids)})
    most = min(_MOST_TOKENS, evidence.new_tokens(subject))
    is_seeded = Capability.SEED in subject.capabilities
    requests = []
    for number in range(_NUM_ROWS):
        has_ends = number % 2 == 0
        requests.append(
            Request(
                prompts[number // 2 % len(prompts)],
                max_new_tokens=most if has_ends else 1 + number // 2 % most,
                sampling=evidence.SAMPLED,
                seed=context.streams.integer("sampled-ends", number) % 2**31 if is_seeded else None,
                eos_token_ids=tuple(held[number // 2 % _TOKENS_PER_END :: _TOKENS_PER_END]) if has_ends else (),
                request_id=f"row {number}",
            )
        )
    return requests


def _fault(subject: Any, trace: Trace, context: CheckContext) -> str:
    """What is wrong with where the output ends, or an empty string."""
    request, num_tokens = trace.request, len(trace.token_ids)
    at_end = next((i for i, token in enumerate(trace.token_ids) if token in request.eos_token_ids), None)
    if at_end is not None:
        context.exercised("end-tokens")
        after = num_tokens - at_end - 1
        token = trace.token_ids[at_end]
        return f"end token {token} came as new token {at_end}, and {wording.plural(after, 'token')} followed" * (
            after > 0
        )
    own = getattr(getattr(subject, "checkpoint", None), "eos_token_id", None)
    if own is not None and trace.token_ids[-1:] == (own,):
        return ""  # some engines end at the checkpoint's own end token too
    context.exercised("limits")
    if num_tokens == request.max_new_tokens:
        return ""
    return f"max_new_tokens={request.max_new_tokens} gave {wording.plural(num_tokens, 'token')} and no end token"


def _finding(wrong: Sequence[tuple[Trace, str]], num_rows: int) -> Finding:
    trace, reason = min(wrong, key=lambda item: len(item[0].token_ids))
    request = trace.request
    steps = [" ".join(map(str, step.token_ids)) or "nothing" for step in trace.steps]
    rows = [
        ("end tokens", *(wording.token_text(request.eos_token_ids) or ["none"])),
        ("output", *wording.token_text(trace.token_ids[:12])),
    ]
    return Finding(
        headline=f"In a sampled row {reason}.",
        table=Table(rows=rows),
        not_noise="Tokens are counted: whatever is drawn, an output ends there.",
        where=(
            f"Prompt {wording.prompt_text(request.prompt_token_ids)}, max_new_tokens {request.max_new_tokens}.",
            *([f"Its steps emitted: {'; '.join(steps)}."] if steps else []),
            f"{len(wrong)} of {num_rows} rows are wrong.",
        ),
        likely_cause=_cause([trace for trace, _ in wrong]),
        details={"wrong": len(wrong), "rows": num_rows},
    )


def _cause(wrong: Sequence[Trace]) -> str:
    if all(trace.token_ids[:1] and trace.token_ids[0] in trace.request.eos_token_ids for trace in wrong):
        return "the first token, which comes from prefill, is not compared with the end tokens."
    if all(len(trace.token_ids) > trace.request.max_new_tokens for trace in wrong):
        return "the step that reaches the limit keeps its whole accepted block."
    return ""
