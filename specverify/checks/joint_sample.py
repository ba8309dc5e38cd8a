"""One short output, drawn again and again, and the target's exact law of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.checks import evidence, noise, places, samples
from specverify.checks.registry import CheckContext, Inconclusive
from specverify.core.capabilities import Capability
from specverify.core.scenario import Purpose, Scenario
from specverify.core.types import SamplingParams, Trace
from specverify.laws.sequence import sequence_law
from specverify.laws.tree import Conditional
from specverify.stats.chi_square import ChiSquareDesign, counted

Tokens = tuple[int, ...]

# The first token comes from prefill; two more make a joint law of verified tokens, in one step or across two.
NUM_TOKENS = 3
# Few tokens a place keep the joint cells few, and most outcomes frequent.
_TOP_K = 3
_TOP_K_UNBATCHED = 2
# What the sample is planned to show: engines that decode one request at a time get a coarser plan.
BATCHED_TV = 0.15
UNBATCHED_TV = 0.25


@dataclass(frozen=True, eq=False)
class JointSample:
    """Outputs of one request, drawn again and again. law: the target's, by output; outcomes: its keys in order."""

    scenario: Scenario
    target: Conditional
    outcomes: tuple[Tokens, ...]
    law: NDArray[np.float64]
    outputs: tuple[Tokens, ...]
    counts: NDArray[np.float64]
    num_outside: int
    design: ChiSquareDesign
    activity: Counter[str]

    @property
    def expected(self) -> NDArray[np.float64]:
        return self.law * len(self.outputs)


def joint_sample(subject: Any, context: CheckContext) -> JointSample:
    """The outputs both checks (and lossless.on-equals-off) judge, drawn once."""
    return evidence.once(context, "samples/joint", lambda: _draw(subject, context))


def _draw(subject: Any, context: CheckContext) -> JointSample:
    is_batched = Capability.BATCH in subject.capabilities
    wanted = (BATCHED_TV if is_batched else UNBATCHED_TV) / math.sqrt(context.effort)
    rounding = noise.floor(noise.LAW_FLOOR, subject)
    if 4.0 * rounding > wanted:
        raise Inconclusive(
            f"the laws of a {noise.dtype_of(subject)} engine may be off by {rounding:g}, too much for a test that sees "
            f"{wanted:.2g}; lossless.sequence-stream allows for rounding{noise.assumed_text(subject)}"
        )
    sampling = SamplingParams(top_k=_TOP_K if is_batched else _TOP_K_UNBATCHED)
    prompt = _liveliest_prompt(subject, sampling, context)
    scenario = Scenario("joint", Purpose.STREAM, sampling, (prompt,), NUM_TOKENS)
    target: Conditional = subject.checkpoint.target_oracle.conditional(prompt, sampling)
    law = sequence_law(target, NUM_TOKENS)
    outcomes = tuple(law)
    probabilities = np.fromiter(law.values(), np.float64, len(law))
    design = ChiSquareDesign(probabilities, context.alpha, min(wanted, 0.9))
    outputs: list[Tokens] = []
    activity: Counter[str] = Counter()
    for traces in samples.rounds(subject, scenario, context, name="sequence-joint"):
        context.progress("short outputs", len(outputs), design.num_samples)
        room = design.num_samples - len(outputs)
        outputs += [tuple(trace.token_ids[:NUM_TOKENS]) for trace in traces[:room]]
        _count_activity(activity, traces)
        if len(outputs) >= design.num_samples:
            break
    counts, num_outside = counted(outcomes, outputs)
    return JointSample(scenario, target, outcomes, probabilities, tuple(outputs), counts, num_outside, design, activity)


def _liveliest_prompt(subject: Any, sampling: SamplingParams, context: CheckContext) -> Tokens:
    """The prompt after which the target is least certain: peaked laws hide errors.

    Prompts after which the filter's edge is a matter of rounding come last: there the joint law is not one law.
    """
    edge = 4.0 * samples.Scorer(subject).edge

    def merit(prompt: Tokens) -> tuple[bool, float]:
        oracle = subject.checkpoint.target_oracle
        law = sequence_law(oracle.conditional(prompt, sampling), NUM_TOKENS)
        entropy = -sum(p * math.log(p) for p in law.values() if p > 0.0)
        texts = [(*prompt, *prefix) for prefix in {output[:place] for output in law for place in range(NUM_TOKENS)}]
        gaps = []
        for logits in oracle.batch_logits(texts):
            ranked = np.sort(logits[-1])[::-1]
            gaps.append(float(ranked[sampling.top_k - 1] - ranked[sampling.top_k]))
        return min(gaps) > edge, entropy

    repetitive = [prompt for prompt in evidence.standard_prompts(subject, context) if len(set(prompt)) < len(prompt)]
    return max(repetitive or evidence.standard_prompts(subject, context), key=merit)


def _count_activity(activity: Counter[str], traces: Sequence[Trace]) -> None:
    for trace in traces:
        activity["drafted"] += places.num_drafted(trace)
        activity["accepted"] += places.num_accepted(trace)
        activity["told"] += places.tells_drafts(trace)
