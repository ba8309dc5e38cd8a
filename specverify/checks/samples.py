"""Sampled tokens with the laws they should have been drawn from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.checks import ambient, evidence, noise
from specverify.checks.recorded_laws import recorded_draft_laws
from specverify.checks.registry import CheckContext, Inconclusive
from specverify.checks.slots import slots_of
from specverify.core.capabilities import Capability
from specverify.core.scenario import EOS_OPTION, Scenario
from specverify.core.types import SamplingParams, Trace
from specverify.laws.sampling import laws_along, processed_logits, softmax
from specverify.stats.pit import PitStream

Array = NDArray[np.float64]

# A filter's edge (top-p, min-p, top-k) is a matter of rounding for tokens this close to it, or within twice the
# rounding of the engine's dtype: such a token is not called impossible.
_EDGE = 1e-3
# Proposers that draw every draft token from the probe's draft model as it is.
_DRAWS_FROM_DRAFT_MODEL = ("draft-model", "tree", "tree-replacement")


@dataclass(frozen=True, eq=False)
class ScoredTokens:
    """Emitted tokens of some traces in the order of time. laws: [n, vocab]; slots: place in the verify call.

    draft_laws, previous_laws: as PitStream wants them, or None. impossible: tokens that no rounding makes possible,
    each as (trace, index of the token).
    """

    tokens: NDArray[np.int64]
    laws: Array
    slots: NDArray[np.int64]
    draft_laws: Array | None
    previous_laws: Array
    impossible: tuple[tuple[Trace, int], ...]


class Scorer:
    """Knows the target's law after any text: from the probe's oracle, or from the engine's own score()."""

    def __init__(self, subject: Any) -> None:
        self.subject = subject
        self.checkpoint: Any = getattr(subject, "checkpoint", None)
        self.has_oracle = Capability.LOAD_CHECKPOINT in subject.capabilities and self.checkpoint is not None
        self.edge = max(_EDGE, 2.0 * noise.floor(noise.LOG_PROB_FLOOR, subject))
        self.has_draft_oracle = self.has_oracle and getattr(subject, "proposer", "") in _DRAWS_FROM_DRAFT_MODEL
        self._draft_oracle = self._make_draft_oracle()

    @property
    def source(self) -> str:
        return "the probe's float64 oracle" if self.has_oracle else "the engine's own scores"

    def require_laws(self) -> None:
        """Raises Inconclusive where nobody knows the target's laws, and says what is missing."""
        if self.has_oracle or Capability.SCORE in self.subject.capabilities:
            return
        if Capability.LOAD_CHECKPOINT in self.subject.capabilities:
            raise Inconclusive("LOAD_CHECKPOINT is declared, but `checkpoint`, the probe pair that was loaded, is None")
        raise Inconclusive("nobody knows the target's laws: load a probe checkpoint, or declare SCORE")

    def can_score(self, scenario: Scenario) -> bool:
        """Penalties act on raw logits, which log-probabilities do not reveal."""
        can_score = Capability.SCORE in self.subject.capabilities and not scenario.sampling.has_penalties
        return self.has_oracle or can_score

    def logits(self, traces: Sequence[Trace]) -> list[Array]:
        """Target logits before each new token of each trace, [tokens, vocab]; log-probabilities will do."""
        if self.has_oracle:
            return _oracle_logits(self.checkpoint.target_oracle, traces)
        return [
            np.asarray(self.subject.score(trace.request.prompt_token_ids, trace.token_ids), dtype=np.float64)
            for trace in traces
        ]

    def draft_logits(self, traces: Sequence[Trace]) -> list[Array] | None:
        return None if self._draft_oracle is None else _oracle_logits(self._draft_oracle, traces)

    def _make_draft_oracle(self) -> Any:
        """Who knows the draft law after any text: the draft model, or the first layers of the target."""
        if self.has_draft_oracle:
            return self.checkpoint.draft_oracle
        if self.has_oracle and getattr(self.subject, "proposer", "") == "early-exit":
            layers = getattr(self.subject, "early_exit_layer", None)
            return None if layers is None else self.checkpoint.target_oracle.early_exit(layers)
        return None

    def _draft_laws(self, traces: Sequence[Trace], vocab_size: int) -> Array | None:
        """The drafter's laws [tokens, vocab] after the text before each token: by the oracle, else as recorded."""
        draft_logits = self.draft_logits(traces)
        if draft_logits is not None:
            laws = [laws_of(rows, one, one.request.sampling) for rows, one in zip(draft_logits, traces, strict=True)]
            return np.concatenate(laws)
        if Capability.DRAFT_PROBS in self.subject.capabilities:
            return recorded_draft_laws(traces, vocab_size)
        return None

    def score(self, traces: Sequence[Trace], *, num_draft_tokens: int) -> ScoredTokens:
        """The new tokens of these traces with their laws; traces without tokens are left out."""
        traces = [trace for trace in traces if trace.token_ids]
        all_logits = self.logits(traces)
        laws = [
            laws_of(logits, trace, trace.request.sampling) for logits, trace in zip(all_logits, traces, strict=True)
        ]
        vocab_size = laws[0].shape[1]
        previous = [np.vstack([np.full((1, vocab_size), np.nan), rows[:-1]]) for rows in laws]
        impossible = [
            (trace, index)
            for trace, rows, logits in zip(traces, laws, all_logits, strict=True)
            for index, token in enumerate(trace.token_ids)
            if not 0 <= token < vocab_size
            or (rows[index, token] == 0.0 and not _is_at_the_edge(logits[index], token, trace, index, self.edge))
        ]
        return ScoredTokens(
            tokens=np.concatenate([np.asarray(trace.token_ids, dtype=np.int64) for trace in traces]),
            laws=np.concatenate(laws),
            slots=np.concatenate([slots_of(trace, num_draft_tokens) for trace in traces]),
            draft_laws=self._draft_laws(traces, vocab_size),
            previous_laws=np.concatenate(previous),
            impossible=tuple(impossible),
        )


