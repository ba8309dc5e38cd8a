"""The exact law of a whole generate call, enumerated, against the target's own sequence law."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from specverify.checks import evidence, noise, places, sequence_cause
from specverify.checks.exact_findings import Enumerated, law_finding, reused_finding
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.checks.sequence_cause import Tokens
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind
from specverify.core.scenario import Purpose, Scenario, default_scenarios, scenarios_of
from specverify.core.types import Request, Trace
from specverify.exact.choices import EnumerationBudget
from specverify.exact.errors import NotEnumerable, ReusedRandomness
from specverify.exact.law import enumerate_law
from specverify.laws.tree import Conditional

# The oracle has every option in closed form: one that moves the target's law by less was not put to the test.
_OPTION_MATTERS = 1e-3
# Plain decoding further from the oracle than this many floors is no rounding: the engine reads a parameter otherwise.
_PLAIN_IS_ROUNDING = 20.0
# Ordinary calls that must agree with the enumerated law: a check of the enumeration, not of the engine.
_CROSS_CHECK_CALLS = 200
_CROSS_CHECK_SECONDS = 0.5
# One enumeration that takes longer is given up: the stream check judges that scenario too.
_MOST_SECONDS = 60.0


@dataclass(frozen=True, eq=False)
class _Judged:
    """How one scenario ended. undecided: why it proves nothing, else empty."""

    scenario: Scenario
    undecided: str = ""
    tv: float = 0.0
    tolerance: float = 0.0
    num_runs: int = 0
    against: str = "the oracle"


@check(
    "lossless.sequence-law-exact",
    claim="A whole generate call emits every token sequence with the target model's own probability.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE, Capability.IN_PROCESS_RANDOMNESS, Capability.LOAD_CHECKPOINT},
    exercised_by=(Exercised("enumerated-paths"),),
    catches=(
        "accept-ratio-inflated",
        "lossy-mixture",
        "sampling-penalties-ignored",
        "penalties-see-rejected-drafts",
        "bonus-row-off-by-one",
        "sampling-filter-only-on-bonus",
        "sampling-min-p-ignored",
        "sampling-temperature-capped",
        "tree-siblings-tried-against-target",
        "typical-acceptance-undeclared",
        "lenient-acceptance-undeclared",
    ),
    source="arXiv 2211.17192, appendix A.1: the output follows the target's law exactly",
    runs_alone=True,
)
def sequence_law_exact(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Every path of drafting, verifying, rolling back and sampling is run, and its exact probability is known.

    The engine's random draws are replaced by symbols; the call is replayed once per outcome. Nothing is sampled, so
    there is no luck: the total variation to the target's law is exact but for rounding. Each scenario switches one
    sampling option on, and proves something only if drafts were accepted and rejected and the option changes the law.
    """
    judged: list[_Judged] = []
    scenarios = scenarios_of(subject, Purpose.EXACT, default=_defaults(subject, context))
    for index, scenario in enumerate(scenarios):
        context.progress(f"exact law, {scenario.name}", index, len(scenarios))
        outcome = _judge(subject, scenario, context)
        if isinstance(outcome, Finding):
            yield outcome
            return
        judged.append(outcome)
    decided = [one for one in judged if not one.undecided]
    if len(decided) < len(judged) or not judged:
        reasons = "; ".join(f"{one.scenario.name}: {one.undecided}" for one in judged if one.undecided)
        raise Inconclusive(f"{len(decided)} of {len(judged)} scenarios decided. {reasons}")
    worst = max(decided, key=lambda one: one.tv)
    paths = sum(one.num_runs for one in decided)
    context.worth(
        f"{len(decided)} scenarios ({', '.join(one.scenario.name for one in decided)}), {paths:,} paths; "
        f"total variation at most {worst.tv:.1e}, allowed {worst.tolerance:.0e}{noise.assumed_text(subject)}"
    )
    others = sorted({one.against for one in decided} - {"the oracle"})
    if others:
        context.worth(f"compared with {', '.join(others)} where plain decoding itself departs from the oracle")


def _defaults(subject: Any, context: CheckContext) -> Sequence[Scenario]:
    prompts = evidence.standard_prompts(subject, context)
    has_trees = Capability.DRAFT_TREE in subject.capabilities
    return default_scenarios(prompts, (subject.checkpoint.eos_token_id,), has_trees=has_trees)


