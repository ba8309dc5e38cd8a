"""What the reference engine is asked on a probe pair."""

from __future__ import annotations

from dataclasses import replace

from specverify.core.scenario import EOS_OPTION, Purpose, Scenario, default_scenarios
from specverify.probe import ProbePair


def probe_scenarios(pair: ProbePair, *, has_trees: bool, looks_up: bool) -> tuple[Scenario, ...]:
    """The standard scenarios; prompt lookup (looks_up) gets prompts in which it finds something."""
    if not looks_up:
        return default_scenarios(pair.prompts, (pair.eos_token_id,), has_trees=has_trees, has_every_option=True)
    # After those prompts the target hardly ever ends: the second likeliest token serves as end token.
    scenarios = default_scenarios(pair.lookup_prompts, (pair.eos_token_id,), has_every_option=True)
    return tuple(
        replace(one, eos_token_ids=(_second_likeliest(pair, one),))
        if one.purpose is Purpose.EXACT and one.option == EOS_OPTION
        else one
        for one in scenarios
    )


def _second_likeliest(pair: ProbePair, scenario: Scenario) -> int:
    law = pair.target_oracle.conditional(scenario.prompts[0], scenario.sampling)(())
    return int(law.argsort()[-2])
