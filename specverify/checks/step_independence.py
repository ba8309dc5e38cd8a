"""Independence of the random draws: within a call, from one call to the next, and between the rows of a batch."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from specverify.checks import power
from specverify.checks.registry import CheckContext, Exercised, check
from specverify.checks.step_enumerate import CROSS_CHECK_CALLS, MAX_SECONDS, crash_or_refusal
from specverify.checks.step_explain import three_digits
from specverify.checks.step_precision import TOLERANCES
from specverify.checks.step_scenarios import adapted, independence_scenario
from specverify.checks.step_subject import Scenario, VerifySubject, crash
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.exact.choices import EnumerationBudget
from specverify.exact.errors import NotEnumerable, ReusedRandomness
from specverify.exact.law import enumerate_law
from specverify.exact.program import NativeSource, RandomSource, Shape
from specverify.laws.sequence import total_variation
from specverify.stats.budget import alarm_threshold
from specverify.stats.design import pair_detectable_tv
from specverify.stats.pair import PairBetting

# Pairs of ordinary calls where the joint law cannot be enumerated; a shared uniform shows within a few hundred.
_PAIRS = 3000
_SHOWN = 5

Emitted = tuple[int, ...]


@check(
    "random.draws-independent",
    claim="The draws of a verify step are independent: within a call, of the next call, and of other rows.",
    needs={Capability.VERIFY},
    kind=Kind.STATISTICAL,
    exercised_by=Exercised("random-pairs"),
    catches=("verify-noise-reused", "verify-uniforms-shared-by-rows"),
    source="flashinfer-ai/flashinfer#424 (one uniform for accept test and residual draw); "
    "NVIDIA/TensorRT-LLM#17599 (one stream for all requests)",
)  # fmt: skip
def draws_independent(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Two calls in a row with one generator, and two rows of one batch, must not know of each other.

    The joint law of the two outputs is enumerated and compared with the product of its own marginals, so that a
    function whose law is wrong for another reason is not blamed here as well. Noise that decides two things within a
    call shows in the enumeration itself. Where nothing can be enumerated, a bet is placed on telling true pairs from
    shuffled ones.
    """
    scenario = adapted(independence_scenario(), subject)
    sampled: list[tuple[int, Callable[[int], float]]] = []
    for is_batch in (False, True) if subject.takes_batches else (False,):
        pair = _Pair(subject, scenario, is_batch)
        try:
            joint = _enumerated(pair)
        except ReusedRandomness as error:
            context.exercised("random-pairs")
            yield _reuse_finding(error)
            return
        except NotEnumerable as error:
            yield from _sampled(pair, str(error), context, sampled)
            continue
        yield from _judged(pair, joint, context)
    for num_pairs, detectable in sampled:
        power.require(context, num_pairs, detectable, things="pairs of outputs")


