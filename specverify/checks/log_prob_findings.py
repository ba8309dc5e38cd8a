"""What is said of log-probabilities that are too few, too many or wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from specverify.checks import noise, samples, wording
from specverify.checks.evidence import Run
from specverify.checks.log_prob_causes import cause_of, cause_of_counts
from specverify.checks.log_prob_readings import CONVENTIONS, PLAIN, Held, Wrong, kind_of
from specverify.core.outcomes import Finding, Table
from specverify.core.types import Trace

_SHOWN_BEFORE, _SHOWN = 2, 6


def count_finding(runs: Sequence[Run]) -> Iterator[Finding]:
    """One finding for all traces with another number of entries than tokens."""
    traces = [(run, trace) for run in runs for trace in run.traces]
    wrong = [(run, trace) for run, trace in traces if len(trace.log_probs or ()) != len(trace.token_ids)]
    if not wrong:
        return
    run, trace = min(wrong, key=lambda pair: len(pair[1].token_ids))
    with_speculation = sum(bool(one.drafter) for one, _ in wrong)
    yield Finding(
        headline=f"Request {trace.request.request_id} emitted {wording.plural(len(trace.token_ids), 'token')} and has "
        f"{_entries(trace)}.",
        table=Table(
            rows=(
                ("request", "tokens", "entries", "steps", "drafted", "accepted", "run"),
                *(_count_row(*pair) for pair in sorted(wrong, key=lambda pair: len(pair[1].token_ids))[:4]),
            )
        ),
        not_noise="Entries are counted: the case is exact.",
        where=(
            f"Seen in: {_label(run)}, output {wording.prompt_text(trace.token_ids)}.",
            f"{len(wrong)} of {len(traces)} outputs have a wrong number; {with_speculation} of them with speculation.",
        ),
        likely_cause=cause_of_counts([trace for _, trace in wrong]),
        details={"wrong": len(wrong), "traces": len(traces)},
    )


def _entries(trace: Trace) -> str:
    if trace.log_probs is None:
        return "no log-probabilities at all"
    return f"{len(trace.log_probs)} log-probabilities"


def _count_row(run: Run, trace: Trace) -> tuple[str, ...]:
    drafted = sum(step.num_draft_tokens for step in trace.steps)
    accepted = sum(step.num_accepted for step in trace.steps)
    numbers = (len(trace.token_ids), len(trace.log_probs or ()), len(trace.steps), drafted, accepted)
    return (trace.request.request_id, *map(str, numbers), _label(run))


def value_finding(
    wrong: Sequence[Wrong], held: Sequence[Held], convention: str, scorer: samples.Scorer, allowed: float
) -> Finding:
    """One finding for all tokens with a wrong value; the one earliest in its output is shown."""
    worst = min(wrong, key=lambda one: one.index)
    trace, run = worst.held.trace, worst.held.run
    position = len(trace.request.prompt_token_ids) + worst.index
    gap = abs(worst.reported - worst.wanted)
    return Finding(
        headline=f"Token {worst.token} at position {position} (new token {worst.index}) is reported with "
        f"log-probability {_number(worst.reported)}; wanted is {_number(worst.wanted)}.",
        table=Table(rows=tuple(_rows(worst, convention))),
        not_noise=f"It is off by {gap:.3g}; rounding explains {allowed:.1g}{noise.assumed_text(scorer.subject)}.",
        where=(
            f"Seen in: {_label(run)}, request {trace.request.request_id}, "
            f"prompt {wording.prompt_text(trace.request.prompt_token_ids)}.",
            *_place(worst),
            _yardstick(convention, scorer),
            f"Wrong: {_by_kind(wrong, held)}.",
        ),
        likely_cause=cause_of(wrong, held, convention, scorer, allowed),
        details={"wrong": len(wrong), "judged": sum(one.num_judged for one in held), "allowed": allowed},
    )


def _rows(worst: Wrong, convention: str) -> Iterator[tuple[str, ...]]:
    held, first = worst.held, max(0, worst.index - _SHOWN_BEFORE)
    shown = range(first, min(len(held.trace.token_ids), first + _SHOWN))
    yield ("new token", *map(str, shown))
    yield ("token id", *(str(held.trace.token_ids[index]) for index in shown))
    yield ("came as", *(_short_place(held, index) for index in shown))
    yield ("reported", *(_number(float(held.reported[index])) for index in shown))
    yield ("wanted", *(_number(float(held.wanted[convention][index])) for index in shown))


def _short_place(held: Held, index: int) -> str:
    kind = kind_of(held.run, held.trace, index)
    found = Wrong(held, index, 0.0).step
    if kind == "accepted draft tokens" and found is not None:
        return f"draft {found[1]}"
    return {"final tokens": "final", "tokens of prefill": "prefill"}.get(kind, "-")


def _place(worst: Wrong) -> Iterator[str]:
    found = worst.step
    if found is None:
        return
    step, slot = found
    if slot < step.num_accepted:
        yield f"It is accepted draft token number {slot} of {step.num_draft_tokens}, in step {step.index}."
    else:
        yield f"It is the final token behind {step.num_accepted} of {step.num_draft_tokens} draft tokens, " + (
            f"in step {step.index}."
        )


def _yardstick(convention: str, scorer: samples.Scorer) -> str:
    if convention == PLAIN:
        return "Wanted is what plain decoding reports of the same token behind the same text."
    return f"Wanted: {CONVENTIONS[convention].text}, by {scorer.source}; of all readings it fits plain decoding best."


def _by_kind(wrong: Sequence[Wrong], held: Sequence[Held]) -> str:
    broken = Counter(kind_of(one.held.run, one.held.trace, one.index) for one in wrong)
    seen = Counter(kind_of(one.run, one.trace, index) for one in held for index in range(len(one.trace.token_ids)))
    return ", ".join(f"{broken[kind]} of {count} {kind}" for kind, count in seen.items())


def _label(run: Run) -> str:
    how = "greedy" if run.sampling.is_greedy else f"sampled at temperature {run.sampling.temperature:g}"
    if run.sampling.top_k:
        how += f", top-k {run.sampling.top_k}"
    return f"{how}, {run.drafter} drafter" if run.drafter else f"{how}, plain decoding"


def _number(value: float) -> str:
    return "?" if value != value else "0" if value == 0.0 else f"{value:.3f}"
