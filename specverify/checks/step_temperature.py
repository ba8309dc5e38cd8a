"""Functions that divide their logits by a temperature of their own, asked at one that is not 1."""

from __future__ import annotations

from specverify.checks.step_enumerate import StepResult, enumerate_steps
from specverify.checks.step_scenarios import tempered_scenarios
from specverify.checks.step_subject import VerifySubject
from specverify.core.errors import SubjectCrashed
from specverify.exact.errors import NotEnumerable

_OTHER_TEMPERATURE = 0.7


def at_another_temperature(subject: VerifySubject) -> tuple[list[StepResult], str]:
    """Some cases at a temperature that is not 1, where the function has a parameter for it, and what to say of them.

    Some functions divide the draft logits too, some are handed draft logits that are done, and some leave all of it to
    their caller: the reading that is nearest to lossless counts.
    """
    readings = []
    for divides in ("both", "target", "none"):
        other = subject.at_temperature(_OTHER_TEMPERATURE, divides=divides)
        if other is None or subject.temperature != 1.0:
            continue
        try:
            readings.append((divides, enumerate_steps(other, tempered_scenarios(other))))
        except (NotEnumerable, SubjectCrashed):
            continue
    divides, results = min(readings, key=lambda one: max(step.distance.tv for step in one[1]), default=("", []))
    return results, "its temperature changes nothing: the caller has to apply it" if divides == "none" else ""
