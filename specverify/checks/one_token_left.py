"""Sampling settings that leave one token only: the law of greedy decoding, reached through the sampler."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from specverify.checks import ambient, evidence, noise
from specverify.checks.calls import generate_in_calls
from specverify.checks.divergence import Divergence, bugs_among, finding_of, first_divergence, with_margins
from specverify.checks.evidence import Run
from specverify.checks.registry import CheckContext, Exercised, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind
from specverify.core.types import Request, SamplingParams, Trace

_NUM_PROMPTS, _NUM_TOKENS = 3, 8
_COLD = 0.01
# A token whose logit lies this far below the best one is drawn at temperature _COLD once in 10^12 draws.
_COLD_MARGIN = _COLD * 12.0 * math.log(10.0)
_ONE = SamplingParams(top_k=1)
_SETTINGS = {
    "top-k 1": _ONE,
    "top-k 1, hot": replace(_ONE, temperature=3.0),
    "top-p 0.000001": SamplingParams(top_p=1e-6),
    f"temperature {_COLD:g}": SamplingParams(temperature=_COLD),
    # Below 0, and below 1, penalties are rewards; none of the usual requests has that.
    "rewards, top-k 1": replace(_ONE, presence_penalty=-0.6, frequency_penalty=-0.4),
    "repetition penalty 0.7, top-k 1": replace(_ONE, repetition_penalty=0.7),
}


@check(
    "lossless.one-token-left",
    claim="Where a sampling setting leaves one token, speculation emits that token.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE, Capability.SAMPLING},
    exercised_by=(Exercised("tokens"),),
    catches=("sampling-top-k-1-lost", "sampling-cold-lost", "sampling-rewards-lost"),
    source="NVIDIA-NeMo/Automodel#3627: plain decoding took a tiny temperature for greedy, the verifier divided by it; "
    "vllm-project/vllm#913: negative penalties were skipped",
)
def one_token_left(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Top-k 1, a tiny top-p, a temperature near 0, and penalties that reward repetition: with speculation on and off.

    Nothing is left to chance, so the tokens must be equal, near ties apart (see greedy.on-equals-off); at the low
    temperature, a token within a third of the best in logit counts as one. Settings with penalties only where a probe's
    oracle knows how near two tokens are after them. A setting that plain decoding refuses, or under which it does not
    repeat itself, is left out: there the engine means something else by it.
    """
    tolerance = 2.0 * noise.log_prob_noise(subject, context)
    found: list[Divergence] = []
    left_out: dict[str, str] = {}
    settings = {name: one for name, one in _SETTINGS.items() if _can_ask(subject, one)}
    for index, (name, sampling) in enumerate(settings.items()):
        context.progress(name, index, len(settings))
        try:
            off, again = (_generated(subject, context, name, sampling, turn) for turn in (1, 2))
        except Exception:
            left_out[name] = "raises"
            continue
        if _parted(subject, off, again, context, sampling, tolerance):
            left_out[name] = "does not repeat"
            continue
        on = _generated(subject, context, name, sampling, 0)
        found += _parted(subject, on, off, context, sampling, tolerance)
        context.exercised("tokens", sum(len(trace.token_ids) for trace in on))
    bugs = bugs_among(found, tolerance, context)
    if bugs:
        yield finding_of(bugs, tolerance, context)
    judged = ", ".join(name for name in settings if name not in left_out)
    line = f"{context.counters['tokens']:,} tokens equal; {judged}"
    for why in dict.fromkeys(left_out.values()):
        line += f"; plain decoding {why} under {', '.join(name for name, reason in left_out.items() if reason == why)}"
    context.worth(line)


def _can_ask(subject: Any, sampling: SamplingParams) -> bool:
    wanted = {Capability.PENALTIES, Capability.LOAD_CHECKPOINT} if sampling.has_penalties else set()
    return wanted <= set(subject.capabilities)


def _generated(
    subject: Any, context: CheckContext, name: str, sampling: SamplingParams, turn: int
) -> tuple[Trace, ...]:
    """Outputs with speculation (turn 0), then without, twice.

    Without seeds, and from other random numbers in each turn: what is left to chance in spite of the setting shows.
    """
    num_tokens = min(_NUM_TOKENS, evidence.new_tokens(subject))
    most = 1 if getattr(subject, "is_slow", False) else _NUM_PROMPTS
    prompts = evidence.standard_prompts(subject, context)[-most:]
    requests = [
        Request(prompt, num_tokens, sampling, request_id=f"{name}/{number}") for number, prompt in enumerate(prompts)
    ]
    with ambient.repeatable(subject, context, "one-token-left", name, turn):
        return generate_in_calls(evidence.quiet(subject), requests, speculate=turn == 0)


def _parted(
    subject: Any,
    on: tuple[Trace, ...],
    off: tuple[Trace, ...],
    context: CheckContext,
    sampling: SamplingParams,
    tolerance: float,
) -> list[Divergence]:
    """Where the outputs part, and no near tie explains it."""
    run = Run("own", sampling, on, subject)
    margin = _COLD_MARGIN if sampling.temperature == _COLD else tolerance
    parted = (first_divergence(run, one, other) for one, other in zip(on, off, strict=True))
    scored = [with_margins(one, subject, context) for one in parted if one is not None]
    return [one for one in scored if not one.is_near_tie(margin)]
