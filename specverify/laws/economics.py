"""When speculation pays: tokens per target pass, speed-up, best number of draft tokens. Closed forms for chains.

The model: each draft token is accepted with the same probability `acceptance`, independently, given that those before
it were; the first rejection ends the round; every round adds one final token. Costs are in units of one target pass:
a round of k draft tokens costs 1 + fixed_cost + k * draft_cost, plain decoding 1 a token. draft_cost includes what one
more position adds to the target pass, next to nothing while the pass waits for memory.

Source: Leviathan et al. 2023, arXiv 2211.17192, section 3 (equation 1, theorem 3.8, corollary 3.9).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specverify.core.errors import UsageError


@dataclass(frozen=True)
class DraftSource:
    """A way to draft, with typical figures to start from. They are illustrations: measure your own.

    acceptance: probability that a draft token is accepted; draft_cost: of one draft token, in target passes.
    """

    name: str
    label: str
    acceptance: float
    draft_cost: float
    note: str


SOURCES = (
    DraftSource(
        "draft-model", "draft model", 0.75, 0.12,
        "A small model of the same family. Accepted often, but every draft token is a pass of its own, "
        "and a second KV cache has to be kept and rolled back.",
    ),
    DraftSource(
        "n-gram", "n-gram lookup", 0.25, 0.02,
        "Copies what followed the same words earlier in the text. No model, next to no cost. Accepted rarely in "
        "open-ended writing, very often where the output repeats the input: summaries, edits, retrieval.",
    ),
    DraftSource(
        "eagle", "EAGLE head", 0.8, 0.05,
        "A small head on the target's own hidden states. Cheap and accepted often, but trained for one target.",
    ),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class RoundLaw:
    """Law of the number of tokens that one target pass commits.

    probabilities: [n]; entry i is the probability of i + 1 tokens.
    """

    probabilities: NDArray[np.float64]

    @property
    def mean(self) -> float:
        return float(self.probabilities @ self._tokens)

    @property
    def variance(self) -> float:
        # Around the mean, not E[T^2] - E[T]^2: the difference of two near numbers loses digits near acceptance 1.
        return float(self.probabilities @ (self._tokens - self.mean) ** 2)

    def spread(self, num_rounds: int) -> float:
        """Standard deviation of the mean over num_rounds independent rounds."""
        return math.sqrt(self.variance / num_rounds)

    @property
    def _tokens(self) -> NDArray[np.float64]:
        return np.arange(1.0, len(self.probabilities) + 1.0)


class Optimum(NamedTuple):
    """The best number of draft tokens, 0 where plain decoding is fastest, and the speed-up it gives."""

    num_draft_tokens: int
    speedup: float


class Acceptance(NamedTuple):
    """Acceptance measured over num_tests draft tokens that were really judged, with its standard error."""

    value: float
    standard_error: float
    num_tests: int


def expected_tokens(acceptance: float, num_draft_tokens: int) -> float:
    """Tokens that one target pass commits on average: (1 - a^(k+1)) / (1 - a), and k + 1 at a = 1."""
    _check(acceptance, num_draft_tokens)
    if acceptance == 1.0:
        return num_draft_tokens + 1.0
    if acceptance == 0.0:
        return 1.0
    return -math.expm1((num_draft_tokens + 1) * math.log(acceptance)) / (1.0 - acceptance)


def round_law(acceptance: float, num_draft_tokens: int) -> RoundLaw:
    """Law of the tokens of one round: j with a^(j-1) (1 - a) for j up to k, k + 1 with a^k.

    Its variance is (a - (2k + 1) a^(k+1) (1 - a) - a^(2k+2)) / (1 - a)^2.
    """
    _check(acceptance, num_draft_tokens)
    reached = acceptance ** np.arange(num_draft_tokens + 1.0)
    return RoundLaw(reached - np.append(reached[1:], 0.0))


def speedup(acceptance: float, num_draft_tokens: int, *, draft_cost: float, fixed_cost: float = 0.0) -> float:
    """Tokens per unit of time against plain decoding, on average."""
    cost = round_cost(num_draft_tokens, draft_cost=draft_cost, fixed_cost=fixed_cost)
    return expected_tokens(acceptance, num_draft_tokens) / cost


def round_cost(num_draft_tokens: int, *, draft_cost: float, fixed_cost: float = 0.0) -> float:
    """What one round costs, in target passes. fixed_cost: whatever does not depend on the number of draft tokens."""
    for name, cost in (("draft_cost", draft_cost), ("fixed_cost", fixed_cost)):
        if not 0.0 <= cost < math.inf:
            raise UsageError(f"{name} is {cost:g}; give its share of one target pass, 0 or more")
    return 1.0 + fixed_cost + num_draft_tokens * draft_cost


def speedup_from_accepted(mean_accepted: float, draft_share: float) -> float:
    """(mean accepted + 1) / (1 + draft share): the same from what was measured instead of from the acceptance.

    mean_accepted: draft tokens accepted per round. draft_share: cost of a round's drafting, in target passes.
    """
    if mean_accepted < 0.0 or draft_share < 0.0:
        raise UsageError(f"mean_accepted is {mean_accepted:g}, draft_share {draft_share:g}; give numbers of 0 or more")
    return (mean_accepted + 1.0) / (1.0 + draft_share)


def optimum(acceptance: float, *, draft_cost: float, fixed_cost: float = 0.0, max_draft_tokens: int = 64) -> Optimum:
    """The num_draft_tokens up to max_draft_tokens with the largest speed-up; the smaller one on a tie.

    There is one interior maximum: expected tokens are concave in k and the cost is a line. Where drafting is free,
    more is always better and the limit is returned.
    """
    best = Optimum(0, 1.0)
    for k in range(1, max_draft_tokens + 1):
        gained = speedup(acceptance, k, draft_cost=draft_cost, fixed_cost=fixed_cost)
        if gained > best.speedup:
            best = Optimum(k, gained)
    return best


def required_acceptance(
    wanted_speedup: float, num_draft_tokens: int, *, draft_cost: float, fixed_cost: float = 0.0
) -> float | None:
    """The acceptance that gives this speed-up; None where even accepting everything does not.

    With wanted_speedup 1 this is the break-even: below it speculation is slower than plain decoding.
    """
    wanted = wanted_speedup * round_cost(num_draft_tokens, draft_cost=draft_cost, fixed_cost=fixed_cost)
    if wanted > expected_tokens(1.0, num_draft_tokens):
        return None
    low, high = 0.0, 1.0
    # Expected tokens grow with the acceptance; 60 halvings reach the last digit of a double.
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if expected_tokens(middle, num_draft_tokens) < wanted else (low, middle)
    return high


def break_even_acceptance(num_draft_tokens: int, *, draft_cost: float, fixed_cost: float = 0.0) -> float | None:
    """The acceptance at which num_draft_tokens neither gain nor cost; None where they always cost."""
    return required_acceptance(1.0, num_draft_tokens, draft_cost=draft_cost, fixed_cost=fixed_cost)


def measured_acceptance(num_accepted: Sequence[int], num_draft_tokens: Sequence[int]) -> Acceptance:
    """The most likely acceptance given these rounds: accepted over judged. Both: [rounds].

    A rejection ends its round, so the tokens behind it were not judged and do not count. accepted / proposed, which
    many engines report, is smaller and depends on k. Raises UsageError where nothing was judged.
    """
    accepted, proposed = np.asarray(num_accepted, dtype=np.int64), np.asarray(num_draft_tokens, dtype=np.int64)
    if accepted.shape != proposed.shape or (accepted < 0).any() or (accepted > proposed).any():
        raise UsageError("num_accepted must be between 0 and num_draft_tokens in every round, and both equally long")
    num_tests = int(accepted.sum() + (accepted < proposed).sum())
    if num_tests == 0:
        raise UsageError("no draft token was judged in these rounds; give rounds that drafted something")
    value = float(accepted.sum()) / num_tests
    return Acceptance(value, math.sqrt(value * (1.0 - value) / num_tests), num_tests)


def request_rounds(law: RoundLaw, num_tokens: int) -> tuple[float, float]:
    """Mean and standard deviation of the rounds that it takes to commit num_tokens.

    Plain decoding always takes num_tokens passes; this spread is the price in latency variance. Exact, by following
    the law of the tokens committed from round to round.
    """
    waiting = np.zeros(num_tokens)
    waiting[0] = 1.0
    still_running = []
    for _ in range(num_tokens):
        still_running.append(waiting.sum())
        waiting = np.concatenate(([0.0], np.convolve(waiting, law.probabilities)))[:num_tokens]
    tail = np.array(still_running)
    mean = float(tail.sum())
    second_moment = float(tail @ (2.0 * np.arange(num_tokens) + 1.0))
    return mean, math.sqrt(max(second_moment - mean**2, 0.0))


def request_speedup(decoding_speedup: float, num_tokens: int, *, fixed_cost: float) -> float:
    """Speed-up of a whole request with costs that speculation does not touch: prompt, start, draft prefill.

    fixed_cost: those costs in plain decoding steps. Why short outputs gain less.
    """
    return (fixed_cost + num_tokens) / (fixed_cost + num_tokens / decoding_speedup)


def pass_cost(num_positions: float, *, ridge: float) -> float:
    """Roofline cost of one target pass: flat while it waits for weights, then in proportion to its positions.

    ridge: positions of a pass at which arithmetic takes as long as reading the weights.
    """
    return max(1.0, num_positions / ridge)


def batch_speedup(
    acceptance: float, num_draft_tokens: int, *, batch_size: int, ridge: float, draft_cost: float
) -> float:
    """Speed-up at a batch size: every drafted position of every row takes its share of the same arithmetic.

    draft_cost: of one draft token for the whole batch, in target passes of batch size 1.
    """
    plain = pass_cost(batch_size, ridge=ridge)
    verify = pass_cost(batch_size * (num_draft_tokens + 1), ridge=ridge)
    drafting = num_draft_tokens * draft_cost * plain
    return expected_tokens(acceptance, num_draft_tokens) * plain / (verify + drafting)


def simulated_rounds(
    acceptance: float, num_draft_tokens: int, *, num_rounds: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Tokens committed by each of num_rounds rounds: a coin for every draft token, up to the first rejection."""
    _check(acceptance, num_draft_tokens)
    is_accepted = rng.random((num_rounds, num_draft_tokens)) < acceptance
    tokens: NDArray[np.int64] = 1 + np.cumprod(is_accepted, axis=1, dtype=np.int64).sum(axis=1)
    return tokens


def _check(acceptance: float, num_draft_tokens: int) -> None:
    if not 0.0 <= acceptance <= 1.0:
        raise UsageError(f"acceptance is {acceptance:g}; give a probability, between 0 and 1")
    if num_draft_tokens < 0:
        raise UsageError(f"num_draft_tokens is {num_draft_tokens}; give 0 or more")
