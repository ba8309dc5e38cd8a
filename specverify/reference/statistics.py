"""What speculation bought: drafted, accepted, tokens per pass of the target. Per step and over a whole run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from specverify.core.types import Step, Trace


@dataclass(frozen=True)
class Statistics:
    """Counts over steps. Each step is one pass of the target; prefill passes and their tokens are not counted."""

    num_steps: int
    num_proposed: int
    num_accepted: int
    num_tokens: int

    @property
    def acceptance_rate(self) -> float:
        """Accepted per proposed draft token, 0 where none was proposed."""
        return self.num_accepted / self.num_proposed if self.num_proposed else 0.0

    @property
    def tokens_per_target_pass(self) -> float:
        """Tokens committed per step: 1 is what plain decoding gets; 0 where there was no step."""
        return self.num_tokens / self.num_steps if self.num_steps else 0.0


def step_statistics(step: Step) -> Statistics:
    """The same figures for one step."""
    return Statistics(1, step.num_draft_tokens, step.num_accepted, len(step.token_ids))


def run_statistics(traces: Iterable[Trace]) -> Statistics:
    """The figures of all steps of these traces together."""
    steps = [step_statistics(step) for trace in traces for step in trace.steps]
    return Statistics(
        num_steps=len(steps),
        num_proposed=sum(step.num_proposed for step in steps),
        num_accepted=sum(step.num_accepted for step in steps),
        num_tokens=sum(step.num_tokens for step in steps),
    )
