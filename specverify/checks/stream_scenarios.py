"""What an engine is asked for when thousands of its tokens are held against the target's laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from specverify.checks import evidence
from specverify.checks.registry import CheckContext, Inconclusive
from specverify.checks.samples import Scorer
from specverify.core.capabilities import Capability
from specverify.core.scenario import EOS_OPTION, Purpose, Scenario, default_scenarios, scenarios_of
from specverify.core.types import SamplingParams

_LONGEST = 48
# Requests for each prompt and scenario that an engine is asked for which says that it is slow.
_SLOW_REPEATS = 2


def stream_scenarios(subject: Any, scorer: Scorer, context: CheckContext) -> Sequence[Scenario]:
    """Its own stream scenarios, else the standard ones on its prompts; those that it can do and that can be scored.

    Raises Inconclusive where there is none, and says what is missing.
    """
    scorer.require_laws()
    brought = scenarios_of(subject, Purpose.STREAM, default=_standard(subject, scorer, context))
    found = [one for one in brought if scorer.can_score(one) and _is_possible(subject, one)]
    if not found:
        raise Inconclusive(
            f"the laws are known, but none of the {len(brought)} scenarios for a stream that the adapter brings can be "
            "asked for and scored; leave out `scenarios` for the standard ones, or add one of Purpose.STREAM"
        )
    return found


def scenario_without_drafts(subject: Any, scenarios: Sequence[Scenario]) -> Scenario | None:
    """One more scenario, for the drafter that drafts nothing now and then: rows without a draft beside drafting ones.

    With filters, so that a row that lost its own sampling soon emits what the target forbids. None where no such
    drafter can be put in, for one request at a time, and for slow engines.
    """
    wanted = {Capability.SCRIPTED_PROPOSER, Capability.BATCH, Capability.SAMPLING}
    if not wanted <= subject.capabilities or getattr(subject, "is_slow", False):
        return None
    plain = next((one for one in scenarios if not one.option and one.num_requests is None), None)
    return None if plain is None else replace(plain, name="rows without a draft", sampling=evidence.FILTERED)


def _standard(subject: Any, scorer: Scorer, context: CheckContext) -> Sequence[Scenario]:
    prompts = evidence.standard_prompts(subject, context)
    ends = (subject.checkpoint.eos_token_id,) if scorer.has_oracle else ()
    scenarios = default_scenarios(prompts, ends, max_new_tokens=_length(subject, prompts))
    if not getattr(subject, "is_slow", False):
        return scenarios
    return [replace(one, num_requests=_SLOW_REPEATS * len(prompts)) for one in scenarios]


def _length(subject: Any, prompts: Sequence[tuple[int, ...]]) -> int:
    """New tokens a request: as many as the engine bears and has room for."""
    room = int(getattr(subject, "max_positions", 0) or _LONGEST + max(map(len, prompts))) - max(map(len, prompts))
    return max(1, min(_LONGEST, room, int(getattr(subject, "max_new_tokens", _LONGEST))))


def _is_possible(subject: Any, scenario: Scenario) -> bool:
    """Whether the engine can be asked for what the scenario is about."""
    if scenario in getattr(subject, "scenarios", ()):
        return True  # brought along by the subject itself
    capabilities = subject.capabilities
    if scenario.option == EOS_OPTION:
        return Capability.STOP in capabilities
    if scenario.sampling.has_penalties:
        return Capability.PENALTIES in capabilities
    return scenario.sampling == SamplingParams() or Capability.SAMPLING in capabilities
