"""Which mistake explains what was seen: only one that fits, and only if no other does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from scipy.optimize import minimize_scalar
from scipy.stats import chi2

from specverify.core.errors import UsageError
from specverify.laws.mistakes import MISTAKES, Mistake
from specverify.laws.sequence import total_variation
from specverify.laws.steps import DraftPath, Law, StepRule, chain_step, law_over_paths, paths_with_rows
from specverify.laws.tree import Conditional

# A true cause is refused one time in ten thousand; a false one passes only if the counts cannot tell it from the truth.
_FITS_ABOVE = 1e-4
# Counts by which even a correct verifier would be refused less often than this say that something is wrong.
_WRONG_BELOW = 1e-6
# Outcomes that expect fewer are pooled (chi-square's usual rule; the p-values here are no verdicts).
_MIN_EXPECTED = 5.0
# A strength within one per cent of the true one predicts an exact law to about this; further off it is another mistake.
_WORTH_REFINING = 0.02
# A mistake that moves a scenario's law by less than this cannot be fitted there.
_SHOWS_ABOVE = 1e-5


@dataclass(frozen=True, eq=False)
class Observation:
    """What a verifier emitted in one scenario: an exact law (summing to 1) or counts (whole numbers, more than one).

    draft, target: the laws it was given; the draft tokens were drawn from the draft law.
    """

    emitted: Mapping[tuple[int, ...], float]
    draft: Conditional
    target: Conditional
    num_draft_tokens: int

    @property
    def total(self) -> float:
        return math.fsum(self.emitted.values())

    @property
    def is_exact(self) -> bool:
        return self.total < 1.5

    def predicted(self, rule: StepRule) -> Law:
        """What the rule would emit here."""
        return law_over_paths(rule, self.paths)

    @cached_property
    def paths(self) -> list[DraftPath]:
        return list(paths_with_rows(self.draft, self.target, self.num_draft_tokens))


@dataclass(frozen=True)
class Fit:
    """A mistake whose predicted law is what was seen.

    distance: largest total variation from an exact law, or from observed frequencies. p_value: smallest chi-square
    p-value over observations of counts; 1 for exact laws. num_refuted: other mistakes that were tried and do not fit.
    """

    mistake: Mistake
    distance: float
    p_value: float = 1.0
    num_refuted: int = 0

    @property
    def sentence(self) -> str:
        return self.mistake.sentence


def most_likely_mistake(observations: Sequence[Observation] | Observation, *, tolerance: float = 1e-9) -> Fit | None:
    """The one mistake that predicts everything that was seen; None where none does, or more than one.

    tolerance: total variation allowed between an exact law and a prediction (1e-9 for float64, 1e-5 for float32).
    Also None where the correct token-wise rule fits: nothing is wrong then.
    """
    seen = [observations] if isinstance(observations, Observation) else list(observations)
    fits = fitting_mistakes(seen, tolerance=tolerance)
    return fits[0] if len(fits) == 1 else None


def fitting_mistakes(observations: Sequence[Observation], *, tolerance: float = 1e-9) -> tuple[Fit, ...]:
    """Every mistake that predicts all that was seen, best first; empty where the correct rule does."""
    if not observations:
        raise UsageError("no observation to explain; give at least one")
    # Cheapest first: most mistakes are refuted by the first observation.
    ordered = sorted(observations, key=lambda seen: len(seen.paths))
    if all(_is_explained(seen, chain_step, tolerance, wrong_below=_WRONG_BELOW) for seen in ordered):
        return ()
    fits = []
    for mistake in MISTAKES:
        candidate = mistake if mistake.family is None else _best_strength(mistake, ordered, tolerance)
        if all(_is_explained(seen, candidate.rule, tolerance) for seen in ordered):
            predictions = [(seen, seen.predicted(candidate.rule)) for seen in ordered]
            fits.append(
                Fit(
                    candidate,
                    max(total_variation(_frequencies(seen), law) for seen, law in predictions),
                    min((_p_value(seen.emitted, law) for seen, law in predictions if not seen.is_exact), default=1.0),
                )
            )
    # A mistake without a free strength explains more with less: a fitted one beside it is only imitating it.
    if any(fit.mistake.family is None for fit in fits):
        fits = [fit for fit in fits if fit.mistake.family is None]
    fits.sort(key=lambda fit: (fit.distance, -fit.p_value))
    return tuple(Fit(fit.mistake, fit.distance, fit.p_value, len(MISTAKES) - len(fits)) for fit in fits)


def _is_explained(seen: Observation, rule: StepRule, tolerance: float, *, wrong_below: float = _FITS_ABOVE) -> bool:
    law = seen.predicted(rule)
    if seen.is_exact:
        return total_variation(seen.emitted, law) <= tolerance
    return _p_value(seen.emitted, law) >= wrong_below


def _best_strength(mistake: Mistake, observations: Sequence[Observation], tolerance: float) -> Mistake:
    """The mistake at the strength that comes nearest to the observations; a common one if that already fits."""
    family = mistake.family
    if family is None:
        return mistake
    for candidate in (mistake, *(mistake.at(value) for value in mistake.common)):
        if all(_is_explained(seen, candidate.rule, tolerance) for seen in observations):
            return candidate
    # The cheapest scenario in which the mistake shows at all; on the others the strength is only confirmed.
    seen = next((seen for seen in observations if _shows(mistake, seen)), observations[0])
    frequencies = _frequencies(seen)

    def misfit(logarithm: float) -> float:
        return total_variation(frequencies, seen.predicted(family(math.exp(logarithm))))

    low, high = math.log(mistake.low), math.log(mistake.high)
    rough = minimize_scalar(misfit, bounds=(low, high), method="bounded", options={"xatol": 1e-2, "maxiter": 30})
    if not seen.is_exact or rough.fun > _WORTH_REFINING:
        return mistake.at(math.exp(rough.x))
    around = (max(low, rough.x - 0.03), min(high, rough.x + 0.03))
    found = minimize_scalar(misfit, bounds=around, method="bounded", options={"xatol": 1e-13, "maxiter": 100})
    return mistake.at(math.exp(found.x))


def _shows(mistake: Mistake, seen: Observation) -> bool:
    return total_variation(seen.predicted(mistake.rule), seen.predicted(chain_step)) > _SHOWS_ABOVE


def _frequencies(seen: Observation) -> Mapping[tuple[int, ...], float]:
    if seen.is_exact:
        return seen.emitted
    return {output: count / seen.total for output, count in seen.emitted.items()}


def _p_value(counts: Mapping[tuple[int, ...], float], law: Law) -> float:
    """Chi-square p-value of counts against a law, rare outcomes pooled; 0 where an impossible outcome was seen."""
    if any(count > 0 and law.get(output, 0.0) <= 0.0 for output, count in counts.items()):
        return 0.0
    total = math.fsum(counts.values())
    statistic, num_cells, rare_expected, rare_count = 0.0, 0, 0.0, 0.0
    for output, probability in law.items():
        expected, count = total * probability, counts.get(output, 0.0)
        if expected < _MIN_EXPECTED:
            rare_expected, rare_count = rare_expected + expected, rare_count + count
            continue
        statistic, num_cells = statistic + (count - expected) ** 2 / expected, num_cells + 1
    if rare_expected > 0.0:
        statistic += (rare_count - rare_expected) ** 2 / max(rare_expected, 1.0)
        num_cells += 1
    return float(chi2.sf(statistic, max(num_cells - 1, 1)))
