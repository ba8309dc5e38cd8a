"""A request's seed decides its tokens, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from specverify.checks import ambient, company, evidence, noise, wording
from specverify.checks.company import Broken
from specverify.checks.divergence import first_divergence, with_margins
from specverify.checks.registry import CheckContext, Exercised, check
from specverify.checks.seed_apart import log_probability
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.types import Request, SamplingParams, Trace
from specverify.trace.pipeline import common_length

_OTHERWISE = SamplingParams(temperature=0.5, top_k=4)
_FROZEN = "unseeded beside seeded requests, twice the same"


@check(
    "seed.repeats",
    claim="The same seed gives the same tokens, at any time and in any company.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE, Capability.SEED},
    exercised_by=(Exercised("seeded-tokens"),),
    catches=(
        "seed-ignored",
        "seed-shared-stream",
        "seed-unseeded-rows-mixed",
        "seed-zero-is-none",
        "seed-equal-seeds-share",
        "batch-sampling-of-first-row",
        "batch-law-of-drafting-row",
    ),
    source="vllm-project/vllm#6038: seeded requests gave different outputs, and batch-mates influenced them",
)
def repeats(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Sampled requests with seeds, 0 and a shared one among them: repeated alone; after other requests; together;
    where some have no draft; beside unseeded ones; beside ones that are sampled otherwise. In company only where as
    many tokens were drafted: a load may decide that.

    A greedy request is the negative control: its seed may change nothing.
    """
    # Seeded once for the whole check: calls still differ from each other, and the check repeats.
    with ambient.repeatable(subject, context, "seed"):
        yield from list(_judge(subject, context))


def _judge(subject: Any, context: CheckContext) -> Iterator[Finding]:
    requests = _with_special_seeds(evidence.standard_requests(subject, context, evidence.SAMPLED))
    alone = [_solo(subject, request) for request in requests]
    broken = [
        Broken("repeated, with other requests in between", first, second)
        for first, second in zip(alone, [_solo(subject, request) for request in reversed(requests)][::-1], strict=True)
        if first.token_ids != second.token_ids
    ]
    context.exercised("seeded-tokens", sum(len(trace.token_ids) for trace in alone))
    if not broken and Capability.BATCH in subject.capabilities:
        broken = _in_company(subject, requests, alone, context)
    if broken:
        yield _repeat_finding(broken, len(requests))
    yield from _greedy_moves(subject, context)
    context.worth(f"{len(requests)} requests, {context.counters['seeded-tokens']:,} tokens")


def _with_special_seeds(requests: Sequence[Request]) -> list[Request]:
    """One seed is 0, which is a seed like any other, and two requests share one."""
    changed = list(requests)
    if len(changed) > 2:
        changed[1] = replace(changed[1], seed=changed[0].seed)
        changed[2] = replace(changed[2], seed=0)
    return changed


def _solo(subject: Any, request: Request) -> Trace:
    return _together(subject, [request])[0]


def _together(subject: Any, requests: Sequence[Request]) -> tuple[Trace, ...]:
    return evidence.generate(evidence.quiet(subject), requests, speculate=True)


def _in_company(
    subject: Any, requests: Sequence[Request], alone: Sequence[Trace], context: CheckContext
) -> list[Broken]:
    if not company.is_exact_enough(subject):
        return []
    together = _together(subject, requests)
    mixed = [replace(r, seed=None) if index % 2 else r for index, r in enumerate(requests)]
    beside_unseeded = _together(subject, mixed)
    again = _together(subject, mixed)
    # Neighbours that are sampled otherwise, one of them in the first row.
    differing = [r if index % 2 else replace(r, sampling=_OTHERWISE) for index, r in enumerate(requests)]
    can_sample = Capability.SAMPLING in subject.capabilities
    beside_others = _together(subject, differing) if can_sample else alone
    kinds = (
        ("in one batch with the others", list(zip(alone, together, strict=True))),
        ("in one batch, where some rows have no draft", _without_drafts(subject, requests)),
        ("in one batch with unseeded requests", list(zip(alone, beside_unseeded, strict=True))[::2]),
        ("in one batch with requests that are sampled otherwise", list(zip(alone, beside_others, strict=True))[1::2]),
    )
    broken = [one for how, pairs in kinds for one in company.broken_among(subject, how, pairs)]
    frozen = [(one, two) for one, two in zip(beside_unseeded[1::2], again[1::2], strict=True)]
    # A text that repeats by chance is possible where the target is nearly certain; every one of them is not.
    if frozen and all(one.token_ids == two.token_ids for one, two in frozen):
        log_chance = sum(log_probability(subject, one) or 0.0 for one, _ in frozen)
        if log_chance < np.log(context.alpha):
            broken += [Broken(_FROZEN, one, two) for one, two in frozen]
    return broken


