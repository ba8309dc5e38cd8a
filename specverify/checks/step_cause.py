"""Which known mistake predicts the law that was found; nothing where none or more than one does."""

from __future__ import annotations

from collections.abc import Sequence

from specverify.checks.step_enumerate import StepResult


def likely_cause(wrong: Sequence[StepResult], every: Sequence[StepResult]) -> str:
    """One sentence naming the mistake and how well it fits, or an empty string."""
    return ""
