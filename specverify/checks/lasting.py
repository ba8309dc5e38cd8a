"""What an engine does after many requests: it still answers, still the same, and still speculates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specverify.checks import ambient, evidence, noise, places, wording
from specverify.checks.divergence import bugs_among, first_divergence, with_margins
from specverify.checks.evidence import GREEDY, SAMPLED, Run
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.crashes import crash_sentence
from specverify.core.errors import SubjectCrashed, UsageError
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.types import Request, Trace

# What is asked first, and again at the end: long enough for a few steps with rejections.
_NUM_TOKENS = 12
# In between: short calls of these sizes in turn, more requests than an engine has slots by default.
_NUM_CALLS, _FEW_CALLS = 24, 8
_BATCH_SIZES = (1, 3, 2, 4)
_LONGEST = 6


@dataclass(eq=False)
class _Served:
    """An engine, what it is asked first, and what it was asked so far.

    num_undrafted: requests since a token was drafted last.
    """

    engine: Any
    first: Sequence[Request]
    num_requests: int = 0
    num_drafted: int = 0
    num_undrafted: int = 0

    def ask(self, requests: Sequence[Request]) -> tuple[Trace, ...]:
        traces = evidence.generate(self.engine, requests, speculate=True)
        drafted = _num_drafted(traces)
        self.num_requests += len(requests)
        self.num_drafted += drafted
        self.num_undrafted = 0 if drafted else self.num_undrafted + len(requests)
        return traces

    def ask_first(self) -> tuple[Trace, ...]:
        """The first requests, in one call where the engine takes batches."""
        if Capability.BATCH in self.engine.capabilities:
            return self.ask(self.first)
        return tuple(trace for request in self.first for trace in self.ask([request]))


@check(
    "activity.speculation-lasts",
    claim="After many requests an engine still speculates, and answers the first ones as it did.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE},
    exercised_by=(Exercised("requests-in-between"), Exercised("tokens")),
    catches=("lasting-slots-not-returned", "lasting-draft-context-fills"),
    source="NVIDIA/TensorRT-LLM#12063: slots never returned; ggml-org/llama.cpp#27692: a draft context that filled up",
)
def speculation_lasts(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Greedy requests; then dozens of short ones, greedy and sampled, some with an end token, in calls of different
    sizes; then the first ones again. Fewer for a slow engine.

    A token that changed is a finding, near ties apart (see greedy.on-equals-off), and so is an engine that raises on
    what it answered before. How much is drafted may change, since an engine may adapt; that nothing is drafted any
    more, asked twice, is a finding. What an engine leaks without running out of it is not seen.
    """
    with ambient.repeatable(subject, context, "lasting"):
        yield from list(_judge(subject, context))


def _judge(subject: Any, context: CheckContext) -> Iterator[Finding]:
    served = _Served(evidence.quiet(subject), _first_requests(subject, context))
    before = served.ask_first()
    broken = _serve(subject, served, context)
    context.exercised("requests-in-between", served.num_requests - len(before))
    try:
        after = served.ask_first()
    except UsageError:
        raise
    except Exception as error:
        yield _refusal(served, error)
        return
    if broken is not None:
        raise SubjectCrashed(
            f"after {served.num_requests - len(after)} requests: {crash_sentence(broken)}; those that it answered at "
            "first are still answered"
        ) from broken
    yield from _other_tokens(subject, served, before, after, context)
    yield from _silence(served, before, after)
    if any(map(places.tells_drafts, before)) and not _num_drafted(before):
        yield from _silent_already(subject, context)
    _say_worth(served, before, after, context)


def _first_requests(subject: Any, context: CheckContext) -> list[Request]:
    requests = evidence.standard_requests(subject, context, GREEDY)
    length = min(_NUM_TOKENS, evidence.new_tokens(subject))
    few = requests[:2] if getattr(subject, "is_slow", False) else requests
    return [replace(request, max_new_tokens=length) for request in few]


def _serve(subject: Any, served: _Served, context: CheckContext) -> Exception | None:
    """Asks short calls until the engine raises, if it does; what it raised."""
    calls = list(_calls(subject, context))
    for index, requests in enumerate(calls):
        context.progress("calls in between", index, len(calls))
        try:
            served.ask(requests)
        except UsageError:
            raise
        except Exception as error:
            return error
    return None


def _calls(subject: Any, context: CheckContext) -> Iterator[list[Request]]:
    """Calls that differ in prompts, size, sampling and end tokens, as far as the engine takes that."""
    prompts = evidence.standard_prompts(subject, context)
    is_batched, can_end, has_seeds = (
        capability in subject.capabilities for capability in (Capability.BATCH, Capability.STOP, Capability.SEED)
    )
    numbers = itertools.count()
    for call in range(_FEW_CALLS if getattr(subject, "is_slow", False) else _NUM_CALLS):
        size = _BATCH_SIZES[call % len(_BATCH_SIZES)] if is_batched else 1
        yield [
            Request(
                prompt_token_ids=prompts[number % len(prompts)],
                max_new_tokens=2 + number % (_LONGEST - 1),
                sampling=SAMPLED if number % 3 == 1 else GREEDY,
                seed=number if has_seeds and number % 2 else None,
                # A token of the prompt: likely to come at some time.
                eos_token_ids=prompts[number % len(prompts)][-1:] if can_end and number % 4 == 2 else (),
                request_id=f"in between/{number}",
            )
            for number in itertools.islice(numbers, size)
        ]


