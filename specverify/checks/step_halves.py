"""What a function's law loses because its random numbers have half precision: the same function with finer ones."""

from __future__ import annotations

from collections.abc import Sequence

from specverify.checks.step_enumerate import StepResult, enumerate_steps
from specverify.checks.step_explain import likely_cause
from specverify.checks.step_precision import TOLERANCES, Precision, is_wrong
from specverify.checks.step_subject import VerifySubject
from specverify.checks.wording import plural
from specverify.core.errors import SubjectCrashed
from specverify.exact.errors import NotEnumerable
from specverify.exact.run import READ_TWICE

# Total variation that rounded random numbers may add to what rounded laws explain. Those of float32 add 2^-24 a draw.
TOLERANCE = TOLERANCES["float32"]
# Less is the order of summing.
_DUST = 1e-16
# Cases that are looked at first; as many as a named mistake is compared with.
_FIRST = 8
_BITS = {"bfloat16": 8, "float16": 11}


def with_finer_draws(subject: VerifySubject, results: Sequence[StepResult]) -> list[StepResult]:
    """The same cases as if random numbers were not rounded to half precision: the first ones, and the longer ones too
    unless the difference shows. None where no random number is rounded, or where that cannot be told.
    """
    finer: list[StepResult] = []
    try:
        for part in (results[:_FIRST], results[_FIRST:]) if any(result.halves for result in results) else ():
            if any(map(is_lost, results, finer)):
                break
            scenarios = [result.scenario for result in part]
            finer += enumerate_steps(subject, scenarios, cross_check_calls=0, halves_are_fine=True)
    except (NotEnumerable, SubjectCrashed):
        return []
    return finer


def is_lost(result: StepResult, finer: StepResult | None) -> bool:
    """Whether the rounding of random numbers takes the law further from the target than it may."""
    return finer is not None and result.distance.tv > finer.distance.tv + TOLERANCE


def reasons(
    first: StepResult, finer: StepResult | None, named: Sequence[StepResult], precision: Precision
) -> tuple[str, str]:
    """Why a wrong exact law is no noise, and its likely cause.

    first: the case that the report shows. finer: the same one without the rounding of random numbers, where there is
    any. named: cases to look for a named mistake in, which predicts laws to the last digit: the finer ones, if any.
    """
    cause = likely_cause(named, finer or first, tolerance=precision.tolerance)
    if finer is not None and is_lost(first, finer):
        words = (
            f"total variation {first.distance.tv:.3g}, but {finer.distance.tv:.2g} where the same random numbers are "
            f"not rounded to {' and '.join(first.halves)}; that may cost {TOLERANCE:.0e}."
        )
        cause = cause if is_wrong(finer, precision) else _rounding(first, finer)
    else:
        words = f"total variation {first.distance.tv:.3g}, allowed {precision.tolerance:.0e} ({precision.reason})."
    paths = plural(first.num_runs, "path")
    return (
        f"Not noise. This is the exact law, by following every random value ({paths}): {words}",
        cause or (f"{READ_TWICE}." if first.reads_twice else ""),
    )


def _rounding(result: StepResult, finer: StepResult) -> str:
    names, steps = " and ".join(result.halves), " and ".join(f"1/{2 ** _BITS[name]}" for name in result.halves)
    where = f" Where: {result.halves_at}" if result.halves_at else ""
    return (
        f"random numbers are drawn in {names}, or rounded to it: near 1 they come in steps of {steps}. With finer ones "
        f"the law is right to {max(finer.distance.tv, _DUST):.0e}. Draw them in float32, whatever the type of the "
        f"laws.{where}"
    )
