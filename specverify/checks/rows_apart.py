"""Requests without a seed that share a batch: each draws for itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from scipy.stats import norm

from specverify.checks import accept_rules, ambient, evidence, places, power
from specverify.checks.evidence import SAMPLED
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.checks.rows_alike import Call, Residuals, Seen, accepts_finding, token_features, tokens_finding
from specverify.checks.seed_apart import log_probability
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind
from specverify.core.types import Request, Trace
from specverify.stats.combine import average_log_e
from specverify.stats.shuffle import GROUP_SIZE, detectable_shift

# A step or three, so that rows part; what rows share shows in each of them.
_NUM_TOKENS = 8
# Each row but the first is one bet: 63 show an excess of likeness of 1.3 standard deviations; shared noise makes 2.
_MOST_ROWS = 64
_NUM_BETS = _MOST_ROWS - 1
# Engines with tiny batches get fewer bets, and may stay undecided.
_MOST_GROUPS = 16
# Tokens, accept tests, and one text throughout.
_NUM_AVERAGED = 3
_RULES = (("token-wise", False), ("point-mass", True))
# What a rule calls impossible may be rounding.
_LEAST_CHANCE = 1e-6


@check(
    "random.rows-draw-apart",
    claim="Requests without a seed that share a batch draw independently of each other.",
    kind=Kind.STATISTICAL,
    needs={Capability.GENERATE, Capability.BATCH, Capability.SAMPLING},
    exercised_by=(Exercised("outputs"),),
    catches=("random-rows-share-noise", "random-rows-share-accept-uniform", "random-one-default-seed"),
    source="NVIDIA/TensorRT-LLM#19487: requests without a seed shared one random stream",
)
def rows_draw_apart(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Groups of four calls, each with the same many requests for one prompt, sampled, without seeds.

    If rows are independent, a row's output is as like those of its own call as those of another: dealing out what it
    got to the four calls in another order changes no law. A bet on that for each row needs to know no law. Alike are
    outputs with the same tokens in the same places. Where laws are recorded, accept tests are looked at too: whether
    those of two rows deviate from their chances in the same direction, in the same step.

    One text throughout is evidence where the target's law says how unlikely it is, and inconclusive otherwise. So are
    calls that repeat each other, and engines that draft nothing.
    """
    seen = _bet_on(_asked(subject, context))
    context.exercised("outputs", len(seen.traces))
    log_e = {
        "tokens": seen.tokens.log_e,
        "accepts": seen.accepts.log_e,
        "one text": _log_e_of_one_text(subject, seen.traces),
    }
    total, alarm = float(average_log_e(list(log_e.values()))), -math.log(context.alpha)
    context.figures.update(log_e=total, num_bets=seen.tokens.num_bets, num_accept_bets=seen.accepts.num_bets)
    if total >= alarm:
        not_noise = (
            f"Not luck: log e-value {total:.1f}; rows that draw for themselves reach {alarm:.1f} once in "
            f"10^{alarm / math.log(10):.0f} runs."
        )
        is_accepts = log_e["accepts"] == max(log_e.values())
        yield accepts_finding(seen, not_noise) if is_accepts else tokens_finding(seen, not_noise)
        return
    _say_worth(subject, seen, context)


def _asked(subject: Any, context: CheckContext) -> list[list[Call]]:
    """Groups of calls, as many as it takes for the bets that are wanted."""
    prompts = evidence.standard_prompts(subject, context)
    prompt = ([one for one in prompts if len(set(one)) < len(one)] or list(prompts))[-1]
    num_rows = max(2, min(_MOST_ROWS, int(getattr(subject, "batch_size", _MOST_ROWS))))
    num_tokens = min(_NUM_TOKENS, evidence.new_tokens(subject))
    requests = [Request(prompt, num_tokens, SAMPLED, request_id=f"row {row}") for row in range(num_rows)]
    num_groups = math.ceil(min(_NUM_BETS / (num_rows - 1), _MOST_GROUPS) * max(1.0, context.effort))
    # Of trees tokens alone are judged.
    engine = evidence.quiet(subject) if Capability.DRAFT_TREE in subject.capabilities else subject
    made: list[Call] = []
    # Seeded once: all calls go on from there, so that they differ from each other and the check repeats.
    with ambient.repeatable(subject, context, "rows-apart"):
        for index in range(GROUP_SIZE * num_groups):
            context.progress("calls", index, GROUP_SIZE * num_groups)
            made.append(evidence.generate(engine, requests, speculate=True))
    return [made[start : start + GROUP_SIZE] for start in range(0, len(made), GROUP_SIZE)]