def _judge(subject: Any, scenario: Scenario, context: CheckContext) -> _Judged | Finding:
    request = scenario.request(0)
    target = subject.checkpoint.target_oracle.conditional(request.prompt_token_ids, request.sampling)
    try:
        plain = _enumerate(subject, request, context, speculate=False)
        speculated = _enumerate(subject, request, context, speculate=True)
    except ReusedRandomness as reused:
        return reused_finding(scenario, request, reused)
    except NotEnumerable as refused:
        return _Judged(scenario, undecided=f"cannot be enumerated, {refused}")
    context.exercised("enumerated-paths", plain.num_runs + speculated.num_runs)
    floor = noise.floor(noise.LAW_FLOOR, subject)
    wanted = {tokens: _probability(tokens, target, request) for tokens in speculated.law.keys() | plain.law.keys()}
    plain_tv, against = _distance(plain.law, wanted), "the oracle"
    tolerance = max(floor, noise.SAFETY * plain_tv)
    if plain_tv > _PLAIN_IS_ROUNDING * floor:
        # Then speculation is held against this engine's own plain decoding: that is all it promises.
        wanted, against, tolerance = plain.law, f"plain decoding ({plain_tv:.1e} from the oracle)", floor
        target = sequence_cause.conditional_of(plain.law, subject.checkpoint.vocab_size)
    tv = _distance(speculated.law, wanted)
    if tv > tolerance:
        return law_finding(subject, scenario, request, speculated, target, tv, tolerance, context)
    undecided = _untested(subject, scenario, request, speculated, plain, wanted)
    return _Judged(scenario, undecided, tv, tolerance, speculated.num_runs, against)


def _enumerate(subject: Any, request: Request, context: CheckContext, *, speculate: bool) -> Enumerated:
    engine = evidence.quiet(subject)
    seen: Counter[str] = Counter()
    prefilled: set[int] = set()

    def program(source: Any) -> Tokens:
        del source  # the engine draws from the global generators, which are replaced while this runs
        (trace,) = evidence.generate_tokens(engine, [request], speculate=speculate)
        _count(seen, trace)
        prefilled.add(trace.first_from_prefill)
        # What comes after the limit is the business of tokens.at-most-max-tokens.
        return tuple(trace.token_ids[: request.max_new_tokens])

    seconds = min(context.effort, 1.0) * (_CROSS_CHECK_SECONDS if speculate else 0.25 * _CROSS_CHECK_SECONDS)
    is_double = noise.dtype_of(engine) == "float64"
    exact = enumerate_law(
        program,
        budget=EnumerationBudget(max_seconds=_MOST_SECONDS, replay_tolerance=1e-9 if is_double else 1e-6),
        cross_check_calls=_CROSS_CHECK_CALLS,
        cross_check_seconds=seconds,
        reset=getattr(engine, "reset", None),
    )
    law = {tuple(int(token) for token in tokens): float(p) for tokens, p in exact.probabilities.items()}
    return Enumerated(law, exact.num_runs, seen, min(prefilled, default=1))


def _count(seen: Counter[str], trace: Trace) -> None:
    seen["told"] += places.tells_drafts(trace)
    seen["drafted"] += places.num_drafted(trace)
    seen["accepted"] += places.num_accepted(trace)
    if not trace.steps:
        seen["rejected"] += places.num_drafted(trace) - places.num_accepted(trace)
    seen["rejected"] += sum(step.is_rejection for step in trace.steps)


def _probability(tokens: Tokens, target: Conditional, request: Request) -> float:
    """Target's probability of this output; 0 for one that stops early or goes on after an end token."""
    ends = request.eos_token_ids
    if any(token in ends for token in tokens[:-1]):
        return 0.0
    if len(tokens) != request.max_new_tokens and not (tokens and tokens[-1] in ends):
        return 0.0
    result = 1.0
    for index, token in enumerate(tokens):
        row = target(tokens[:index])
        result *= float(row[token]) if 0 <= token < len(row) else 0.0
    return result


def _distance(law: dict[Tokens, float], wanted: dict[Tokens, float]) -> float:
    """Total variation; what the wanted law gives to outputs that neither law lists is missing from this one."""
    listed = sum(abs(law.get(tokens, 0.0) - p) for tokens, p in wanted.items())
    extra = sum(p for tokens, p in law.items() if tokens not in wanted)
    return 0.5 * (listed + extra + max(0.0, 1.0 - sum(wanted.values())))


def _untested(
    subject: Any, scenario: Scenario, request: Request, on: Enumerated, off: Enumerated, wanted: dict[Tokens, float]
) -> str:
    """Why equal laws prove nothing here, or an empty string."""
    if not on.seen["told"]:
        if on.num_runs == off.num_runs:
            return f"as many paths with speculation as without ({on.num_runs}): it was off, or nothing was drafted"
    elif not on.seen["drafted"]:
        return "nothing was drafted on any path"
    elif not on.seen["accepted"] or not on.seen["rejected"]:
        return f"no draft token was ever {'accepted' if not on.seen['accepted'] else 'rejected'}"
    without = scenario.without_option()
    if without is None:
        return ""
    other = without.request(0)
    target = subject.checkpoint.target_oracle.conditional(other.prompt_token_ids, other.sampling)
    change = _distance(wanted, {tokens: _probability(tokens, target, other) for tokens in wanted})
    if change < _OPTION_MATTERS:
        return f"the target's law hardly depends on {scenario.option} here (total variation {change:.0e})"
    return ""
