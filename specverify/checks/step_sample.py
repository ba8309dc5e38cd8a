"""The fallback mode: ordinary calls, judged by an e-process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specverify.checks.step_enumerate import StepResult
from specverify.checks.step_scenarios import Scenario
from specverify.checks.step_subject import VerifySubject


@dataclass(frozen=True)
class SampledStep:
    result: StepResult
    log_e: float
    log_limit: float
    detectable_tv: float


def sample_step(
    subject: VerifySubject, scenario: Scenario, generator: np.random.Generator, *, alpha: float, effort: float
) -> SampledStep:
    raise NotImplementedError
