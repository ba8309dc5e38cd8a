"""Calls after each other, whose prompts share a part: nothing of one call may reach the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from specverify.checks import evidence, noise, wording
from specverify.checks.evidence import GREEDY
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.checks.samples import Scorer
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.types import Request, Trace

_SHARED_LENGTH, _OWN_LENGTH, _NUM_TOKENS = 16, 3, 12


@check(
    "kv.calls-independent",
    claim="What a call gives does not depend on the calls before it.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE, Capability.LOAD_CHECKPOINT},
    exercised_by=(Exercised("tokens"),),
    catches=("prefix-cache-by-length",),
    source="lmstudio-ai/mlx-engine#91: tokens of an earlier call were believed to be in the cache",
)
def calls_independent(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Greedy calls in turn, with speculation and without; their prompts share the beginning, the end, or the length.

    A cache that outlives a call misleads both ways of decoding, so every token is held against the probe's oracle: it
    must be the best one, or a near tie. An engine that is wrong on the standard prompts already, or in the first call,
    is wrong for other reasons, which other checks see; then this one is inconclusive.
    """
    tolerance = 2.0 * noise.log_prob_noise(subject, context)
    requests = _requests(subject, context)
    scorer = Scorer(subject)
    if len({request.prompt_token_ids for request in requests}) < len(requests) - 1 or not scorer.has_oracle:
        raise Inconclusive("the prompts are too much alike to tell one call from another")
    require_right_so_far(subject, context, scorer, tolerance)
    for speculate in (True, False):
        for number, request in enumerate(requests):
            (trace,) = evidence.generate(subject, [request], speculate=speculate)
            context.exercised("tokens", len(trace.token_ids))
            wrong = first_wrong(scorer, trace, tolerance)
            if wrong is None:
                continue
            if number == 0:
                raise Inconclusive("the first of the calls already departs from the checkpoint that was loaded")
            yield _finding(trace, wrong, number, tolerance, speculate=speculate)
            return
    context.worth(f"{len(requests)} calls in turn, twice; {context.counters['tokens']:,} tokens as the oracle has them")


def _requests(subject: Any, context: CheckContext) -> list[Request]:
    """Four calls, the last like the first. Prompts 1 and 2 share their beginning, 2 and 3 their end."""
    prompts = evidence.standard_prompts(subject, context)
    words = [token for prompt in prompts for token in prompt[1:]] or [prompts[0][0]]

    def part(length: int, shift: int) -> tuple[int, ...]:
        return tuple(words[(shift + index) % len(words)] for index in range(length))

    begin, other = ((prompts[0][0], *part(_SHARED_LENGTH, shift)) for shift in (0, 7))
    one, two = part(_OWN_LENGTH, 1), part(_OWN_LENGTH, 5)
    in_turn = (begin + one, begin + two, other + two, begin + one)
    num_tokens = min(_NUM_TOKENS, evidence.new_tokens(subject))
    return [Request(prompt, num_tokens, GREEDY, request_id=f"call {i + 1}") for i, prompt in enumerate(in_turn)]


def require_right_so_far(subject: Any, context: CheckContext, scorer: Scorer, tolerance: float) -> None:
    """Raises Inconclusive where the standard greedy runs depart from the checkpoint: other checks say why."""

    def is_right() -> bool:
        usual = (evidence.plain_run(subject, context), evidence.own_run(subject, context, GREEDY))
        return not any(first_wrong(scorer, trace, tolerance) for run in usual for trace in run.traces)

    if not evidence.once(context, "kv/right-so-far", is_right):
        raise Inconclusive("the engine departs from the checkpoint that was loaded on the standard prompts already")


def first_wrong(scorer: Scorer, trace: Trace, tolerance: float) -> tuple[int, list[int], float] | None:
    """Index of the first token that is not nearly the best, the best tokens, and by how much it falls short."""
    if not trace.token_ids:
        return None
    vocab_size = int(scorer.checkpoint.vocab_size)
    inside = next((i for i, token in enumerate(trace.token_ids) if not 0 <= token < vocab_size), len(trace.token_ids))
    if inside == 0:
        return 0, [], np.inf
    (logits,) = scorer.logits([_cut(trace, inside)])
    best = logits.max(axis=-1)
    margins = best - logits[np.arange(inside), list(trace.token_ids[:inside])]
    wrong = np.flatnonzero(margins > tolerance)
    tokens = [int(token) for token in logits.argmax(axis=-1)]
    if len(wrong):
        return int(wrong[0]), tokens, float(margins[wrong[0]])
    return (inside, tokens, np.inf) if inside < len(trace.token_ids) else None


def _cut(trace: Trace, length: int) -> Trace:
    return Trace(trace.request, trace.token_ids[:length], speculated=trace.speculated)


def _finding(
    trace: Trace, wrong: tuple[int, list[int], float], number: int, tolerance: float, *, speculate: bool
) -> Finding:
    index, best, margin = wrong
    shown = slice(max(0, index - 3), index + 5)
    how_far = f"it is {margin:.3g} below the best one in log-probability" if np.isfinite(margin) else "no such token"
    return Finding(
        headline=f"In call {number + 1}, new token {index} is {trace.token_ids[index]}, which is not the model's best.",
        table=Table(
            rows=(
                ("new token", *(str(i) for i in range(len(trace.token_ids))[shown])),
                ("best after this text", *wording.token_text(best[shown])),
                ("the engine's", *wording.token_text(trace.token_ids[shown])),
            )
        ),
        not_noise=f"Not a near tie: {how_far}; rounding explains {tolerance:.1g}.",
        where=(
            f"Prompt {wording.prompt_text(trace.request.prompt_token_ids)}, "
            f"with speculation {'on' if speculate else 'off'}. The calls before it were right.",
        ),
        likely_cause="something that an earlier call left (cache rows) is taken for this text's own.",
        details={"call": number + 1, "token_index": index, "margin": margin},
    )