class _Lasting:
    """A source whose generators last from call to call, as a program's own do."""

    def __init__(self, source: RandomSource) -> None:
        self._source = source
        self._made: dict[str, Any] = {}
        self._num_seeds = 0

    def _once(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = getattr(self._source, name)()
        return self._made[name]

    def choose(self, law: Sequence[float] | NDArray[np.float64]) -> int:
        return self._source.choose(law)

    def numpy_generator(self) -> np.random.Generator:
        return cast("np.random.Generator", self._once("numpy_generator"))

    def torch_generator(self) -> torch.Generator:
        return cast("torch.Generator", self._once("torch_generator"))

    def python_random(self) -> random.Random:
        return cast("random.Random", self._once("python_random"))

    def uniforms(self, shape: Shape) -> NDArray[np.float64]:
        return self._source.uniforms(shape)

    def torch_uniforms(self, shape: Shape) -> torch.Tensor:
        return self._source.torch_uniforms(shape)

    def next_seed(self) -> int:
        """Callers give every call a seed of its own."""
        self._num_seeds += 1
        return 1000 + self._num_seeds


@dataclass(frozen=True)
class _Pair:
    """Two outputs for one case that must not know of each other: of two calls in a row, or of two rows of a batch."""

    subject: VerifySubject
    scenario: Scenario
    is_batch: bool

    @property
    def what(self) -> str:
        return "two rows of one batch" if self.is_batch else "two calls in a row"

    @property
    def drafts(self) -> tuple[int, ...]:
        """Draft tokens that are as often accepted as not."""
        return () if self.scenario.drafts_itself else (int(np.argmax(self.scenario.draft(()))),)

    def __call__(self, source: RandomSource) -> tuple[Any, Any]:
        case = self.scenario.case(self.drafts)
        if self.is_batch:
            return self.subject.parts([case, case], source), ()
        lasting = _Lasting(source)
        return self.subject.parts([case], lasting), self.subject.parts([case], lasting)

    def read(self, output: Any) -> tuple[Emitted, Emitted]:
        case = self.scenario.case(self.drafts)
        if self.is_batch:
            one, other = self.subject.read(output[0], [case, case])
        else:
            (one,), (other,) = (self.subject.read(parts, [case]) for parts in output)
        return one.token_ids, other.token_ids

    def sampled(self, generator: np.random.Generator) -> tuple[Emitted, Emitted]:
        try:
            return self.read(self(NativeSource(int(generator.integers(2**62)))))
        except Exception as error:
            raise crash(self.subject, self.scenario, error) from error


def _enumerated(pair: _Pair) -> dict[tuple[Emitted, Emitted], float]:
    pair.scenario.case(pair.drafts)  # made now: random trees draw their rows, and not while draws are enumerated
    try:
        law = enumerate_law(
            pair, budget=EnumerationBudget(max_seconds=MAX_SECONDS), cross_check_calls=CROSS_CHECK_CALLS // 2,
            allow_deterministic=True,
        )  # fmt: skip
    except NotEnumerable:
        raise
    except Exception as error:
        raise crash_or_refusal(pair.subject, [pair.scenario], error) from error
    joint: dict[tuple[Emitted, Emitted], float] = {}
    for output, probability in law.probabilities.items():
        key = pair.read(output)
        joint[key] = joint.get(key, 0.0) + probability
    return joint


def _judged(pair: _Pair, joint: dict[tuple[Emitted, Emitted], float], context: CheckContext) -> Iterator[Finding]:
    subject, what = pair.subject, pair.what
    firsts, seconds = defaultdict[Emitted, float](float), defaultdict[Emitted, float](float)
    for (one, other), probability in joint.items():
        firsts[one] += probability
        seconds[other] += probability
    if len(firsts) > 1 or subject.is_greedy:
        context.exercised("random-pairs")
    product = {(one, other): p * q for one, p in firsts.items() for other, q in seconds.items()}
    distance = total_variation(joint, product)
    tolerance = TOLERANCES["float32" if subject.dtype == "float64" else subject.dtype]
    if distance <= tolerance:
        context.worth(f"{what}: exact joint law is the product of its marginals (off by {distance:.1g})")
        return
    yield Finding(
        headline=f"Smallest case found: {what}, {pair.scenario.size}, draft {list(pair.drafts)}.",
        table=_table(joint, product),
        not_noise=f"Not noise. This is the exact joint law; total variation {distance:.3g} from the product of its "
        f"marginals, allowed {tolerance:.0e}.",
        where=("Each output alone is as likely as it was; it is the pair that is not.",),
        details={"pair": what, "total_variation": distance},
    )


def _table(joint: dict[tuple[Emitted, Emitted], float], product: dict[tuple[Emitted, Emitted], float]) -> Table:
    """The pairs that are furthest from independence."""
    furthest = sorted(product, key=lambda key: -abs(joint.get(key, 0.0) - product[key]))[:_SHOWN]
    rows = [["first output", "second output", "together", "if independent"]]
    for pair in furthest:
        shares = three_digits(joint.get(pair, 0.0)), three_digits(product[pair])
        rows.append([*(str(list(output)) for output in pair), *shares])
    return Table(rows)


def _reuse_finding(error: ReusedRandomness) -> Finding:
    where = [f"Operation  {error.operation}"] if error.operation else []
    if error.source_line:
        where.append(f"Line       {error.source_line}")
    return Finding(
        headline="One random value decides two things in a single call.",
        not_noise=f"Found while following every random value through the function: {error.reason}.",
        where=where,
        details={"operation": error.operation, "source_line": error.source_line},
    )


def _sampled(
    pair: _Pair, reason: str, context: CheckContext, sampled: list[tuple[int, Callable[[int], float]]]
) -> Iterator[Finding]:
    """Bets that a true pair can be told from one whose second half comes from another call.

    sampled: gains the number of pairs, and the total variation that any number of them shows.
    """
    betting, what = PairBetting(), pair.what
    generator = context.streams.generator("random.draws-independent", what)
    limit = alarm_threshold(context.alpha / 2)
    num_pairs = int(_PAIRS * context.effort)
    values: set[tuple[Emitted, Emitted]] = set()
    for number in range(num_pairs):
        context.progress("pairs of calls", number, num_pairs)
        one, other = pair.sampled(generator)
        _, stranger = pair.sampled(generator)
        if other != stranger:
            context.exercised("random-pairs")
        betting.update([(one, other)], [(one, stranger)])
        values |= {(one, other), (one, stranger)}
        if betting.log_e >= limit:
            yield Finding(
                headline=f"{what.capitalize()}, {pair.scenario.size}, draft {list(pair.drafts)}: outputs go together.",
                not_noise=f"Not noise. After {number + 1} pairs the evidence is e^{betting.log_e:.0f}, where "
                f"independent outputs pass e^{limit:.0f} less than once in {np.exp(limit):.0e} runs. The joint law "
                f"could not be enumerated: {reason}.",
                details={"pair": what, "log_e": betting.log_e, "num_pairs": number + 1},
            )
            return

    def detectable(count: int) -> float:
        return pair_detectable_tv(context.alpha / 2, count, max(2, len(values)))

    tv = detectable(num_pairs)
    sampled.append((num_pairs, detectable))
    context.figures.update(log_e=max(betting.log_e, context.figures.get("log_e", -np.inf)), detectable_tv=tv)
    context.worth(
        f"{what}: not refuted in {num_pairs:,} pairs; would have caught total variation {tv:.2g} from independence. "
        f"The joint law could not be enumerated: {reason}"
    )
