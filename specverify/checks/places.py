"""Steps where they were seen: in which run, in which trace, after which other step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from specverify.checks import evidence
from specverify.checks.evidence import Run
from specverify.checks.registry import CheckContext, Inconclusive
from specverify.core.capabilities import Capability
from specverify.core.types import Step, Trace


@dataclass(frozen=True, eq=False)
class Place:
    """One step, where it was seen, and the step before it in the same trace."""

    run: Run
    trace: Trace
    step: Step
    previous: Step | None

    @property
    def committed_after(self) -> int:
        """Committed tokens, prompt included, when the step ends."""
        return self.step.start_position + len(self.step.token_ids)

    def describe(self) -> str:
        return f"{self.run.label}, request {self.trace.request.request_id}, step {self.step.index}"


def all_places(runs: Sequence[Run]) -> Iterator[Place]:
    """Every step of every trace, with the step before it."""
    for run in runs:
        for trace in run.traces:
            previous: Step | None = None
            for step in trace.steps:
                yield Place(run, trace, step, previous)
                previous = step


def smallest(found: Sequence[Place]) -> Place:
    """The place with the fewest committed tokens: the easiest one to think through."""
    return min(found, key=lambda place: (place.step.start_position, place.step.num_draft_tokens, place.step.index))


def count_steps(context: CheckContext, seen: Sequence[Place]) -> None:
    """Counts what the steps exercised: steps, rejections, full accepts, accepted-0, accepted-1 and so on."""
    for place in seen:
        step = place.step
        context.exercised("steps")
        if step.num_draft_tokens == 0:
            context.exercised("empty-drafts")
            continue
        context.exercised("drafted-tokens", step.num_draft_tokens)
        context.exercised("rejections" if step.is_rejection else "full-accepts")
        context.exercised(f"accepted-{step.num_accepted}")


def require_every_length(subject: Any, context: CheckContext) -> None:
    """Where drafters can be put in that force every accept length, a pass needs them all: 0 to num_draft_tokens."""
    if Capability.SCRIPTED_PROPOSER not in subject.capabilities:
        return
    wanted = range(evidence.num_draft_tokens(subject) + 1)
    missing = [length for length in wanted if not context.counters[f"accepted-{length}"]]
    if missing:
        raise Inconclusive(
            f"no step accepted {', '.join(map(str, missing))} draft tokens, although drafters were put in"
        )


def accept_length_line(context: CheckContext) -> str:
    """For the pass line: how many steps accepted 0, 1, 2 ... draft tokens."""
    lengths = sorted(int(name[9:]) for name in context.counters if name.startswith("accepted-"))
    counts = ", ".join(str(context.counters[f"accepted-{length}"]) for length in lengths)
    names = ", ".join(str(length) for length in lengths)
    return (
        f"{context.counters['steps']} steps, {context.counters['rejections']} with a rejection "
        f"(accepted {names}: {counts})"
    )


def num_drafted(trace: Trace) -> int:
    """Draft tokens of a trace, by its steps or by the engine's own count."""
    return sum(step.num_draft_tokens for step in trace.steps) or trace.num_proposed or 0


def num_accepted(trace: Trace) -> int:
    return sum(step.num_accepted for step in trace.steps) or trace.num_accepted or 0


def tells_drafts(trace: Trace) -> bool:
    """Whether anybody says how many tokens were drafted."""
    return bool(trace.steps) or trace.num_proposed is not None


def inside_draft_text(num_inside: int, traces: Iterable[Trace]) -> str:
    """For the pass line: how many of what was counted fell inside an accepted draft, if the steps tell."""
    if any(trace.steps for trace in traces):
        return f"{num_inside} of them inside an accepted draft"
    return "whether inside a draft is not recorded"


def place_text(trace: Trace, index: int) -> str:
    """Where new token number index came from, to follow "it"."""
    position = len(trace.request.prompt_token_ids) + index
    for step in trace.steps:
        if step.start_position <= position < step.start_position + len(step.token_ids):
            inside = position - step.start_position
            return f"was token {inside} of its verify call" + ("" if step.draft_token_ids else ", which had no draft")
    return "came from prefill, before any draft" if trace.steps else "came from a step that is not recorded"


def committed_token_ids(trace: Trace) -> tuple[int, ...]:
    """Prompt and new tokens."""
    return (*trace.request.prompt_token_ids, *trace.token_ids)


def where_it_begins(wrong: Sequence[Place], seen: Sequence[Place]) -> str:
    """How the step before went, among wrong and right steps: draft-side faults are left behind by one kind of step."""

    def kind(place: Place) -> str:
        before = place.previous
        if before is None:
            return "in the first step"
        if before.num_draft_tokens == 0:
            return "after a step without a draft"
        return "after a rejection" if before.is_rejection else "after a full accept"

    wrong_kinds = {name: sum(kind(p) == name for p in wrong) for name in map(kind, wrong)}
    totals = {name: sum(kind(p) == name for p in seen) for name in wrong_kinds}
    return "Wrong steps: " + ", ".join(f"{count} of {totals[n]} {n}" for n, count in wrong_kinds.items()) + "."