def _bet_on(groups: Sequence[Sequence[Call]]) -> Seen:
    rule, residuals = _residuals(groups)
    seen = Seen(groups, rule, residuals)
    for group, deviations in zip(groups, residuals, strict=True):
        seen.tokens.update([[token_features(trace) for trace in call] for call in group])
        seen.accepts.update(deviations)
    return seen


def _residuals(groups: Sequence[Sequence[Call]]) -> tuple[str, list[list[list[Residuals]]]]:
    """Name of the accept rule that fits best, and under it the residuals of all rows.

    Under the rule in use residuals have mean 0 whatever is drafted: also a drafter that learns from call to call makes
    rows of one call no more alike. Which rule is likeliest is a matter of all calls together: no order changes that.
    """
    by_rule = {}
    for name, point_mass in _RULES:
        made = [[[_of_trace(trace, point_mass) for trace in call] for call in group] for group in groups]
        values = [value for group in made for call in group for row in call for value in row.values()]
        # What happened had the chance 1 - |residual|, whether the token was accepted or not.
        by_rule[name] = math.fsum(math.log(max(1.0 - abs(value), _LEAST_CHANCE)) for value in values), made
    best = max(by_rule, key=lambda name: by_rule[name][0])
    return best, by_rule[best][1]


def _of_trace(trace: Trace, point_mass: bool) -> Residuals:
    """Of a tree nothing: which candidates were tried depends on the rule."""
    found: Residuals = {}
    for step in trace.steps:
        if step.target_probs is None or step.parents is not None:
            continue
        chances = accept_rules.token_chances(step, point_mass=point_mass)
        for index in range(min(step.num_accepted + 1, step.num_draft_tokens)):
            found[step.index, index] = float(index < step.num_accepted) - float(chances[index])
    return found


def _log_e_of_one_text(subject: Any, traces: Sequence[Trace]) -> float:
    """1 / chance**(n - 1) where all n outputs are one text of that chance, else 0: an e-value, for its mean is 1."""
    if len({trace.token_ids for trace in traces}) > 1:
        return -math.inf
    likely = log_probability(subject, traces[0])
    return -math.inf if likely is None else -(len(traces) - 1) * likely


def _say_worth(subject: Any, seen: Seen, context: CheckContext) -> None:
    """What a pass is worth. Raises Inconclusive where it is worth nothing."""
    if len({trace.token_ids for trace in seen.traces}) == 1:
        raise Inconclusive(
            f"all {len(seen.traces)} outputs are one text: the law leaves no choice here, or nobody draws; bring a "
            "prompt that leaves more choice, or declare SCORE, so that its chance is known"
        )
    if not seen.tokens.num_bets:
        raise Inconclusive("every call gave the same texts to the same rows: calls repeat each other")
    if any(map(places.tells_drafts, seen.traces)) and not any(map(places.num_drafted, seen.traces)):
        raise Inconclusive(f"{len(seen.traces)} outputs show nothing wrong, but nothing was drafted")

    def shift(num_bets: int) -> float:
        return detectable_shift(context.alpha, num_bets, num_averaged=_NUM_AVERAGED)

    power.require(
        context, seen.tokens.num_bets, lambda num_bets: float(2.0 * norm.cdf(shift(num_bets) / 2.0) - 1.0),
        things="rows that were dealt out to the calls anew", subject=subject,
    )  # fmt: skip
    line = (
        f"{len(seen.traces)} outputs; would have caught rows of one call that are more alike than those of different "
        f"calls by {shift(seen.tokens.num_bets):.2g} standard deviations"
    )
    if seen.accepts.num_bets:
        line += f", and accept tests ({seen.rule} rule) by {shift(seen.accepts.num_bets):.2g}"
    else:
        line += "; accept tests not judged: that takes chains of draft tokens, and recorded laws"
    context.worth(line)