def add_to_stream(stream: PitStream, scored: ScoredTokens, rng: np.random.Generator) -> None:
    """Adds scored tokens; those outside the vocabulary are left to `impossible`."""
    inside = (scored.tokens >= 0) & (scored.tokens < scored.laws.shape[1])
    stream.update(
        scored.tokens[inside],
        scored.laws[inside],
        rng=rng,
        slots=scored.slots[inside],
        draft_laws=None if scored.draft_laws is None else scored.draft_laws[inside],
        previous_laws=scored.previous_laws[inside],
    )


def _oracle_logits(oracle: Any, traces: Sequence[Trace]) -> list[Array]:
    texts = [(*trace.request.prompt_token_ids, *trace.token_ids[:-1]) for trace in traces]
    rows = oracle.batch_logits(texts)
    return [logits[len(t.request.prompt_token_ids) - 1 :] for logits, t in zip(rows, traces, strict=True)]


def laws_of(logits: Array, trace: Trace, sampling: SamplingParams) -> Array:
    """Laws [tokens, vocab] of the trace's tokens under these sampling parameters."""
    return laws_along(logits, sampling, trace.request.prompt_token_ids, trace.token_ids)


def _is_at_the_edge(logits: Array, token: int, trace: Trace, index: int, edge: float) -> bool:
    """Whether slightly wider filters let the token in: then float32 and float64 may rightly disagree about it."""
    sampling = trace.request.sampling
    values = processed_logits(
        logits,
        replace(sampling, top_k=0, top_p=1.0, min_p=0.0),
        prompt_token_ids=trace.request.prompt_token_ids,
        output_token_ids=trace.token_ids[:index],
    )
    if sampling.top_k:
        threshold = np.partition(values, -min(sampling.top_k, len(values)))[-min(sampling.top_k, len(values))]
        values = np.where(values < threshold - edge, -np.inf, values)
    law = softmax(values)
    # Which of two nearly equal tokens comes first is rounding too: only clearly likelier ones count as before it.
    mass_before = float(law[law > law[token] * (1.0 + edge)].sum())
    is_inside_top_p = sampling.top_p >= 1.0 or mass_before < sampling.top_p + edge
    is_inside_min_p = law[token] >= sampling.min_p * law.max() * (1.0 - edge)
    return bool(law[token] > 0.0 and is_inside_top_p and is_inside_min_p)


def rounds(
    subject: Any,
    scenario: Scenario,
    context: CheckContext,
    *,
    name: str,
    speculate: bool = True,
    most: int = 1024,
    first_kind: int = 0,
) -> Iterator[tuple[Trace, ...]]:
    """Sampled traces of a scenario, round after round, without end; each round is one generate call of at most `most`
    requests. Kinds of rounds (without seeds, mixed, with seeds) take turns, from number first_kind on.
    """
    engine = evidence.quiet(subject)
    is_batched = Capability.BATCH in subject.capabilities
    size = min(int(getattr(subject, "batch_size", 64 if is_batched else 8)), most)
    # Unseeded requests draw from the engine's own randomness, seeded ones from streams of their own: both must follow
    # the law, by themselves and side by side; a mixed round has few seeded ones, since `seed.repeats` sees to those.
    kinds: tuple[tuple[bool, ...], ...] = ((False,), (True, False, False, False), (True,))
    if needs_seed(subject) or Capability.SEED not in subject.capabilities:
        kinds = ((needs_seed(subject),),)
    number = 0
    for kind in itertools.islice(itertools.cycle(kinds), first_kind % len(kinds), None):
        requests = []
        for _ in range(size):
            is_seeded = kind[number % len(kind)]
            seed = context.streams.integer(name, scenario.name, number) % 2**31 if is_seeded else None
            requests.append(scenario.request(number, seed=seed))
            number += 1
        with ambient.repeatable(subject, context, name, scenario.name, number):
            traces = evidence.generate(engine, requests, speculate=speculate)
        yield traces


def needs_seed(subject: Any) -> bool:
    """Whether sampling must hand out seeds: engines outside this process, whose generators nobody here can seed."""
    return Capability.SEED in subject.capabilities and Capability.IN_PROCESS_RANDOMNESS not in subject.capabilities


def option_effect(scorer: Scorer, scenario: Scenario, traces: Sequence[Trace]) -> float:
    """By how much the scenario's option moves the target's laws, averaged over the tokens; share of ended outputs
    where the option is the end token. An option without effect was not tested.
    """
    traces = [trace for trace in traces if trace.token_ids][:8]
    if scenario.option == EOS_OPTION:
        ended = [trace.token_ids[-1] in scenario.eos_token_ids for trace in traces]
        return sum(ended) / max(1, len(ended))
    without = scenario.without_option()
    if without is None:
        return 1.0
    total, count = 0.0, 0
    for trace, logits in zip(traces, scorer.logits(traces), strict=True):
        gap = laws_of(logits, trace, scenario.sampling) - laws_of(logits, trace, without.sampling)
        total += 0.5 * float(np.abs(gap).sum())
        count += len(gap)
    return total / max(1, count)
