"""A verify function that is handed a generator or a seed: whether its output depends on that and on nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specverify.checks import ambient
from specverify.checks.registry import CheckContext, Exercised, check
from specverify.checks.step_scenarios import adapted, independence_scenario
from specverify.checks.step_subject import Scenario, VerifySubject, crash
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.randomness import kept_global_randomness
from specverify.exact.program import NativeSource

# Calls with a generator of their own each, made twice. A function that draws elsewhere repeats all of them by chance
# less than once in 2^64: each output is one of four, none of them likelier than a half.
_CALLS = 64
_SHOWN = 3


@check(
    "random.given-generator-used",
    claim="A verify step draws from the generator or seed it is given, and from nothing else.",
    needs={Capability.VERIFY, Capability.GENERATOR_ARGUMENT},
    kind=Kind.EXACT,
    exercised_by=Exercised("different-outputs", 2),
    catches=("verify-generator-ignored",),
    source="vllm-project/vllm#6038 (a request's seed is not used); ohdearquant/lattice#388",
)  # fmt: skip
def given_generator_used(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Equal generators must give equal outputs, whatever the global generators of numpy, torch and random are at.

    A server promises reproducible outputs to requests with a seed. A function that draws from a global generator
    follows its law just as well, so that no other check of single steps can tell.
    """
    scenario = adapted(independence_scenario(), subject)
    drafts = () if scenario.drafts_itself else (int(scenario.draft(()).argmax()),)
    with kept_global_randomness():
        first, second = (_outputs(subject, scenario, drafts, ambient_seed) for ambient_seed in (1, 2))
    # A greedy step has one output, and a generator that it does not need.
    context.exercised("different-outputs", 2 if subject.is_greedy else len(set(first)))
    differing = [number for number in range(_CALLS) if first[number] != second[number]]
    if not differing:
        context.worth(f"{_CALLS} calls repeated under other global seeds, {len(set(first))} different outputs")
        return
    rows = [["generator of seed", "output", "output, other global seeds"]]
    rows += [[str(number), str(list(first[number])), str(list(second[number]))] for number in differing[:_SHOWN]]
    yield Finding(
        headline=f"{scenario.size.capitalize()}, draft {list(drafts)}: equal generators gave unequal outputs.",
        table=Table(rows),
        not_noise=f"Not noise. {len(differing)} of {_CALLS} calls came out differently when only the global generators "
        "of numpy, torch and random had been seeded otherwise.",
        where=("The generator is not used, or not by all draws: one of them goes to a global generator.",),
        details={"differing": differing},
    )


def _outputs(
    subject: VerifySubject, scenario: Scenario, drafts: tuple[int, ...], ambient_seed: int
) -> list[tuple[int, ...]]:
    """What each of the calls emits while the global generators are at other places."""
    case = scenario.case(drafts)
    outputs = []
    for number in range(_CALLS):
        ambient.seed_globals(ambient_seed * _CALLS + number)
        try:
            outputs.append(subject.call_rows([case], NativeSource(number))[0].token_ids)
        except Exception as error:
            raise crash(subject, scenario, error) from error
    return outputs
