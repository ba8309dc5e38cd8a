"""Compares a trace with its golden one in the order in which a step computes things, and names what changed first.

Steps are compared while both runs are in the same situation: up to and including the first step after which their
texts differ. Behind that, everything differs and nothing of it is a cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from specverify.core.errors import UsageError
from specverify.core.types import Step, Trace
from specverify.trace.explain import decision_story, likely_cause
from specverify.trace.pipeline import PIPELINE, common_length, law_distance, may_compare, num_comparable_rows, value_of

# Laws of one engine on one machine repeat bit for bit; another machine's matrix products round otherwise.
PROBS_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Component:
    """One part of the pipeline, compared over all steps.

    state: "same", "CHANGED", or why it was not compared. step: where it changed first. amount, allowed: of laws.
    """

    name: str
    state: str
    detail: str = ""
    step: int | None = None
    amount: float | None = None
    allowed: float | None = None

    @property
    def is_changed(self) -> bool:
        return self.state == "CHANGED"


@dataclass(frozen=True)
class Comparison:
    """How a trace differs from its golden one.

    components: in pipeline order. first: the one that changed first, by step and then by cause. headline: where the
    text first differs. story: what happened at the first changed decision, a line each.
    """

    components: tuple[Component, ...]
    first: Component | None
    headline: str = ""
    story: tuple[str, ...] = ()
    likely_cause: str = ""

    @property
    def is_same(self) -> bool:
        return self.first is None

    def rows(self) -> list[tuple[str, ...]]:
        """The components as table rows; the first difference is marked."""
        marked = [(c, "<- first difference" if c is self.first else "") for c in self.components]
        return [(c.name, c.state, *(text for text in (c.detail, mark) if text)) for c, mark in marked]


def compare(golden: Trace, now: Trace, *, probs_tolerance: float = PROBS_TOLERANCE) -> Comparison:
    """What changed between the golden trace and the one recorded now."""
    if golden.request.prompt_token_ids != now.request.prompt_token_ids:
        changed = Component("prompt token ids", "CHANGED", "the two runs were asked different things")
        rest = tuple(Component(name, "not compared") for name in PIPELINE[1:])
        return Comparison((changed, *rest), changed, "The prompts differ.")
    pairs = list(_comparable_steps(golden, now))
    last = len(pairs) - 1
    span = f"steps 0-{last}" if last > 0 else "step 0" if last == 0 else "no steps"
    components = [Component("prompt token ids", "same")]
    for name in PIPELINE[1:-1]:
        components.append(_component(name, pairs, span, probs_tolerance))
    components.append(_text_component(golden, now, len(pairs)))
    first = _first(components)
    if first is None:
        return Comparison(tuple(components), None)
    where = first.step if first.step is not None and first.step < len(pairs) else None
    decision = next((c for c in components if c.name == "decision" and c.is_changed), None)
    return Comparison(
        components=tuple(components),
        first=first,
        headline=_headline(golden, now, first),
        story=decision_story(*pairs[decision.step]) if decision is not None and decision.step is not None else (),
        likely_cause="" if where is None else likely_cause(*pairs[where], first.name, golden.request.sampling),
    )


def compare_all(
    golden: Sequence[Trace], now: Sequence[Trace], *, probs_tolerance: float = PROBS_TOLERANCE
) -> list[Comparison]:
    """One comparison per trace, in order. Raises UsageError where the numbers of traces differ."""
    if len(golden) != len(now):
        raise UsageError(f"{len(golden)} golden traces and {len(now)} to compare with them; replay the same requests")
    return [compare(a, b, probs_tolerance=probs_tolerance) for a, b in zip(golden, now, strict=True)]


def _comparable_steps(golden: Trace, now: Trace) -> Iterator[tuple[Step, Step]]:
    """Pairs of steps that start from the same text."""
    if golden.token_ids[: golden.first_from_prefill] != now.token_ids[: now.first_from_prefill]:
        return
    for a, b in zip(golden.steps, now.steps, strict=False):
        yield a, b
        if a.token_ids != b.token_ids or a.start_position != b.start_position:
            return


def _component(name: str, pairs: Sequence[tuple[Step, Step]], span: str, tolerance: float) -> Component:
    if not pairs:
        return Component(name, "not compared", "no step starts from the same text")
    is_law = name in ("draft probs", "target probs")
    recorded = [value_of(name, a) is not None and value_of(name, b) is not None for a, b in pairs]
    if not any(recorded):
        return Component(name, "not compared", "not recorded in both")
    largest, step, detail = 0.0, None, ""
    for (a, b), is_recorded in zip(pairs, recorded, strict=True):
        if not is_recorded:
            continue
        if is_law:
            amount = law_distance(value_of(name, a), value_of(name, b), num_comparable_rows(a, b))
            largest = max(largest, amount)
            if amount > tolerance and step is None:
                step = a.index
        elif step is None and value_of(name, a) != value_of(name, b) and may_compare(name, a, b):
            step, detail = a.index, _difference(name, a, b)
    if step is None:
        exactly = ", bit for bit" if is_law and largest == 0.0 else f", up to {largest:.1g}" if is_law else ""
        return Component(name, "same", span + exactly, amount=largest if is_law else None)
    if not is_law:
        return Component(name, "CHANGED", f"step {step}: {detail}", step)
    detail = f"step {step}: by up to {largest:.3g} (allowed {tolerance:.0e})"
    return Component(name, "CHANGED", detail, step, largest, tolerance)


def _difference(name: str, golden: Step, now: Step) -> str:
    if name == "decision":
        index = min(golden.num_accepted, now.num_accepted)
        token = golden.draft_token_ids[index]
        is_now_accepted = now.num_accepted > golden.num_accepted
        before, after = ("rejected", "now accepted") if is_now_accepted else ("accepted", "now rejected")
        return f"draft token {token} {before}, {after}"
    if name == "kv lengths":
        return f"target, draft rows {value_of(name, golden)}, now {value_of(name, now)}"
    if name == "uniforms":
        return "other random numbers"
    return f"{_shown(value_of(name, golden))}, now {_shown(value_of(name, now))}"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(str(item) for item in value) or "none"
    return "none" if value is None else str(value)


def _text_component(golden: Trace, now: Trace, num_pairs: int) -> Component:
    if golden.token_ids == now.token_ids:
        return Component("text", "same", f"{len(golden.token_ids)} tokens")
    at = common_length(golden.token_ids, now.token_ids)
    position = len(golden.request.prompt_token_ids) + at
    before, after = (_token_at(trace, at) for trace in (golden, now))
    step = num_pairs - 1 if num_pairs else 0
    return Component("text", "CHANGED", f"position {position}: {before}, now {after}", step=step)


def _token_at(trace: Trace, index: int) -> str:
    return f"token {trace.token_ids[index]}" if index < len(trace.token_ids) else "nothing"


def _first(components: Sequence[Component]) -> Component | None:
    """The change with the earliest step; within a step the earliest in the pipeline.

    A draft token follows from its law, so where both changed in one step, the law comes first.
    """
    causal = [*PIPELINE]
    causal[1], causal[2] = causal[2], causal[1]
    changed = [component for component in components if component.is_changed]
    return min(changed, key=lambda c: (-1 if c.step is None else c.step, causal.index(c.name)), default=None)


def _headline(golden: Trace, now: Trace, first: Component) -> str:
    if golden.token_ids == now.token_ids:
        return f"The text is the same; {first.name} changed at step {first.step}."
    at = common_length(golden.token_ids, now.token_ids)
    position = len(golden.request.prompt_token_ids) + at
    before, after = (_token_at(trace, at) for trace in (golden, now))
    return f"The text first differs at position {position} ({before} became {after})."
