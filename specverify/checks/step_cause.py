"""Which known mistake predicts the law that was found; nothing where none does, or more than one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specverify.checks.step_enumerate import StepResult
from specverify.checks.step_explain import next_law, three_digits
from specverify.checks.step_subject import emitted_law
from specverify.laws.diagnosis import Fit, Observation, most_likely_mistake

# A prediction for every case is asked for; more cases than this refute nothing that these leave standing.
_MOST_CASES = 8


def likely_cause(results: Sequence[StepResult], shown: StepResult, *, tolerance: float) -> str:
    """One sentence naming the only mistake that predicts every case, right or wrong, and how well it fits.

    results: all cases that were run. shown: the case that the report shows. tolerance: as for the law itself.
    """
    if not shown.scenario.is_told or not shown.scenario.is_chain:
        return ""  # the named mistakes are those of a chain with a draft law
    others = [one for one in results if one is not shown and one.scenario.neighbour is None and one.scenario.is_chain]
    observations = [_observation(result) for result in [shown, *others][:_MOST_CASES]]
    fit = most_likely_mistake(observations, tolerance=tolerance)
    if fit is None:
        return ""
    text = f"the verifier {fit.sentence}. That predicts {_predicted(fit, shown)} for the case above"
    if shown.num_samples:
        text += f", which fits (chi-square p-value {fit.p_value:.2g})."
    else:
        text += f"; all {len(observations)} cases compared fit to {max(fit.distance, 1e-16):.0e}."
    return f"{text} None of the {fit.num_refuted} other known mistakes fits."


def _observation(result: StepResult) -> Observation:
    scenario, law = result.scenario, emitted_law(result.joint)
    if result.num_samples:
        law = {emitted: float(round(probability * result.num_samples)) for emitted, probability in law.items()}
    return Observation(law, scenario.draft, scenario.target, scenario.num_draft_tokens)


def _predicted(fit: Fit, shown: StepResult) -> str:
    """The predicted law of the token that the report shows, as a row of numbers."""
    law = _observation(shown).predicted(fit.mistake.rule)
    prefix = shown.distance.first_prefix or ()
    row, _ = next_law({((), emitted, None): probability for emitted, probability in law.items()}, prefix,
                      shown.scenario.vocab_size)  # fmt: skip
    order = np.argsort(-row, kind="stable")[:8]
    tokens = sorted(int(token) for token in order)
    if shown.scenario.vocab_size > len(tokens):
        return "the same law"
    return " ".join(three_digits(float(row[token])) for token in tokens)
