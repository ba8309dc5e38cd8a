"""Standard runs of an engine, made once in a run of the suite and shared by every check that judges traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from specverify.checks import ambient
from specverify.checks.asking import answer
from specverify.checks.registry import CheckContext
from specverify.core.capabilities import Capability
from specverify.core.scenario import Purpose, scenarios_of
from specverify.core.types import Request, SamplingParams, Trace
from specverify.trace.returned import returned_traces

GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams()
# A drafter that declares its law before the filters and draws after them shows only with filters on.
FILTERED = SamplingParams(temperature=0.7, top_k=5)
# Requests per prompt in the runs that judge drafts: about 2,500 draft tokens on a probe pair.
DRAFTING_REPEATS = 8
# Accept everything, reject everything, now and then, and steps without a draft: every path through a step.
STANDARD_DRAFTERS = ("self", "anti", "alternating", "sometimes-empty")
DEFAULT_NEW_TOKENS = 24
NUM_PROMPTS = 6
# Ids that mean something special in nearly every vocabulary are kept out of made-up prompts.
FIRST_WORD_ID = 4
_LAST_WORD_ID = 31

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Run:
    """Traces of one generate call.

    drafter: "own" for the engine as it came, "recorded" for a file, else the standard drafter that was put in.
    engine: the engine that ran, or the recorded subject.
    """

    drafter: str
    sampling: SamplingParams
    traces: tuple[Trace, ...]
    engine: Any

    @property
    def label(self) -> str:
        how = "greedy" if self.sampling.is_greedy else "sampled"
        return f"{how}, {self.drafter} drafter" if self.drafter != "recorded" else f"{how}, recorded"


def once(context: CheckContext, key: str, make: Callable[[], Value]) -> Value:
    """The value made under this name in this run of the suite; made on the first call."""
    if key not in context.shared:
        context.shared[key] = make()
    value: Value = context.shared[key]
    return value


def is_recorded(subject: Any) -> bool:
    return not hasattr(subject, "generate")


def standard_prompts(subject: Any, context: CheckContext) -> tuple[tuple[int, ...], ...]:
    """Prompts of different lengths, half of them repetitive so that prompt lookup finds something to copy."""
    brought = getattr(subject, "prompts", None)
    if brought:
        return tuple(tuple(int(token) for token in prompt) for prompt in brought)
    for scenario in scenarios_of(subject, Purpose.GREEDY):
        return scenario.prompts
    return once(context, "evidence/prompts", lambda: tuple(_made_up_prompts(subject, context)))


def _made_up_prompts(subject: Any, context: CheckContext) -> Iterator[tuple[int, ...]]:
    generator = context.streams.generator("evidence", "prompts")
    vocab_size = getattr(getattr(subject, "checkpoint", subject), "vocab_size", _LAST_WORD_ID + 1)
    for index in range(NUM_PROMPTS):
        # A vocabulary that is smaller than the special tokens of others has words only.
        first = FIRST_WORD_ID if vocab_size > FIRST_WORD_ID + 1 else 0
        words = generator.integers(first, min(int(vocab_size), _LAST_WORD_ID + 1), size=3 + index)
        prompt = tuple(int(word) for word in words)
        yield (1, *prompt, *prompt[:-1]) if index % 2 else (1, *prompt)


def new_tokens(subject: Any) -> int:
    """Length of a standard run; slow engines say how much they can bear."""
    return int(getattr(subject, "max_new_tokens", DEFAULT_NEW_TOKENS))


def num_draft_tokens(subject: Any) -> int:
    """The longest draft of one step; 4 where the engine does not say."""
    return int(getattr(subject, "num_draft_tokens", 4))


def standard_requests(subject: Any, context: CheckContext, sampling: SamplingParams) -> tuple[Request, ...]:
    """One request per standard prompt, seeded where they are sampled and the engine honours seeds."""
    seeded = Capability.SEED in subject.capabilities and not sampling.is_greedy
    return tuple(
        Request(
            prompt_token_ids=prompt,
            max_new_tokens=new_tokens(subject),
            sampling=sampling,
            seed=context.streams.integer("evidence", "seed", index) % 2**31 if seeded else None,
            request_id=str(index),
        )
        for index, prompt in enumerate(standard_prompts(subject, context))
    )


def generate(subject: Any, requests: Sequence[Request], *, speculate: bool) -> tuple[Trace, ...]:
    """One generate call. Raises SubjectCrashed where what came back is not one sound trace per request."""
    return returned_traces(subject.name, answer(subject, requests, speculate=speculate), requests)


def generate_tokens(subject: Any, requests: Sequence[Request], *, speculate: bool) -> tuple[Trace, ...]:
    """As generate, while the engine is enumerated: only tokens and counts are judged then, and no law is touched."""
    made = subject.generate(list(requests), speculate=speculate)
    return returned_traces(subject.name, made, requests, with_laws=False)


def quiet(subject: Any) -> Any:
    """The same engine without records, for thousands of tokens; the engine itself where it has no such form."""
    make = getattr(subject, "quiet", None)
    return make() if callable(make) else subject


def with_drafter(subject: Any, drafter: str) -> Any:
    """The engine with a standard drafter put in; "own" is the engine as it came."""
    return subject if drafter == "own" else subject.with_proposer(drafter)


def drafters(subject: Any) -> tuple[str, ...]:
    scripted = Capability.SCRIPTED_PROPOSER in subject.capabilities
    return ("own", *STANDARD_DRAFTERS) if scripted else ("own",)


def plain_run(subject: Any, context: CheckContext) -> Run:
    """Greedy, speculation off. Of a recorded subject: its greedy traces without speculation, perhaps none."""
    return _runs(subject, context, GREEDY, speculate=False, names=("own",))[0]


def greedy_runs(subject: Any, context: CheckContext) -> tuple[Run, ...]:
    """Greedy, speculation on, with the engine's own drafter and every standard one it accepts."""
    return _runs(subject, context, GREEDY, speculate=True, names=_names(subject))


