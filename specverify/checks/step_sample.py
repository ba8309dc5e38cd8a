"""Ordinary calls of a verify function, and the mode that needs nothing else: an e-process over what they emit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from specverify.checks import power
from specverify.checks.registry import CheckContext
from specverify.checks.step_enumerate import StepResult, judged
from specverify.checks.step_subject import Joint, Scenario, VerifySubject, crash, final_law
from specverify.core.types import VerifyInput
from specverify.exact.program import NativeSource, default_front_ends
from specverify.stats.budget import alarm_threshold
from specverify.stats.combine import average_log_e
from specverify.stats.step import StepProcess

# Calls of the first batch; later batches double what there is.
FIRST_BATCH = 512
# Calls after which a case that raised no suspicion is left; at a vocabulary of 3 they show a total variation of .09.
CALLS = 4096
# A suspicious process is continued, never restarted, up to this many times the usual calls.
SUSPICIOUS_LOG_E = 5.0
_CONTINUED = 16
# Drafts that get a process of their own where the function is not told the draft law.
_MOST_DRAFTS = 16
# Rows of one call where the function takes batches.
_ROWS = 16

Outcome = tuple[tuple[int, ...], tuple[int, ...], int | None]
"""Draft tokens, emitted tokens, number accepted where told."""


@dataclass(frozen=True)
class SampledStep:
    """What ordinary calls said of one scenario. log_limit: the evidence at which the claim falls. detectable: the total
    variation that a number of calls shows. suspect: the prefix with the most evidence of its own."""

    result: StepResult
    log_e: float
    log_limit: float
    detectable: Callable[[int], float]
    suspect: tuple[int, ...] = ()

    @property
    def is_refuted(self) -> bool:
        return self.log_e >= self.log_limit

    @property
    def detectable_tv(self) -> float:
        return self.detectable(self.result.num_samples)


def require_power(context: CheckContext, sampled: Sequence[SampledStep]) -> None:
    """Raises Inconclusive where no case was called often enough to show even a gross fault."""
    if sampled:
        best = min(sampled, key=lambda one: one.detectable_tv)
        power.require(context, best.result.num_samples, best.detectable, things="calls of a case")


class Caller:
    """Makes ordinary calls of one scenario: drafts drawn from the draft law, own seeds for every call."""

    def __init__(self, subject: VerifySubject, scenario: Scenario, generator: np.random.Generator) -> None:
        self.subject = subject
        self.scenario = scenario
        self.generator = generator
        self._cumulative: dict[tuple[int, ...], NDArray[np.float64]] = {}
        # Functions that draw from global generators find them here; each call moves them on.
        for front_end in default_front_ends():
            front_end.reseed(int(generator.integers(2**31)))

    def _drawn(self, prefix: tuple[int, ...]) -> int:
        """A draft token. By inverse CDF: numpy's choice would cost more than many a verify function."""
        if prefix not in self._cumulative:
            self._cumulative[prefix] = np.cumsum(self.scenario.draft(prefix))[:-1]
        return int(self._cumulative[prefix].searchsorted(self.generator.random(), side="right"))

    def outcomes(self, count: int) -> Iterator[Outcome]:
        """That many calls; as rows of few calls where the function takes batches.

        Raises SubjectCrashed where the function raises.
        """
        rows = _ROWS if self.subject.takes_batches and self.scenario.neighbour is None else 1
        while count > 0:
            yield from self._call(min(rows, count))
            count -= rows

    def _call(self, num_rows: int) -> list[Outcome]:
        scenario, generator = self.scenario, self.generator
        drafts: list[tuple[int, ...]] = []
        for _ in range(num_rows):
            tokens: tuple[int, ...] = ()
            for _ in range(scenario.num_drawn):
                tokens += (self._drawn(tokens),)
            drafts.append(tokens)
        cases = scenario.batch(drafts[0]) if num_rows == 1 else [scenario.case(tokens) for tokens in drafts]
        try:
            outputs = self.subject.call_rows(cases, NativeSource(int(generator.integers(2**62))))
        except Exception as error:
            raise crash(self.subject, scenario, error) from error
        if scenario.neighbour is not None:
            cases, outputs = [cases[scenario.row]], [outputs[scenario.row]]
        return [
            (tokens, self._completed(case, output.token_ids), output.num_accepted)
            for tokens, case, output in zip(drafts, cases, outputs, strict=True)
        ]

    def _completed(self, case: VerifyInput, emitted: tuple[int, ...]) -> tuple[int, ...]:
        if not self.subject.decides_only:
            return emitted
        law = final_law(case, len(emitted))
        return (*emitted, int(self.generator.choice(len(law), p=law)))


def sample_step(
    subject: VerifySubject, scenario: Scenario, generator: np.random.Generator, *, alpha: float, effort: float
) -> SampledStep:
    """Calls in doubling batches until the claim falls, or until the usual number shows no suspicion.

    alpha: probability of a false alarm. effort: scales the number of calls.
    """
    caller = Caller(subject, scenario, generator)
    limit = alarm_threshold(alpha)
    seen: Counter[Outcome] = Counter()
    evidence = _Evidence(scenario)
    usual = int(CALLS * effort)
    most = usual
    batch = min(FIRST_BATCH, usual)
    while True:
        new = Counter(caller.outcomes(batch))
        seen += new
        evidence.update(new)
        total = seen.total()
        if evidence.log_e >= limit:
            break
        if evidence.log_e > SUSPICIOUS_LOG_E:
            most = _CONTINUED * usual
        if total >= most:
            break
        batch = min(total, most - total)
    joint: Joint = {outcome: count / total for outcome, count in seen.items()}
    result = judged(scenario, joint, num_samples=total)
    return SampledStep(result, evidence.log_e, limit, partial(evidence.detectable_tv, alpha), evidence.suspect())


class _Evidence:
    """One process for all calls; where no draft law is told, also one for each of the likeliest drafts."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        draft = scenario.draft if scenario.is_told and scenario.is_chain else None
        self._whole = StepProcess(scenario.target, draft, scenario.depth)
        self._by_draft: dict[tuple[int, ...], StepProcess] = {}

    def update(self, outcomes: Counter[Outcome]) -> None:
        emitted: Counter[tuple[int, ...]] = Counter()
        by_draft: dict[tuple[int, ...], Counter[tuple[int, ...]]] = {}
        for (drafted, tokens, _), count in outcomes.items():
            # More tokens than a call can emit prove nothing about the law; the form check reports them.
            tokens = tokens[: self._scenario.depth + 1]
            emitted[tokens] += count
            by_draft.setdefault(drafted, Counter())[tokens] += count
        self._whole.update(emitted)
        if self._scenario.is_told:
            return
        for drafted, tokens_seen in by_draft.items():
            if drafted not in self._by_draft:
                if len(self._by_draft) >= _MOST_DRAFTS:
                    continue
                self._by_draft[drafted] = StepProcess(self._scenario.target, None, self._scenario.depth)
            self._by_draft[drafted].update(tokens_seen)

    @property
    def log_e(self) -> float:
        return float(average_log_e([self._whole.log_e, *(process.log_e for process in self._by_draft.values())]))

    def suspect(self) -> tuple[int, ...]:
        found = self._whole.suspects(1)
        return found[0][0] if found else ()

    def detectable_tv(self, alpha: float, num_calls: int) -> float:
        return self._whole.detectable_tv(alpha / (1 + len(self._by_draft)), num_calls)