def _other_tokens(
    subject: Any, served: _Served, before: Sequence[Trace], after: Sequence[Trace], context: CheckContext
) -> Iterator[Finding]:
    run = Run("own", GREEDY, tuple(after), served.engine)
    parted = []
    for one, other in zip(after, before, strict=True):
        divergence = first_divergence(run, one, other)
        context.exercised("tokens", divergence.token_index if divergence else len(one.token_ids))
        if divergence is not None:
            parted.append(with_margins(divergence, subject, context))
    tolerance = 2.0 * noise.log_prob_noise(subject, context) if parted else 0.0
    bugs = bugs_among(parted, tolerance, context)
    if not bugs:
        return
    worst = min(bugs, key=lambda item: item.token_index)
    texts, index = (worst.off.token_ids, worst.on.token_ids), worst.token_index
    shown = slice(max(0, index - 3), index + 5)
    margins = (worst.off_margin, worst.on_margin)
    yield Finding(
        headline=f"After {served.num_requests - len(after)} requests a greedy one got other tokens than at first, from "
        f"new token {index} on.",
        table=Table(
            rows=(
                ("new token", *(str(i) for i in range(max(map(len, texts)))[shown])),
                ("at first", *wording.token_text(texts[0][shown])),
                ("now", *wording.token_text(texts[1][shown])),
            )
        ),
        not_noise=f"{len(bugs)} of {len(after)} outputs changed: rounding does not do that."
        if None in margins
        else f"Not a near tie: the two tokens' log-probabilities are {margins[0]:.3g} and {margins[1]:.3g} below the "
        f"best one; rounding explains {tolerance:.1g}.",
        where=(
            f"Prompt {wording.prompt_text(worst.on.request.prompt_token_ids)}; {len(bugs)} of {len(after)} outputs "
            "changed.",
        ),
        details={"requests": served.num_requests - len(after), "changed": len(bugs)},
    )


def _silence(served: _Served, before: Sequence[Trace], after: Sequence[Trace]) -> Iterator[Finding]:
    drafted = _num_drafted(before)
    if not drafted or _num_drafted(after) or _num_drafted(served.ask_first()):
        return
    last = served.num_requests - served.num_undrafted
    yield Finding(
        headline=f"After {last} requests nothing is drafted any more.",
        table=Table(
            rows=(
                ("the same requests", "tokens", "drafted", "accepted"),
                ("at first", str(_num_tokens(before)), str(drafted), str(sum(map(places.num_accepted, before)))),
                ("at the end", str(_num_tokens(after)), "0", "0"),
            )
        ),
        not_noise=f"Counted: {served.num_drafted:,} tokens were drafted for the first {last} requests, and none for "
        f"the {served.num_undrafted} that came after them.",
        where=(f"Prompts of the standard runs, {len(before)} greedy requests; asked twice at the end.",),
        details={"requests": last, "drafted": served.num_drafted},
    )


def _silent_already(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Where other checks have asked so much that it was silent from the start of this one."""
    run = evidence.own_runs(subject, context)[0]
    drafted = _num_drafted(run.traces)
    again = evidence.generate(subject, [trace.request for trace in run.traces], speculate=True) if drafted else ()
    if again and not _num_drafted(again):
        yield Finding(
            headline="After the requests of other checks nothing is drafted any more.",
            table=Table(
                rows=(
                    ("the same requests", "tokens", "drafted"),
                    ("early in this run", str(_num_tokens(run.traces)), str(drafted)),
                    ("now", str(_num_tokens(again)), "0"),
                )
            ),
            not_noise="Counted, and the very same requests.",
            details={"drafted": drafted},
        )


def _refusal(served: _Served, error: Exception) -> Finding:
    said = (str(error).strip().splitlines() or ["no message"])[0]
    return Finding(
        headline=f"After {served.num_requests} requests the engine raises on those that it answered at first.",
        not_noise="The very same requests were answered before.",
        where=(
            f"It raised {type(error).__name__}: {said}",
            f"Prompts of the standard runs, {len(served.first)} greedy requests.",
        ),
        details={"requests": served.num_requests, "error": crash_sentence(error)},
    )


def _say_worth(served: _Served, before: Sequence[Trace], after: Sequence[Trace], context: CheckContext) -> None:
    line = f"{context.counters['tokens']:,} tokens as before, after {served.num_requests - len(after)} requests"
    if any(map(places.tells_drafts, before)):
        if not _num_drafted(before):
            raise Inconclusive(f"{line}, but nothing was drafted at first either")
        line += f"; {_num_drafted(before)} tokens drafted for them at first, {_num_drafted(after)} at the end"
    context.worth(line)


def _num_drafted(traces: Sequence[Trace]) -> int:
    return sum(map(places.num_drafted, traces))


def _num_tokens(traces: Sequence[Trace]) -> int:
    return sum(len(trace.token_ids) for trace in traces)