def sampled_runs(subject: Any, context: CheckContext) -> tuple[Run, ...]:
    """Sampled at temperature 1, speculation on, with the engine's own drafter and every standard one."""
    return _runs(subject, context, SAMPLED, speculate=True, names=_names(subject))


def drafting_runs(subject: Any, context: CheckContext) -> tuple[Run, ...]:
    """Larger sampled runs with the engine's own drafter, plain and with filters: for statistics about drafts.

    Of a slow engine the standard sampled run, which other checks make anyway.
    """
    if is_recorded(subject):
        return (_recorded_run(subject, SAMPLED, True),)
    if getattr(subject, "is_slow", False):
        return (_one_run(subject, context, SAMPLED, True, "own"),)
    can_filter = Capability.SAMPLING in subject.capabilities
    return tuple(_drafting_run(subject, context, s) for s in ((SAMPLED, FILTERED) if can_filter else (SAMPLED,)))


def _drafting_run(subject: Any, context: CheckContext, sampling: SamplingParams) -> Run:
    def make() -> Run:
        requests = [
            replace(
                request,
                seed=None if request.seed is None else _seed(context, request, repeat),
                request_id=f"{request.request_id}/{repeat}",
            )
            for repeat in range(max(1, round(DRAFTING_REPEATS * context.effort)))
            for request in standard_requests(subject, context, sampling)
        ]
        with ambient.repeatable(subject, context, "drafting", sampling.top_k):
            return Run("own", sampling, generate(subject, requests, speculate=True), subject)

    return once(context, f"evidence/drafting/{sampling.temperature:g}/{sampling.top_k}", make)


def _seed(context: CheckContext, request: Request, repeat: int) -> int:
    """Of its own in each sampling setting: the runs are judged together, and no uniform may count twice."""
    sampling = request.sampling
    names = ("evidence", "drafting", f"{sampling.temperature:g}/{sampling.top_k}", request.request_id, repeat)
    return context.streams.integer(*names) % 2**31


def speculated_runs(subject: Any, context: CheckContext) -> tuple[Run, ...]:
    """All standard runs with speculation on."""
    return (*greedy_runs(subject, context), *sampled_runs(subject, context))


def own_runs(subject: Any, context: CheckContext) -> tuple[Run, ...]:
    """The standard runs with speculation on and the engine's own drafter: greedy, then sampled."""
    names = ("recorded",) if is_recorded(subject) else ("own",)
    return tuple(
        run for sampling in (GREEDY, SAMPLED) for run in _runs(subject, context, sampling, speculate=True, names=names)
    )


def own_run(subject: Any, context: CheckContext, sampling: SamplingParams) -> Run:
    """One more run like the standard ones with the engine's own drafter, sampled in this way."""
    return _one_run(subject, context, sampling, True, "own")


def _names(subject: Any) -> tuple[str, ...]:
    return ("recorded",) if is_recorded(subject) else drafters(subject)


def _runs(
    subject: Any, context: CheckContext, sampling: SamplingParams, *, speculate: bool, names: Sequence[str]
) -> tuple[Run, ...]:
    if is_recorded(subject):
        return (_recorded_run(subject, sampling, speculate),)
    return tuple(_one_run(subject, context, sampling, speculate, name) for name in names)


def _recorded_run(subject: Any, sampling: SamplingParams, speculate: bool) -> Run:
    traces = tuple(
        trace
        for trace in subject.traces
        if trace.speculated is speculate and trace.request.sampling.is_greedy is sampling.is_greedy
    )
    return Run("recorded", sampling, traces, subject)


def _one_run(subject: Any, context: CheckContext, sampling: SamplingParams, speculate: bool, name: str) -> Run:
    penalised = "/penalised" if sampling.has_penalties else ""
    key = f"evidence/run/{'on' if speculate else 'off'}/{sampling.temperature:g}/{name}{penalised}"

    def make() -> Run:
        engine = with_drafter(subject, name)
        requests = standard_requests(subject, context, sampling)
        with ambient.repeatable(subject, context, key):
            return Run(name, sampling, generate(engine, requests, speculate=speculate), engine)

    return once(context, key, make)
