"""Different seeds give different tokens, however close the seeds are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from specverify.checks import ambient, evidence, noise, wording
from specverify.checks.calls import generate_in_calls
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.types import Trace

# Seeds that follow each other differ in their last three bits only; the others of the first one in a single high bit.
_NUM_IN_A_ROW = 5
_HIGH_BITS = (16, 24, 30)
_NUM_SEEDS = _NUM_IN_A_ROW + len(_HIGH_BITS)


@check(
    "seed.tells-seeds-apart",
    claim="Different seeds give different tokens, also seeds that follow each other or differ in one high bit.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE, Capability.SEED},
    exercised_by=(Exercised("seeds"),),
    catches=("seed-low-bits-lost", "seed-high-bits-lost"),
    source="vllm-project/vllm-omni#5229: seeds next to each other gave the same output",
)
def tells_seeds_apart(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """One prompt, sampled at temperature 1 with eight seeds: five in a row, and three that differ from the first one in
    bit 16, 24 or 30 alone.

    Seeds may share a text by chance. That is a finding only where the target would repeat the text so often with a
    chance below what this run may spend on false alarms, and inconclusive otherwise.
    """
    first = context.streams.integer("seed", "apart") % 2**31 & ~0b111
    seeds = [*range(first, first + _NUM_IN_A_ROW), *(first ^ 1 << bit for bit in _HIGH_BITS)]
    # A long prompt: the first words may have few likely successors.
    request = evidence.standard_requests(subject, context, evidence.SAMPLED)[-1]
    with ambient.repeatable(subject, context, "seed", "apart"):
        requests = [replace(request, seed=seed, request_id=f"seed {seed}") for seed in seeds]
        traces = generate_in_calls(evidence.quiet(subject), requests, speculate=True)
    context.exercised("seeds", len(seeds))
    texts = {trace.token_ids: trace for trace in traces}
    for text, trace in texts.items():
        same = [one for one in traces if one.token_ids == text]
        if len(same) == 1:
            continue
        likely = log_probability(subject, trace)
        if likely is None:
            raise Inconclusive(
                f"{len(same)} seeds share a text of {len(text)} tokens, and nobody knows how likely that is: load a "
                "probe checkpoint, or declare SCORE"
            )
        log_chance = _log_chance(len(same), likely)
        if log_chance > math.log(context.alpha):
            raise Inconclusive(
                f"{len(same)} seeds share a text of {len(text)} tokens, which is likely enough for that; "
                "let it generate more tokens, or bring a prompt that leaves more choice"
            )
        yield _finding(trace, [int(one.request.seed or 0) for one in same], first, log_chance)
        return
    context.worth(f"{len(seeds)} seeds, as many texts of {len(traces[0].token_ids)} tokens")


def _log_chance(num_equal: int, log_probability: float) -> float:
    """Bound on the chance that some num_equal of the seeds share any text as unlikely as this one."""
    return math.log(math.comb(_NUM_SEEDS, num_equal)) + (num_equal - 1) * log_probability


def log_probability(subject: Any, trace: Trace) -> float | None:
    """Log-probability of a text under the target; None where nobody knows it: then any text may be near certain."""
    total = 0.0
    for index, token in enumerate(trace.token_ids):
        law = noise.next_log_probs(subject, trace.request.prompt_token_ids, trace.token_ids[:index])
        if law is None:
            return None
        total += float(law[token])
    return total


def _finding(trace: Trace, seeds: Sequence[int], first: int, log_chance: float) -> Finding:
    return Finding(
        headline=f"{len(seeds)} different seeds gave {len(seeds)} times the same {len(trace.token_ids)} tokens.",
        table=Table(rows=(("seeds", *map(str, seeds)), ("tokens", *wording.token_text(trace.token_ids[:8])))),
        not_noise=f"The target would repeat this text so often with a chance of 10^{log_chance / math.log(10):.0f}.",
        where=(
            f"Prompt {wording.prompt_text(trace.request.prompt_token_ids)}; "
            f"{len(seeds)} of {_NUM_SEEDS} seeds: {first} to {first + _NUM_IN_A_ROW - 1}, and the first one with "
            f"bit {', '.join(map(str, _HIGH_BITS))} changed.",
        ),
        likely_cause=_cause(seeds, first),
        details={"equal": len(seeds)},
    )


def _cause(seeds: Sequence[int], first: int) -> str:
    near = [seed for seed in seeds if seed - first in range(_NUM_IN_A_ROW)]
    if len(seeds) == _NUM_SEEDS:
        return "the seed is ignored, or the request is decoded greedily although it asks for temperature 1."
    if len(near) == len(seeds):
        return "the low bits of the seed are lost."
    return "the high bits of the seed are lost." if near == [first] else ""