def _without_drafts(subject: Any, requests: Sequence[Request]) -> list[tuple[Trace, Trace]]:
    """Alone and together with the drafter that drafts nothing now and then; nothing where it cannot be put in."""
    if Capability.SCRIPTED_PROPOSER not in subject.capabilities:
        return []
    engine = evidence.with_drafter(subject, "sometimes-empty")
    together = _together(engine, requests)
    return list(zip([_solo(engine, request) for request in requests[::2]], together[::2], strict=True))


def _repeat_finding(broken: Sequence[Broken], num_tried: int) -> Finding:
    first = broken[0]
    where = (
        f"Prompt {list(first.expected.request.prompt_token_ids)}; {len(broken)} requests broken.",
        *sorted({f"- {item.how}" for item in broken}),
    )
    if first.how == _FROZEN:
        return Finding(
            headline="A request without a seed gave the same tokens twice, beside requests with seeds.",
            table=Table(rows=(("both times", *wording.token_text(first.got.token_ids[:10])),)),
            not_noise=f"All {len(broken)} unseeded requests of the batch repeated themselves; chance does not do that.",
            where=where,
            likely_cause="in a mixed batch the noise of unseeded rows is not filled in.",
        )
    part = common_length(first.expected.token_ids, first.got.token_ids)
    shown = slice(max(0, part - 2), part + 6)
    shared = first.how.startswith("repeated") and len(broken) >= num_tried // 2
    return Finding(
        headline=f"Seed {first.expected.request.seed} gave other tokens when {first.how}, from new token {part} on.",
        table=Table(
            rows=(
                ("new token", *(str(i) for i in range(len(first.expected.token_ids))[shown])),
                ("first time", *wording.token_text(first.expected.token_ids[shown])),
                ("then", *wording.token_text(first.got.token_ids[shown])),
            )
        ),
        not_noise="The request, its seed and the engine are the same"
        + ("; rounding at this dtype flips no token this often." if len(broken) > 1 else "."),
        where=where,
        likely_cause="the random numbers come from a stream that requests share, not from the request's seed."
        if shared
        else "",
        details={"broken": len(broken)},
    )


def _greedy_moves(subject: Any, context: CheckContext) -> Iterator[Finding]:
    request = evidence.standard_requests(subject, context, evidence.GREEDY)[0]
    one, two = (_solo(subject, replace(request, seed=seed)) for seed in (1, 2))
    divergence = first_divergence(evidence.Run("own", evidence.GREEDY, (one,), subject), one, two)
    if divergence is None:
        return
    scored = with_margins(divergence, subject, context)
    if scored.on_margin is None or scored.is_near_tie(2.0 * noise.log_prob_noise(subject, context)):
        return
    yield Finding(
        headline=f"A greedy request gave other tokens with another seed, from new token {divergence.token_index} on.",
        table=Table(
            rows=(
                ("seed 1", *wording.token_text(one.token_ids[divergence.token_index :][:8])),
                ("seed 2", *wording.token_text(two.token_ids[divergence.token_index :][:8])),
            )
        ),
        not_noise=f"Not a near tie: the two tokens' log-probabilities are {scored.on_margin:.3g} and "
        f"{scored.off_margin:.3g} below the best one.",
        likely_cause="a greedy request is sampled on the speculative path.",
    )
