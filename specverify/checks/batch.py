"""A request decodes to the same tokens alone, in company, and in any order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specverify.checks import ambient, evidence, noise, places, wording
from specverify.checks.divergence import first_divergence, with_margins
from specverify.checks.evidence import Run
from specverify.checks.registry import CheckContext, Exercised, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.types import Request, Trace
from specverify.trace.pipeline import common_length


@dataclass(frozen=True, eq=False)
class _Difference:
    """Where one request, alone and in company, first differs. what: which record of the step."""

    what: str
    alone: Trace
    together: Trace
    step_index: int
    alone_value: tuple[int, ...]
    together_value: tuple[int, ...]
    amount: float = 0.0
    others: tuple[tuple[int, ...], ...] = ()


@check(
    "batch.rows-independent",
    claim="What a request gets does not depend on which other requests share its batch, or in which order.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE, Capability.BATCH},
    exercised_by=(Exercised("batched-tokens"), Exercised("ragged-steps")),
    catches=(
        "batch-neighbour-kv-row",
        "batch-neighbour-probability-row",
        "batch-ragged-mask",
        "batch-draft-neighbour",
        "batch-greedy-row-sampled",
        "tree-path-of-neighbour",
        "head-states-shifted",
    ),
    source="vllm-project/vllm#14645: probability rows were assigned in the order of a dictionary; and #10863",
)
def rows_independent(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Greedy, prompts of different lengths: each alone, all together, all together in reverse order, and every other
    one beside sampled requests.

    The tokens must agree, near ties apart (see greedy.on-equals-off). Where steps are recorded, so must the drafts of
    every step before the first difference: a draft model that looks at its neighbour's rows changes no token, only
    what is accepted. Where laws are recorded, the first step whose target law differs is named.
    """
    with ambient.repeatable(subject, context, "batch"):
        yield from list(_judge(subject, context))


def _judge(subject: Any, context: CheckContext) -> Iterator[Finding]:
    requests = list(evidence.standard_requests(subject, context, evidence.GREEDY))
    alone = [evidence.generate(subject, [request], speculate=True)[0] for request in requests]
    again = [evidence.generate(subject, [request], speculate=True)[0] for request in requests]
    # Drafts are compared where the engine records their laws and drafts the same when it is asked the same.
    compare_drafts = Capability.DRAFT_PROBS in subject.capabilities and all(
        [step.draft_token_ids for step in one.steps] == [step.draft_token_ids for step in two.steps]
        for one, two in zip(alone, again, strict=True)
    )
    tolerance = 2.0 * noise.log_prob_noise(subject, context)
    found: list[_Difference] = []
    ties = 0
    for batch in _batches(requests):
        together = evidence.generate(subject, batch, speculate=True)
        _count(context, together)
        for request, trace in zip(batch, together, strict=True):
            if not request.sampling.is_greedy:
                continue
            index = requests.index(request)
            if alone[index].token_ids != again[index].token_ids:
                context.exercised("unrepeatable-outputs")
                continue
            difference = _first_difference(alone[index], trace, subject, compare_drafts=compare_drafts)
            if difference is None:
                continue
            if _is_near_tie(difference, subject, context, tolerance):
                ties += 1
                continue
            others = tuple(other.token_ids for other in together if other is not trace)
            found.append(replace(difference, others=others))
    if found:
        worst = min(found, key=lambda item: (item.what != "tokens", item.step_index))
        yield _finding(worst, found, len(requests), noise.row_allowance(subject))
    line = f"{len(requests)} requests, {context.counters['batched-tokens']:,} tokens; two orders, sampled company"
    if ties:
        line += f"; {ties} near ties within {tolerance:.1g} explained"
    context.worth(line)


def _batches(requests: Sequence[Request]) -> tuple[list[Request], ...]:
    """All together, in reverse order, and with every other request sampled (those are company, not judged)."""
    mixed = [
        replace(request, sampling=evidence.SAMPLED) if index % 2 else request for index, request in enumerate(requests)
    ]
    return list(requests), list(reversed(requests)), mixed


def _count(context: CheckContext, together: Sequence[Trace]) -> None:
    context.exercised("batched-tokens", sum(len(trace.token_ids) for trace in together))
    if not any(trace.steps for trace in together):
        context.exercised("ragged-steps")  # cannot be seen from outside; prompts of different length make it so
        return
    for steps in zip(*(trace.steps for trace in together), strict=False):
        if len({step.num_accepted for step in steps}) > 1:
            context.exercised("ragged-steps")


def _first_difference(alone: Trace, together: Trace, subject: Any, *, compare_drafts: bool) -> _Difference | None:
    """Laws first, then drafts, then tokens: the earliest record that differs, in the order of computation.

    The number of draft tokens may depend on the load, so only what both steps drafted is compared.
    """
    allowed = noise.row_allowance(subject)
    for one, other in zip(alone.steps, together.steps, strict=False):
        if one.start_position != other.start_position:
            break
        if compare_drafts and (gap := _law_gap(one.draft_probs, other.draft_probs)) > allowed:
            return _Difference("draft law", alone, together, one.index, (), (), gap)
        shared = min(one.num_draft_tokens, other.num_draft_tokens)
        if one.draft_token_ids[:shared] != other.draft_token_ids[:shared]:
            if compare_drafts:
                return _Difference("draft", alone, together, one.index, one.draft_token_ids, other.draft_token_ids)
            break
        if (gap := _law_gap(one.target_probs, other.target_probs)) > allowed:
            return _Difference("target law", alone, together, one.index, (), (), gap)
        if one.token_ids != other.token_ids:
            break
    divergence = first_divergence(Run("own", evidence.GREEDY, (together,), subject), together, alone)
    if divergence is None:
        return None
    step = divergence.step
    shown = slice(divergence.token_index, divergence.token_index + 8)
    return _Difference(
        "tokens", alone, together, step.index if step else -1, alone.token_ids[shown], together.token_ids[shown]
    )


