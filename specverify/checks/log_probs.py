"""The log-probabilities that an engine reports of its tokens: as many as there are tokens, and the right ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.checks import ambient, evidence, noise, places, samples
from specverify.checks.evidence import FILTERED, Run
from specverify.checks.log_prob_findings import count_finding, value_finding
from specverify.checks.log_prob_readings import CONVENTIONS, PLAIN, Held, Wrong, is_complete, read
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind
from specverify.core.types import Trace
from specverify.trace.pipeline import common_length

# What is reported has been through float32, and perhaps through a few decimals of text.
_LEAST_ALLOWANCE = 1e-3
# One computation against another, in whose weights the dtype rounds too: .15 was seen in bfloat16 on a probe pair.
_ROUNDINGS = 4.0
# Tokens farther below the best one than this move more in logarithm, and decide nothing.
_TAIL = 10.0
# Filters move every value of a token: a few tokens tell the conventions apart.
_NUM_FILTERED = 2


@check(
    "logprobs.of-emitted-tokens",
    claim="Every emitted token comes with its log-probability under the target, with speculation as without.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE, Capability.LOGPROBS},
    exercised_by=(Exercised("log-probs"),),
    catches=(
        "log-probs-of-row-late",
        "log-probs-zero-when-accepted",
        "log-probs-of-drafted-tokens",
        "log-probs-of-draft-model",
        "log-probs-processed-when-speculating",
    ),
    source="ggml-org/llama.cpp#27972: zeros for accepted tokens; vllm-project/vllm#34497: values of wrong rows; "
    "sgl-project/sglang#26163: fewer entries than tokens",
)
def of_emitted_tokens(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """The standard runs with speculation and the plain one; where filters are honoured, a few requests with temperature
    and top-k, plain and with speculation.

    Each trace has as many entries as tokens. Each entry is held against the target's law (the probe's float64 oracle,
    or the engine's own scores), read in one of the ways that servers have: of the logits as they are, at the
    temperature asked for, or of the law that the token was drawn from; greedily that may be certainty. The engine is
    free to choose, once. Where nobody knows the law, greedy tokens with speculation are held against plain decoding.
    Inconclusive where nothing was drafted or accepted: log-probabilities that switch speculation off say nothing of it.
    """
    runs = [*_plain_runs(subject, context), *_speculated_runs(subject, context)]
    yield from count_finding(runs)
    scorer = samples.Scorer(subject)
    has_laws = scorer.has_oracle or Capability.SCORE in subject.capabilities
    allowed = max(_LEAST_ALLOWANCE, _ROUNDINGS * noise.log_prob_noise(subject, context))
    held = list(_held_to_laws(runs, scorer, allowed) if has_laws else _held_to_plain(runs))
    context.exercised("log-probs", sum(one.num_judged for one in held))
    wrong = {
        name: [Wrong(one, index, float(one.wanted[name][index])) for one in held for index in one.wrong(name, allowed)]
        for name in (CONVENTIONS if has_laws else (PLAIN,))
    }
    # Plain decoding says which convention is the engine's: what speculation does is judged by it.
    convention = min(wrong, key=lambda name: (sum(not one.held.run.drafter for one in wrong[name]), len(wrong[name])))
    context.figures.update(allowed=allowed, convention=convention, wrong=len(wrong[convention]))
    if wrong[convention]:
        yield value_finding(wrong[convention], held, convention, scorer, allowed)
    accepted = _accepted_drafts(runs)
    found = (
        f"{CONVENTIONS[convention].text}, by {scorer.source}"
        if has_laws
        else "greedily the same as without speculation, nobody knows the target's law"
    )
    context.worth(
        f"{context.counters['log-probs']:,} tokens, {accepted}: {found}; one off by more than {allowed:.1g} would have "
        f"been caught{noise.assumed_text(subject)}"
    )


def _plain_runs(subject: Any, context: CheckContext) -> Iterator[Run]:
    yield replace(evidence.plain_run(subject, context), drafter="")
    yield from _filtered_run(subject, context, speculate=False)


def _speculated_runs(subject: Any, context: CheckContext) -> Iterator[Run]:
    yield from evidence.speculated_runs(subject, context)
    yield from _filtered_run(subject, context, speculate=True)


def _filtered_run(subject: Any, context: CheckContext, *, speculate: bool) -> Iterator[Run]:
    """Sampled at temperature 0.7 with top-k 5, if the engine honours that and is not slow: there conventions differ."""
    if Capability.SAMPLING not in subject.capabilities or getattr(subject, "is_slow", False):
        return
    requests = evidence.standard_requests(subject, context, FILTERED)[:_NUM_FILTERED]
    with ambient.repeatable(subject, context, "log-probs", int(speculate)):
        traces = evidence.generate(subject, requests, speculate=speculate)
    yield Run("own" if speculate else "", FILTERED, traces, subject)


def _held_to_laws(runs: Sequence[Run], scorer: samples.Scorer, allowed: float) -> Iterator[Held]:
    """Every trace beside what each convention wants of it. A text that several runs share is scored once."""
    by_text: dict[Any, list[tuple[Run, Trace]]] = {}
    for run in runs:
        for trace in run.traces:
            if trace.token_ids and is_complete(trace):
                by_text.setdefault((trace.request.prompt_token_ids, trace.token_ids), []).append((run, trace))
    # Rows over a real vocabulary are large: one text at a time.
    size = len(by_text) if scorer.has_oracle else 1
    texts = list(by_text.values())
    for first in range(0, len(texts), size):
        chunk = texts[first : first + size]
        scored = scorer.logits([pairs[0][1] for pairs in chunk])
        for pairs, logits in zip(chunk, scored, strict=True):
            yield from (_held(run, trace, logits, allowed) for run, trace in pairs)


def _held(run: Run, trace: Trace, logits: NDArray[np.float64], allowed: float) -> Held:
    raw = read(logits, run.sampling, "raw", allowed)
    is_likely = _of_tokens(raw - raw.max(axis=1, keepdims=True), trace) >= -_TAIL
    # Few readings, which conventions share.
    values = {
        reading: np.where(is_likely, _of_tokens(read(logits, run.sampling, reading, allowed), trace), np.nan)
        for reading in {one.reading(run.sampling) for one in CONVENTIONS.values()}
    }
    return Held(run, trace, {name: values[one.reading(run.sampling)] for name, one in CONVENTIONS.items()})


def _of_tokens(rows: NDArray[np.float64], trace: Trace) -> NDArray[np.float64]:
    """The entry of each token in its row; NaN, which nothing is held against, for a token outside the vocabulary."""
    tokens = np.asarray(trace.token_ids, dtype=np.int64)
    is_inside = (tokens >= 0) & (tokens < rows.shape[1])
    picked = rows[np.arange(len(tokens)), np.where(is_inside, tokens, 0)]
    return np.where(is_inside, picked, np.nan)


def _held_to_plain(runs: Sequence[Run]) -> Iterator[Held]:
    """Greedy traces with speculation, as far as their tokens are those of plain decoding.

    An engine that reports certainty of every greedy token says nothing by it: such values are held against nothing.
    """
    plain = {trace.request.prompt_token_ids: trace for trace in runs[0].traces if is_complete(trace)}
    for run in runs[1:]:
        for trace in run.traces if run.drafter and run.sampling.is_greedy else ():
            other = plain.get(trace.request.prompt_token_ids)
            if not is_complete(trace) or other is None or not any(other.log_probs or ()):
                continue
            shared = common_length(trace.token_ids, other.token_ids)
            wanted = np.full(len(trace.token_ids), np.nan)
            wanted[:shared] = (other.log_probs or ())[:shared]
            yield Held(run, trace, {PLAIN: wanted})


def _accepted_drafts(runs: Sequence[Run]) -> str:
    """For the pass line: how many draft tokens were accepted. Raises Inconclusive where they say there were none."""
    traces = [trace for run in runs if run.drafter for trace in run.traces]
    if not any(map(places.tells_drafts, traces)):
        return "whether drafted is not recorded"
    if not any(map(places.num_drafted, traces)):
        raise Inconclusive(
            f"nothing was drafted in {len(traces)} requests: do log-probabilities switch speculation off here?"
        )
    num_accepted = sum(map(places.num_accepted, traces))
    if not num_accepted:
        raise Inconclusive(f"no draft token was accepted in {len(traces)} requests, so none of their values was seen")
    return f"{num_accepted:,} of them accepted draft tokens"
