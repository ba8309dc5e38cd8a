"""How an engine fault is put together: the reference engine with one part replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from specverify.core.capabilities import Capability
from specverify.core.scenario import EOS_OPTION, EXACT_MORE, Purpose, Scenario, default_scenarios
from specverify.core.types import SamplingParams
from specverify.faults.fault import Fault
from specverify.probe import ProbePair, default_probe
from specverify.reference.cached_model import CachedModel
from specverify.reference.engine import ReferenceEngine
from specverify.reference.head_proposers import HEAD_TREES
from specverify.reference.kv_cache import KVCache
from specverify.reference.proposers import NgramProposer
from specverify.reference.subject import TREES, Parts, ReferenceSubject, reference_subject
from specverify.reference.verifiers import RejectionVerifier, Verifier

# Two draft tokens: a second place in the draft, and few enough paths for an enumeration of whole calls.
NUM_DRAFT_TOKENS = 2
_WHOLE = Parts()
_STREAM_TOKENS = 48
# Of the standard runs: a third less than usual, for the self-test makes them hundreds of times.
_STANDARD_TOKENS = 16
# Prefill's token, two draft tokens and a bonus token, or a rejection and what follows it.
_EXACT_TOKENS = 4
_EXACT_OPTION_TOKENS = 3
_NARROW = SamplingParams(top_k=2)


def probe_engine(
    name: str, *, proposer: str = "draft-model", parts: Parts = _WHOLE, every_option: bool = True,
    more_options: bool = False, only_option: str | None = None, **options: Any,
) -> ReferenceSubject:  # fmt: skip
    """The reference engine on the default probe pair, asked in the scenarios that every engine specimen is asked in.

    every_option: enumerate a call for each sampling option, not only one. more_options: for min-p and for all options
    together instead. only_option: for this option alone.
    """
    pair = default_probe()
    options.setdefault("num_draft_tokens", NUM_DRAFT_TOKENS)
    options.setdefault("max_new_tokens", _STANDARD_TOKENS)
    if "own_scenarios" not in options:
        asked = scenarios(pair, proposer, every_option=every_option, more_options=more_options)
        options["own_scenarios"] = tuple(
            one for one in asked if only_option in (None, one.option) or one.purpose is not Purpose.EXACT
        )
    return reference_subject(pair, name=name, proposer=proposer, parts=parts, **options)


def scenarios(
    pair: ProbePair, proposer: str, *, every_option: bool, more_options: bool = False
) -> tuple[Scenario, ...]:
    """The standard streams; exact scenarios narrow enough for a laptop: one with a bonus token, one for each option."""
    # After the prompts in which prompt lookup finds something, the target hardly ever ends.
    is_likely_to_end = proposer != "n-gram"
    prompts = pair.prompts if is_likely_to_end else pair.lookup_prompts
    ends = (pair.eos_token_id,)
    has_trees = proposer in (*TREES, *HEAD_TREES)
    standard = default_scenarios(
        prompts, ends, max_new_tokens=_STREAM_TOKENS, has_trees=has_trees, has_every_option=more_options
    )
    streams = tuple(scenario for scenario in standard if scenario.purpose is not Purpose.EXACT)
    if more_options:
        more = {name for name, *_ in EXACT_MORE}
        return (*streams, *(one for one in standard if one.purpose is Purpose.EXACT and one.name in more))
    if has_trees:
        # Of the options, penalties are what siblings can spoil.
        options = ("", "repetition_penalty") if every_option else ("",)
        return (*streams, *(one for one in standard if one.purpose is Purpose.EXACT and one.option in options))
    penalised = replace(_NARROW, repetition_penalty=1.5)
    few = _EXACT_OPTION_TOKENS
    exact = (
        ("temperature 0.6", "temperature", replace(_NARROW, temperature=0.6), (), few),
        ("top-p 0.7", "top_p", SamplingParams(top_k=3, top_p=0.7), (), few),
        ("repetition penalty 1.5", "repetition_penalty", penalised, (), few),
        ("end token", EOS_OPTION, SamplingParams(top_k=3), ends, few),
        # Last, because it has the most paths.
        ("top-k 2", "", _NARROW, (), _EXACT_TOKENS),
    )
    # An end token inside a draft of two is the shortest scenario with a rollback in the middle of the call.
    wanted = exact if every_option else exact[3:4] if is_likely_to_end else exact[-1:]
    return (*streams, *(_exact(prompts, *one) for one in wanted))


def _exact(
    prompts: Sequence[tuple[int, ...]], name: str, option: str, law: SamplingParams, ends: tuple[int, ...], length: int
) -> Scenario:
    return Scenario(name, Purpose.EXACT, law, tuple(prompts[:1]), length, ends, option)


class Planted:
    """A decorator that plants the class below in the reference engine; its docstring is the fault's sentence.

    What the class replaces follows from its base: the engine, the verifier, prompt lookup, the target's cached model or
    that model's cache; without a base it is mixed into every proposer that runs a model. verifier: broken beside such a
    proposer.
    options: of probe_engine, for all faults of this decorator or for one.
    """

    def __init__(self, **options: Any) -> None:
        self.faults: list[Fault] = []
        self.options = options

    def __call__(
        self, name: str, report: str, *, verifier: Callable[[], Verifier] | None = None, **options: Any
    ) -> Callable[[type], type]:
        def plant(part: type) -> type:
            def make() -> ReferenceSubject:
                return probe_engine(name, parts=_parts_with(part, verifier), **{**self.options, **options})

            self.faults.append(Fault(name, part.__doc__ or "", report, make))
            return part

        return plant


def _parts_with(part: type, verifier: Callable[[], Verifier] | None) -> Parts:
    if issubclass(part, KVCache):
        part = with_cache(part)
    if issubclass(part, CachedModel):
        part = type(part.__name__, (ReferenceEngine,), {"cached_model_class": part})
    if issubclass(part, ReferenceEngine):
        return Parts(engine_class=part)
    if issubclass(part, RejectionVerifier):
        return Parts(make_verifier=part)
    if issubclass(part, NgramProposer):
        return Parts(ngram_class=part)
    return Parts(proposer_mixin=part, make_verifier=verifier)


def with_cache(cache: type) -> type:
    """A cached model that keeps its rows in this cache."""
    return type(cache.__name__, (CachedModel,), {"cache_class": cache})


class OwnDrafterOnly:
    """A subject in which no standard drafter can be put: what those do is seen with other engines."""

    def __init__(self, subject: Any) -> None:
        self._subject = subject
        self.capabilities = subject.capabilities - {Capability.SCRIPTED_PROPOSER}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)


class DeclaredLossy:
    """A subject that says of itself that it is lossy by design, and by how much at most."""

    def __init__(self, subject: Any, *, reason: str, distance: float | None = None) -> None:
        self._subject = subject
        self.lossy_by_design = reason
        self.capabilities = frozenset({*subject.capabilities, Capability.LOSSY_BY_DESIGN})
        if distance is not None:
            self.lossy_distance = distance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)


class DeclaresDraftSampling:
    """A subject that says how its drafter samples, whatever the request asks for."""

    def __init__(self, subject: Any, sampling: SamplingParams) -> None:
        self._subject = subject
        self.draft_sampling = sampling

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)
