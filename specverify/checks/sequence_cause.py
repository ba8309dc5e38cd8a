"""Which known mistake predicts the law that was seen: a mixture of draft and target, or a named verify mistake."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from specverify.core.types import Request
from specverify.laws.mistakes import MISTAKES, Mistake
from specverify.laws.sequence import total_variation
from specverify.laws.steps import DraftPath, Law, StepRule, law_over_paths, paths_with_rows
from specverify.laws.tree import Conditional

Tokens: TypeAlias = tuple[int, ...]

# A share of the draft law below this is not told from rounding.
_LEAST_SHARE = 1e-3
_NAMED = 2
_MIXTURE = "target-mixed-with-draft"
# A strength found by search fits to about this total variation.
_SEARCHED = 1e-5


def conditional_of(law: Mapping[Tokens, float], vocab_size: int) -> Conditional:
    """The next-token laws of a law over sequences. A prefix that never occurs has a row of zeros."""
    sums: dict[Tokens, NDArray[np.float64]] = {}
    for tokens, probability in law.items():
        for index, token in enumerate(tokens):
            row = sums.setdefault(tokens[:index], np.zeros(vocab_size))
            if 0 <= token < vocab_size:
                row[token] += probability

    def conditional(prefix: Tokens) -> NDArray[np.float64]:
        row = sums.get(prefix)
        if row is None or not row.sum() > 0.0:
            return np.zeros(vocab_size)
        normalised: NDArray[np.float64] = row / row.sum()
        return normalised

    return conditional


def likely_cause(
    law: Mapping[Tokens, float], request: Request, target: Conditional, draft: Conditional | None, prefix: Tokens, *,
    num_draft_tokens: int, tolerance: float, num_from_prefill: int = 1,
) -> str:  # fmt: skip
    """A sentence, only where the law that the mistake predicts is the law that was seen.

    Two mistakes may predict one and the same law (accepting everything, and replacing rejected tokens by what the
    draft had too much of): then both are named. More than two name nothing.

    First the named mistakes as they are, then those with a strength (a factor, a share), then a mixture of target and
    draft at the place of failure alone. A draft law that is known at some places only gives no cause.
    """
    if draft is None:
        return ""
    call = _Call(law, request, target, draft, num_draft_tokens, num_from_prefill)
    fitting: list[Mistake] = []
    with contextlib.suppress(KeyError):
        fitting = [m for m in MISTAKES if m.family is None and call.distance(m.rule) <= tolerance]
        if not fitting:
            strongest = [call.best_strength(m) for m in MISTAKES if m.family is not None]
            fitting = [m for m, distance in strongest if distance <= max(tolerance, _SEARCHED)]
    share = None
    with contextlib.suppress(KeyError):
        seen = conditional_of(law, len(target(())))(prefix)
        share = mixture_share(seen, target(prefix), draft(prefix), tolerance)
    if 1 <= len(fitting) <= _NAMED and fitting[0].name != _MIXTURE:
        sentence = ", or ".join(mistake.sentence.rstrip(".") for mistake in fitting)
        alone = "it alone predicts" if len(fitting) == 1 else "only these predict"
        return f"the verifier {sentence}. Of all {len(MISTAKES)} known mistakes {alone} this law."
    if share is not None and (not fitting or fitting[0].name == _MIXTURE):
        return (
            f"lossy: what is emitted there is {1 - share:.3g} x target + {share:.3g} x draft, which fits to "
            f"{tolerance:.0e}. If that is intended, declare lossy_by_design."
        )
    return ""


@dataclass(frozen=True, eq=False)
class _Call:
    """What was seen of one call, and how far the law that a rule predicts is from it."""

    law: Mapping[Tokens, float]
    request: Request
    target: Conditional
    draft: Conditional
    num_draft_tokens: int
    num_from_prefill: int
    known_paths: dict[tuple[Tokens, int], list[DraftPath]] = field(default_factory=dict)

    @cached_property
    def _prefixes(self) -> frozenset[Tokens]:
        return frozenset(tokens[:length] for tokens in self.law for length in range(len(tokens) + 1))

    def distance(self, rule: StepRule) -> float:
        """Total variation; the nearer of the two ways to draft close to the limit."""
        return min(total_variation(self._predicted(rule, room), self.law) for room in (1, 0))

    def _predicted(self, rule: StepRule, room: int) -> dict[Tokens, float]:
        return sequence_law_of_rule(
            rule, self.draft, self.target, self.request, num_draft_tokens=self.num_draft_tokens, room=room,
            num_from_prefill=self.num_from_prefill, worth_following=self._prefixes, known_paths=self.known_paths,
        )  # fmt: skip

    def best_strength(self, mistake: Mistake) -> tuple[Mistake, float]:
        """The mistake at the strength that fits best, and how well it fits."""
        family = mistake.family
        assert family is not None
        for value in mistake.common:
            distance = self.distance(family(value))
            if distance <= _SEARCHED:
                return mistake.at(value), distance
        found = minimize_scalar(
            lambda value: self.distance(family(float(value))), bounds=(mistake.low, mistake.high), method="bounded",
            options={"xatol": 1e-7, "maxiter": 40},
        )  # fmt: skip
        return mistake.at(float(found.x)), float(found.fun)


def mixture_share(
    observed: NDArray[np.float64], target: NDArray[np.float64], draft: NDArray[np.float64], tolerance: float
) -> float | None:
    """Share of the draft law in what was emitted, where emitted = (1 - share) x target + share x draft fits."""
    size = max(len(observed), len(target), len(draft))
    seen, wanted, drafted = (np.pad(np.asarray(row), (0, size - len(row))) for row in (observed, target, draft))
    direction = drafted - wanted
    length = float(direction @ direction)
    if length < tolerance:
        return None
    share = float((seen - wanted) @ direction) / length
    misfit = 0.5 * float(np.abs(seen - wanted - share * direction).sum())
    if misfit > 10 * tolerance or not _LEAST_SHARE < share < 1.0 - _LEAST_SHARE:
        return None
    return share


def sequence_law_of_rule(
    rule: StepRule,
    draft: Conditional,
    target: Conditional,
    request: Request,
    *,
    num_draft_tokens: int,
    room: int,
    num_from_prefill: int = 1,
    worth_following: Container[Tokens] | None = None,
    known_paths: dict[tuple[Tokens, int], list[DraftPath]] | None = None,
) -> dict[Tokens, float]:
    """Law of a whole call: the tokens from prefill, then steps with this rule until the limit or an end token.

    room: 1 where the engine drafts no more than leaves room for the final token, 0 where it fills up to the limit.
    worth_following: other outputs are left where they depart from these, incomplete. In a distance to a law that has
      none of them it makes no difference, and a rule that spreads over a whole vocabulary ends soon.
    known_paths: drafts and their rows, by text before and length; they do not depend on the rule, so many rules share
      them.
    """
    paths_by_place = {} if known_paths is None else known_paths
    length, ends = request.max_new_tokens, request.eos_token_ids
    finished: dict[Tokens, float] = {}
    pending: dict[Tokens, float] = {(): 1.0}
    while pending:
        tokens, weight = pending.popitem()
        is_of_interest = worth_following is None or tokens in worth_following
        if len(tokens) >= length or (tokens and tokens[-1] in ends) or not is_of_interest:
            finished[tokens] = finished.get(tokens, 0.0) + weight
            continue
        if len(tokens) < num_from_prefill:
            row = target(tokens)
            emitted_law: Law = {(int(token),): float(row[token]) for token in np.flatnonzero(row)}
        else:
            num_draft = max(0, min(num_draft_tokens, length - len(tokens) - room))
            if (tokens, num_draft) not in paths_by_place:
                paths_by_place[tokens, num_draft] = list(paths_with_rows(draft, target, num_draft, prefix=tokens))
            emitted_law = law_over_paths(rule, paths_by_place[tokens, num_draft])
        for emitted, probability in emitted_law.items():
            longer = (*tokens, *_cut(emitted, length - len(tokens), ends))
            pending[longer] = pending.get(longer, 0.0) + weight * probability
    return finished


def _cut(emitted: Tokens, limit: int, ends: Tokens) -> Tokens:
    """What survives of a step: up to the first end token, within the limit."""
    for index, token in enumerate(emitted[:limit]):
        if token in ends:
            return emitted[: index + 1]
    return emitted[:limit]
