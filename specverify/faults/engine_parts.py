"""How an engine fault is put together: the reference engine with one part replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from specverify.core.capabilities import Capability
from specverify.core.scenario import EOS_OPTION, Purpose, Scenario, default_scenarios
from specverify.core.types import SamplingParams
from specverify.faults.fault import Fault
from specverify.probe import ProbePair, default_probe
from specverify.reference.engine import ReferenceEngine
from specverify.reference.subject import Parts, ReferenceSubject, reference_subject
from specverify.reference.verifiers import Verifier

# Two draft tokens: a second place in the draft, and few enough paths for an enumeration of whole calls.
NUM_DRAFT_TOKENS = 2
_WHOLE = Parts()
_STREAM_TOKENS = 48
# Prefill's token, two draft tokens and a bonus token, or a rejection and what follows it.
_EXACT_TOKENS = 4
_EXACT_OPTION_TOKENS = 3


def probe_engine(
    name: str, *, proposer: str = "draft-model", parts: Parts = _WHOLE, every_option: bool = True, **options: Any
) -> ReferenceSubject:
    """The reference engine on the default probe pair, asked in the scenarios that every engine specimen is asked in.

    every_option: enumerate a call for each sampling option, not only one.
    """
    pair = default_probe()
    options.setdefault("num_draft_tokens", NUM_DRAFT_TOKENS)
    options.setdefault("own_scenarios", scenarios(pair, proposer, every_option=every_option))
    return reference_subject(pair, name=name, proposer=proposer, parts=parts, **options)


def scenarios(pair: ProbePair, proposer: str, *, every_option: bool) -> tuple[Scenario, ...]:
    """The standard streams; exact scenarios narrow enough for a laptop: one with a bonus token, one for each option."""
    # After the prompts in which prompt lookup finds something, the target hardly ever ends.
    is_likely_to_end = proposer != "n-gram"
    prompts = pair.prompts if is_likely_to_end else pair.lookup_prompts
    ends = (pair.eos_token_id,)
    streams = default_scenarios(prompts, ends, max_new_tokens=_STREAM_TOKENS)
    narrow = SamplingParams(top_k=2)
    penalised = replace(narrow, repetition_penalty=1.5)
    few = _EXACT_OPTION_TOKENS
    exact = (
        ("temperature 0.6", "temperature", replace(narrow, temperature=0.6), (), few),
        ("top-p 0.7", "top_p", SamplingParams(top_k=3, top_p=0.7), (), few),
        ("repetition penalty 1.5", "repetition_penalty", penalised, (), few),
        ("end token", EOS_OPTION, SamplingParams(top_k=3), ends, few),
        # Last, because it has the most paths.
        ("top-k 2", "", narrow, (), _EXACT_TOKENS),
    )
    # An end token inside a draft of two is the shortest scenario with a rollback in the middle of the call.
    wanted = exact if every_option else exact[3:4] if is_likely_to_end else exact[-1:]
    return (
        *(scenario for scenario in streams if scenario.purpose is not Purpose.EXACT),
        *(Scenario(n, Purpose.EXACT, law, tuple(prompts[:1]), t, e, option) for n, option, law, e, t in wanted),
    )


def engine_fault(
    name: str,
    sentence: str,
    report: str,
    *,
    engine: type[ReferenceEngine] = ReferenceEngine,
    draft_side: type | None = None,
    verifier: Callable[[], Verifier] | None = None,
    **options: Any,
) -> Fault:
    """A fault whose subject is the reference engine on the default probe pair.

    engine: a subclass with the mistake. draft_side: a mixin for every proposer that runs a model. verifier: makes the
    broken one. options: as of reference_subject.
    """
    parts = Parts(engine_class=engine, proposer_mixin=draft_side, make_verifier=verifier)
    return Fault(name, sentence, report, lambda: probe_engine(name, parts=parts, **options))


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