def _law_gap(one: Any, other: Any) -> float:
    """Largest total variation between corresponding rows; 0 where either is missing or one-hot on both sides."""
    if one is None or other is None:
        return 0.0
    shared = min(len(one), len(other))
    first, second = np.asarray(one, dtype=np.float64)[:shared], np.asarray(other, dtype=np.float64)[:shared]
    if first.shape != second.shape or not first.size:
        return 0.0
    # Greedy laws may be recorded as one-hot rows, which a near tie flips: those are judged as tokens.
    if first.max(axis=-1).min() > 1.0 - 1e-9 and second.max(axis=-1).min() > 1.0 - 1e-9:
        return 0.0
    return float(0.5 * np.abs(first - second).sum(axis=-1).max())


def _is_near_tie(difference: _Difference, subject: Any, context: CheckContext, tolerance: float) -> bool:
    if difference.what == "draft":
        return _is_draft_near_tie(difference, subject, tolerance)
    if difference.what != "tokens":
        return False
    divergence = first_divergence(
        Run("own", evidence.GREEDY, (difference.together,), subject), difference.together, difference.alone
    )
    if divergence is None:
        return True
    scored = with_margins(divergence, subject, context)
    if scored.on_margin is None:
        # Nobody knows the scores. Rounding that depends on the batch shape is common below float64.
        return noise.dtype_of(subject) != "float64"
    return scored.is_near_tie(tolerance)


def _is_draft_near_tie(difference: _Difference, subject: Any, tolerance: float) -> bool:
    """Whether the draft model's two best tokens are close where the drafts part, by the probe's draft oracle.

    Only a drafter that is the probe's own draft model can be scored. The drafts of any other one are not held
    against it unless the engine computes in float64: they may lie on a tie that nobody can see.
    """
    checkpoint = getattr(subject, "checkpoint", None)
    if checkpoint is None or getattr(subject, "proposer", "") != "draft-model":
        return noise.dtype_of(subject) not in ("float64", "float32")
    step = difference.alone.steps[difference.step_index]
    first = common_length(difference.alone_value, difference.together_value)
    if first >= min(len(difference.alone_value), len(difference.together_value)):
        return False
    text = places.committed_token_ids(difference.alone)[: step.start_position] + difference.alone_value[:first]
    log_probs = noise.log_softmax(checkpoint.draft_oracle.logits(np.asarray(text))[-1])
    tokens = (difference.alone_value[first], difference.together_value[first])
    return noise.are_near_best(log_probs, tokens, tolerance)


def _finding(worst: _Difference, found: Sequence[_Difference], num_requests: int, allowed: float) -> Finding:
    steps = worst.together.steps
    kinds = Counter(difference.what for difference in found)
    rows: list[Sequence[str]] = []
    if worst.alone_value or worst.together_value:
        rows = [
            ("alone", *wording.token_text(worst.alone_value)),
            (f"in a batch of {num_requests}", *wording.token_text(worst.together_value)),
        ]
    else:
        rows = [("total variation", f"{worst.amount:.3g}", "should be 0")]
    prompt = list(worst.alone.request.prompt_token_ids)
    verb = "differ" if worst.what == "tokens" else "differs"
    return Finding(
        headline=f"The {worst.what} of request {worst.alone.request.request_id} "
        f"{verb} in a batch of {num_requests}, from step {worst.step_index} on.",
        table=Table(rows=rows),
        not_noise=f"Not rounding, which explains a total variation of {allowed:.0e}."
        if worst.amount
        else "Not a near tie: the two tokens' scores are further apart than rounding explains.",
        where=(
            f"Prompt {prompt}.",
            *(f"Step {step.index} starts with {step.start_position} committed tokens."
              for step in steps[worst.step_index : worst.step_index + 1] if worst.step_index >= 0),
            f"{len(found)} outputs differ: {', '.join(f'{kinds[kind]} first in {kind}' for kind in sorted(kinds))}.",
        ),
        likely_cause=_cause(found),
        details={"different": len(found), "what": worst.what},
    )  # fmt: skip


# Of so many likely tokens a neighbour holds some by chance: few laws spread over more.
_TOKENS_BY_CHANCE = 32
_IS_NO_CHANCE = 1e-3


def _cause(found: Sequence[_Difference]) -> str:
    kinds = {difference.what for difference in found}
    is_text_right = all(difference.alone.token_ids == difference.together.token_ids for difference in found)
    if is_text_right and all(kind.startswith("draft") for kind in kinds):
        return "rows mix on the draft side only: the text is right, fewer drafts are accepted in company."
    copied = [
        difference
        for difference in found
        if difference.what == "tokens"
        and difference.together_value[:1]
        and any(difference.together_value[0] in other for other in difference.others)
    ]
    # Long neighbours hold many tokens of a small vocabulary anyway: what they would by chance is no copy.
    by_chance = math.prod(
        min(1.0, len({token for other in difference.others for token in other}) / _TOKENS_BY_CHANCE)
        for difference in copied
    )
    if kinds == {"tokens"} and len(copied) == len(found) and len(found) > 2 and by_chance < _IS_NO_CHANCE:
        return "a row of the batch gets what was computed for another row: each wrong token occurs in a neighbour."
    return ""
