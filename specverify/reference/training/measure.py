"""How much of what is drafted the target accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specverify.core.types import Request, SamplingParams, Trace
from specverify.reference.subject import ReferenceSubject

# Some 300 draft tokens are judged: the rate is known within 0.06 or so, and a target of 135 million is done in minutes.
NUM_PROMPTS, PROMPT_LENGTH, NUM_TOKENS = 16, 48, 32


@dataclass(frozen=True)
class Acceptance:
    """Counts over the steps of some requests. judged: draft tokens (in a tree, depths) that the verifier came to."""

    num_steps: int
    num_accepted: int
    num_judged: int

    @property
    def rate(self) -> float:
        """Chance that a draft token is accepted once all before it were."""
        return self.num_accepted / max(1, self.num_judged)

    @property
    def per_step(self) -> float:
        """Draft tokens accepted in a step."""
        return self.num_accepted / max(1, self.num_steps)


def acceptance(traces: Sequence[Trace]) -> Acceptance:
    """Counted over all steps that were not cut short, those without drafts included."""
    steps = [step for trace in traces for step in trace.steps if not step.is_truncated]
    accepted = sum(step.num_accepted for step in steps)
    rejected = sum(step.is_rejection for step in steps)
    return Acceptance(len(steps), accepted, accepted + rejected)


def greedy_acceptance(
    subject: ReferenceSubject, prompts: Sequence[Sequence[int]], *, max_new_tokens: int = NUM_TOKENS
) -> Acceptance:
    """At temperature 0, until the end token or max_new_tokens."""
    eos = subject.target.config.eos_token_ids
    asked = [Request(tuple(prompt), max_new_tokens, SamplingParams(0.0), eos_token_ids=eos) for prompt in prompts]
    return acceptance(subject.generate(asked, speculate=True))


def windows(token_ids: Sequence[int], num: int = NUM_PROMPTS, length: int = PROMPT_LENGTH) -> list[tuple[int, ...]]:
    """Prompts cut from a text at equal distances."""
    last = len(token_ids) - length
    return [tuple(token_ids[start : start + length]) for start in range(0, last, max(1, last // num))][:num]
