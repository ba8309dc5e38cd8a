"""What is said of an exact law that is not the target's: the place, both laws there, the cause that fits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from specverify.checks import evidence, noise, sequence_cause, wording
from specverify.checks.registry import CheckContext
from specverify.checks.sequence_cause import Tokens
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Table
from specverify.core.scenario import Scenario
from specverify.core.types import Request
from specverify.exact.errors import ReusedRandomness
from specverify.laws.sequence import completed_distance
from specverify.laws.tree import Conditional

_SHOWN_TOKENS = 6
# Calls spent on learning what the draft law was at the place of failure, only after a failure.
_CALLS_FOR_DRAFT_ROW = 200


@dataclass
class Enumerated:
    """The law of one way of calling the engine. seen: what happened on all paths together."""

    law: dict[Tokens, float]
    num_runs: int
    seen: Counter[str] = field(default_factory=Counter)
    num_from_prefill: int = 1


def law_finding(
    subject: Any, scenario: Scenario, request: Request, on: Enumerated, target: Conditional, tv: float,
    tolerance: float, context: CheckContext,
) -> Finding:  # fmt: skip
    distance = completed_distance(on.law, target)
    prefix = distance.first_prefix if distance.first_prefix is not None else distance.worst_prefix
    observed = sequence_cause.conditional_of(on.law, len(distance.wanted))(prefix)
    right = target(prefix)
    reached = sum(p for tokens, p in on.law.items() if tokens[: len(prefix)] == prefix and len(tokens) > len(prefix))
    shown = sorted(range(len(right)), key=lambda token: -max(right[token], observed[token]))[:_SHOWN_TOKENS]
    shown = sorted(token for token in shown if max(right[token], observed[token]) > 0.0)
    local = noise.total_variation(observed, right)
    cause = sequence_cause.likely_cause(
        on.law, request, target, _draft_conditional(subject, request, prefix), prefix,
        num_draft_tokens=evidence.num_draft_tokens(subject), tolerance=max(1e-6, tolerance),
        num_from_prefill=on.num_from_prefill,
    )  # fmt: skip
    text = f"new tokens {', '.join(map(str, prefix))}" if prefix else "the prompt"
    context.figures.update(tv=tv, scenario=scenario.name, paths=on.num_runs)
    return Finding(
        headline=f"Scenario {scenario.name!r}: after {text} the next token does not follow the target's law.",
        table=Table(
            rows=(
                ("token", *map(str, shown)),
                ("target law", *(wording.probability_text(right[token]) for token in shown)),
                ("emitted", *(wording.probability_text(observed[token]) for token in shown)),
                ("emitted - target", *(wording.signed_text(observed[token] - right[token]) for token in shown)),
            )
        ),
        not_noise=f"Exact: all {on.num_runs:,} paths of the call were run. Total variation {tv:.3g} over whole "
        f"outputs, {local:.3g} at this place; rounding explains {tolerance:.0e}.",
        where=(
            _request_text(request, scenario),
            f"A call comes to this place with probability {reached:.3g}; the token is new token {len(prefix)}.",
            *(
                (f"Tokens that the target forbids are emitted with probability {distance.impossible_mass:.3g}.",)
                if distance.impossible_mass > tolerance
                else ()
            ),
        ),
        likely_cause=cause,
        details={"tv": tv, "tolerance": tolerance, "prefix": list(prefix), "paths": on.num_runs},
    )


def reused_finding(scenario: Scenario, request: Request, reused: ReusedRandomness) -> Finding:
    return Finding(
        headline=f"Scenario {scenario.name!r}: one random value decides two things that must be independent.",
        table=None,
        not_noise="The call was run with symbols in place of random numbers: this is seen, not inferred.",
        where=(
            f"{reused.operation or 'An operation'} meets a value that was used before.",
            *((f"At {reused.source_line}",) if reused.source_line else ()),
            _request_text(request, scenario),
        ),
        likely_cause=f"random values are reused: {reused.reason}.",
    )


def _request_text(request: Request, scenario: Scenario) -> str:
    prompt = list(request.prompt_token_ids)
    return f"Prompt {prompt}, {request.max_new_tokens} new tokens, {_sampling_text(scenario)}."


def _sampling_text(scenario: Scenario) -> str:
    neutral = type(scenario.sampling)()
    changed = [
        f"{name} {getattr(scenario.sampling, name):g}"
        for name in neutral.__dataclass_fields__
        if getattr(scenario.sampling, name) != getattr(neutral, name)
    ]
    ends = [f"end tokens {list(scenario.eos_token_ids)}"] if scenario.eos_token_ids else []
    return ", ".join([*changed, *ends]) or "temperature 1"


def _draft_conditional(subject: Any, request: Request, prefix: Tokens) -> Conditional | None:
    """The draft law: the probe's, where the drafter is its draft model; else rows seen in ordinary calls."""
    if getattr(subject, "proposer", "") == "draft-model":
        conditional: Conditional = subject.checkpoint.draft_oracle.conditional(
            request.prompt_token_ids, request.sampling
        )
        return conditional
    if Capability.DRAFT_TREE in subject.capabilities:
        return None  # the known mistakes are those of chains
    if Capability.DRAFT_PROBS not in subject.capabilities or not hasattr(subject, "generate"):
        return None
    rows = {}
    for seed in range(_CALLS_FOR_DRAFT_ROW):
        seeded = replace(request, seed=seed if Capability.SEED in subject.capabilities else None)
        (trace,) = evidence.generate(subject, [seeded], speculate=True)
        for step in trace.steps:
            if step.draft_probs is None:
                continue
            start = step.start_position - len(request.prompt_token_ids)
            for index in range(step.num_draft_tokens):
                place = (*trace.token_ids[:start], *step.draft_token_ids[:index])
                rows[place] = step.draft_probs[index]
        if prefix in rows:
            return lambda place: rows[place]
    return None
