"""How exact a function's law can be: the type it computes in is measured, not assumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specverify.checks.step_enumerate import StepResult, enumerate_steps
from specverify.checks.step_scenarios import adapted, dyadic_scenario
from specverify.checks.step_subject import Scenario, VerifySubject
from specverify.checks.step_tables import DYADIC
from specverify.core.errors import SubjectCrashed
from specverify.exact.errors import NotEnumerable

# Largest total variation of a correct function: its own rounding, with a wide margin. Measured on correct functions:
# 1e-15 in float64, 6e-7 in float32; half-precision target laws, which are a bug in a float32 function, start at 6e-5.
TOLERANCES: Mapping[str, float] = {"float64": 1e-9, "float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}
# Two laws from the same float64 arithmetic, summed in another order.
_SAME = 1e-13
# A token this likely must not lose this part of its probability: rounding to float32 moves it by less than 1e-5 of it.
_LEAST_SHARE, _MOST_LOST = 1e-6, 1e-2
# Impossible tokens are proof; this is only the dust of summing probabilities.
_IMPOSSIBLE = 1e-15


@dataclass(frozen=True)
class Precision:
    """tolerance: the total variation that rounding explains. reason: how it was found."""

    tolerance: float
    reason: str


def is_wrong(result: StepResult, precision: Precision) -> bool:
    """Rounding explains a small distance, but never a token that the target forbids."""
    return result.distance.tv > precision.tolerance or result.distance.impossible_mass > _IMPOSSIBLE


def measured_precision(
    subject: VerifySubject, results: Sequence[StepResult], *, halves_are_fine: bool = False
) -> Precision:
    """The tolerance for a function: by the type of its inputs, or by the narrower type it turns out to compute in.

    Only float64 inputs leave a question open, and only where a law is off by more than float64 and less than float32
    explains. Then the laws are sent through float32 first: a function that computes in float32 anyway gives exactly
    the same law. Failing that, it is asked a case whose whole arithmetic is exact in half precision.
    halves_are_fine: how the results were enumerated.
    """
    declared = subject.dtype
    tolerance = TOLERANCES[declared]
    suspects = [result for result in results if tolerance < result.distance.tv <= TOLERANCES["float32"]]
    if declared != "float64" or not suspects:
        return Precision(tolerance, f"{declared} laws")
    # Where all arithmetic is exact in half precision anyway, a narrower type gives the same law for whatever reason.
    telling = [result for result in results if result.scenario.name != DYADIC] or suspects
    worst = max(telling, key=lambda result: result.distance.tv)
    if any(_starves_a_token(result) for result in suspects):
        return Precision(tolerance, f"{declared} laws")

    def asked(subject: VerifySubject, scenario: Scenario) -> StepResult | None:
        try:
            return enumerate_steps(subject, [scenario], cross_check_calls=0, halves_are_fine=halves_are_fine)[0]
        except (NotEnumerable, SubjectCrashed):
            # A crash here proves nothing: float64 code may well refuse laws that sum to 1 in float32 only.
            return None

    rounded = asked(subject.rounded_to("float32"), worst.scenario)
    if rounded is not None and _same_law(worst, rounded):
        return Precision(TOLERANCES["float32"], "it computes in float32")
    exact = asked(subject, adapted(dyadic_scenario(), subject))
    if exact is not None and exact.distance.tv <= TOLERANCES["float64"]:
        return Precision(TOLERANCES["float32"], "it rounds to float32 on the way")
    return Precision(tolerance, f"{declared} laws")


def _starves_a_token(result: StepResult) -> bool:
    """Whether a first token comes far less often than the target wants, by more than any rounding explains."""
    target = result.scenario.target(())
    emitted = [0.0] * len(target)
    for (_, tokens, _), probability in result.joint.items():
        if tokens and 0 <= tokens[0] < len(target):
            emitted[tokens[0]] += probability
    return any(
        wanted > _LEAST_SHARE and came < (1.0 - _MOST_LOST) * wanted
        for wanted, came in zip(target, emitted, strict=True)
    )


def _same_law(one: StepResult, other: StepResult) -> bool:
    keys = one.joint.keys() | other.joint.keys()
    return all(abs(one.joint.get(key, 0.0) - other.joint.get(key, 0.0)) <= _SAME for key in keys)
