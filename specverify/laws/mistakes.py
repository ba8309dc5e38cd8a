"""The named mistakes of verify functions, as closed-form rules: what each of them emits, exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from specverify.core.errors import UsageError
from specverify.laws import wrong_rules as wrong
from specverify.laws.residual import accept_ratio
from specverify.laws.steps import StepRule
from specverify.laws.wrong_rules import (
    block_stopped_step,
    inverse_cdf_of_rejecting_uniform,
    one_hot,
    residual_of_next_row,
    rule_of,
    shared_uniform,
    with_accept,
    with_accept_row,
    with_bonus,
    with_replacement,
    with_rows,
    without_drafted,
)


@dataclass(frozen=True)
class Mistake:
    """One way to be wrong.

    name: kebab case. sentence: what the code does, to follow "the verifier". rule: its law, called like chain_step.
    family, low, high: for a mistake with a strength (a factor, a temperature), the rule at any strength in that range;
      rule and sentence are those at value. common: strengths that people use, tried before any search.
    """

    name: str
    sentence: str
    rule: StepRule
    family: Callable[[float], StepRule] | None = None
    low: float = 0.0
    high: float = 0.0
    value: float | None = None
    template: str = ""
    common: tuple[float, ...] = ()

    def at(self, value: float) -> Mistake:
        """The same mistake at another strength. Raises UsageError where it has none."""
        if self.family is None:
            raise UsageError(f"mistake {self.name!r} has no strength to set")
        return replace(self, rule=self.family(value), value=value, sentence=self.template.format(value))


def mistake_named(name: str) -> Mistake:
    """The mistake of that name. Raises UsageError listing the names."""
    for mistake in MISTAKES:
        if mistake.name == name:
            return mistake
    raise UsageError(f"no mistake is called {name!r}; choose from {', '.join(m.name for m in MISTAKES)}")


def _graded(
    name: str, template: str, family: Callable[[float], StepRule], value: float, low: float, high: float,
    common: tuple[float, ...] = (),
) -> Mistake:  # fmt: skip
    return Mistake(name, template.format(value), family(value), family, low, high, value, template, common)


MISTAKES: tuple[Mistake, ...] = (
    Mistake("ratio-inverted", "accepts with draft / target instead of target / draft",
            with_accept(lambda draft, target: accept_ratio(target, draft))),
    Mistake("always-accepts", "accepts every draft token", with_accept(lambda draft, target: np.ones_like(draft))),
    Mistake("never-accepts", "rejects every draft token", with_accept(lambda draft, target: np.zeros_like(draft))),
    Mistake("draft-not-divided-by", "accepts with the target probability itself, not divided by the draft's",
            with_accept(lambda draft, target: target)),
    Mistake("accept-row-early", "tests each draft token against the target row of the next position",
            with_accept_row(1)),
    Mistake("accept-row-late", "tests each draft token against the target row of the position before",
            with_accept_row(-1)),
    Mistake("first-draft-unchecked", "accepts the first draft token without a test", with_accept(
            lambda draft, target: np.where(np.arange(len(draft)) == 0, 1.0, accept_ratio(draft, target)))),
    Mistake("uniform-shared-by-positions", "uses one uniform for all positions of a step", rule_of(shared_uniform)),
    Mistake("resamples-from-target", "replaces a rejected token by a draw from the target law, not the residual",
            with_replacement(lambda tokens, draft, target: target[:-1])),
    Mistake("rejected-token-excluded", "replaces a rejected token by any other one, by the target law",
            with_replacement(without_drafted)),
    Mistake("resamples-from-draft", "replaces a rejected token by a draw from the draft law",
            with_replacement(lambda tokens, draft, target: draft)),
    Mistake("residual-not-clipped", "takes |target - draft| as the residual",
            with_replacement(lambda tokens, draft, target: np.abs(target[:-1] - draft))),
    Mistake("residual-inverted", "takes max(draft - target, 0) as the residual",
            with_replacement(lambda tokens, draft, target: np.maximum(draft - target[:-1], 0.0))),
    Mistake("residual-argmax", "takes the argmax of max(target - draft, 0) instead of sampling from it",
            with_replacement(lambda tokens, draft, target: one_hot(np.maximum(target[:-1] - draft, 0.0)))),
    Mistake("residual-of-wrong-row", "takes the residual of the next position",
            with_replacement(residual_of_next_row)),
    Mistake("residual-not-normalised",
            "draws from the residual as if it summed to 1: what is missing goes to the last token",
            with_replacement(wrong.residual_filled_up)),
    Mistake("uniform-reused", "draws the residual token with the uniform that rejected the draft token",
            with_replacement(inverse_cdf_of_rejecting_uniform)),
    Mistake("bonus-of-last-row", "draws the bonus token from the row of the last draft token",
            with_bonus(lambda target: target[max(len(target) - 2, 0)])),
    Mistake("bonus-argmax", "takes the likeliest bonus token instead of sampling it",
            with_bonus(lambda target: one_hot(target[-1]))),
    Mistake("target-rows-early", "uses for each position the target row of the next one",
            with_rows(lambda draft, target: (draft, np.concatenate([target[1:], target[-1:]])))),
    Mistake("target-rows-late", "uses for each position the target row of the one before",
            with_rows(lambda draft, target: (draft, np.concatenate([target[:1], target[:-1]])))),
    Mistake("draft-rows-late", "divides by the draft row of the position before",
            with_rows(lambda draft, target: (np.concatenate([draft[:1], draft[:-1]]), target))),
    Mistake("block-stops-at-first", "runs block verification, but stops at the first test that fails",
            block_stopped_step),
    Mistake("greedy-target", "takes the target's argmax although it should sample",
            with_rows(lambda draft, target: (draft, one_hot(target)))),
    Mistake("softmax-twice", "applies softmax to target probabilities",
            with_rows(lambda draft, target: (draft, wrong.softmax_of_probabilities(target)))),
    Mistake("target-in-bfloat16", "rounds the target law to bfloat16",
            with_rows(lambda draft, target: (draft, wrong.bfloat16_rounded(target)))),
    Mistake("target-in-float16", "rounds the target law to float16",
            with_rows(lambda draft, target: (draft, target.astype(np.float16).astype(np.float64)))),
    _graded("accept-ratio-scaled", "multiplies the accept ratio by {:.3g}",
            lambda factor: with_accept(lambda draft, target: accept_ratio(draft, factor * target)), 1.02, 0.5, 2.0),
    _graded("residual-floor", "clamps the residual from below at {:.3g}",
            lambda floor: with_replacement(lambda tokens, draft, target: np.maximum(target[:-1] - draft, floor)),
            0.01, 1e-6, 0.2),
    _graded("residual-offset", "adds {:.3g} to every entry of the residual",
            lambda offset: with_replacement(
                lambda tokens, draft, target: np.maximum(target[:-1] - draft, 0.0) + offset),
            0.003, 1e-9, 0.2, (1e-5, 1e-6, 1e-8, 1e-4, 1e-3)),
    _graded("uniform-fixed", "accepts where the ratio is above {:.3g}, whatever the uniform",
            lambda limit: with_accept(lambda draft, target: (accept_ratio(draft, target) > limit).astype(np.float64)),
            0.5, 0.01, 0.99, (0.9, 0.3, 0.7, 0.1, 0.8)),
    _graded("target-mixed-with-draft", "verifies against the target mixed with {:.3g} of the draft law",
            lambda weight: with_rows(lambda draft, target: (
                draft, np.concatenate([(1.0 - weight) * target[:-1] + weight * draft, target[-1:]]))),
            0.3, 1e-3, 0.999),
    _graded("draft-at-other-temperature", "uses the draft law at {:.3g} times the temperature it was drawn at",
            lambda temperature: with_rows(lambda draft, target: (wrong.softened(draft, temperature), target)),
            1.1, 0.3, 3.0),
    _graded("target-at-other-temperature", "uses the target law at {:.3g} times its temperature",
            lambda temperature: with_rows(lambda draft, target: (draft, wrong.softened(target, temperature))),
            1.1, 0.3, 3.0),
    _graded("bonus-at-other-temperature", "draws the bonus token at {:.3g} times the temperature",
            lambda temperature: with_bonus(lambda target: wrong.softened(target[-1:], temperature)[0]),
            1.1, 0.3, 3.0),
    _graded("target-cut-to-nucleus", "cuts the target law to its top-p nucleus, p = {:.3g}",
            lambda top_p: with_rows(lambda draft, target: (draft, wrong.nucleus(target, top_p))),
            0.95, 0.1, 0.999, (0.9, 0.95, 0.99, 0.98, 0.8, 0.85, 0.7, 0.6, 0.5)),
)  # fmt: skip
