"""The cases that verify functions are tried on, smallest first: laws that depend on the prefix, with every corner."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from specverify.checks.step_subject import Scenario, VerifySubject, tree_paths
from specverify.core.types import VerifyInput
from specverify.laws.tree import Conditional, ConditionalTree

Rows: TypeAlias = Mapping[tuple[int, ...], tuple[Sequence[float], Sequence[float]]]
"""Last token, if any -> draft row and target row."""

# Readable cases come first: where one of them fails, it is the one that is shown.
_TWO: Rows = {
    (): ((0.7, 0.3), (0.4, 0.6)),
    (0,): ((0.5, 0.5), (0.9, 0.1)),
    (1,): ((0.2, 0.8), (0.3, 0.7)),
}
_THREE: Rows = {
    (): ((0.2, 0.5, 0.3), (0.5, 0.1, 0.4)),
    (0,): ((0.3, 0.3, 0.4), (0.1, 0.6, 0.3)),
    (1,): ((0.6, 0.2, 0.2), (0.2, 0.2, 0.6)),
    (2,): ((0.1, 0.8, 0.1), (0.7, 0.2, 0.1)),
}
_FIVE: Rows = {
    (): ((0.1, 0.2, 0.4, 0.2, 0.1), (0.4, 0.3, 0.15, 0.1, 0.05)),
    (0,): ((0.2, 0.2, 0.2, 0.2, 0.2), (0.1, 0.1, 0.6, 0.1, 0.1)),
    (1,): ((0.3, 0.1, 0.1, 0.2, 0.3), (0.1, 0.2, 0.1, 0.5, 0.1)),
    (2,): ((0.1, 0.1, 0.1, 0.1, 0.6), (0.5, 0.2, 0.1, 0.1, 0.1)),
    (3,): ((0.2, 0.3, 0.3, 0.1, 0.1), (0.1, 0.1, 0.2, 0.3, 0.3)),
    (4,): ((0.4, 0.2, 0.2, 0.1, 0.1), (0.2, 0.2, 0.1, 0.1, 0.4)),
}
# The likeliest draft token is accepted as often as not; the residual is as likely to be token 0 as token 2.
_FOUR: Rows = {
    (): ((0.1, 0.6, 0.1, 0.2), (0.3, 0.3, 0.3, 0.1)),
    (0,): ((0.25, 0.25, 0.25, 0.25), (0.1, 0.4, 0.3, 0.2)),
    (1,): ((0.3, 0.1, 0.2, 0.4), (0.4, 0.1, 0.1, 0.4)),
    (2,): ((0.1, 0.2, 0.3, 0.4), (0.2, 0.5, 0.1, 0.2)),
    (3,): ((0.5, 0.2, 0.2, 0.1), (0.1, 0.3, 0.4, 0.2)),
}
# Impossible tokens at both ends of the vocabulary, in drafts that are proposed all the same.
_ENDS: Rows = {
    (): ((0.4, 0.3, 0.1, 0.2), (0.0, 0.6, 0.4, 0.0)),
    (0,): ((0.25, 0.25, 0.25, 0.25), (0.0, 0.5, 0.5, 0.0)),
    (1,): ((0.1, 0.2, 0.3, 0.4), (0.0, 0.7, 0.3, 0.0)),
    (2,): ((0.5, 0.0, 0.0, 0.5), (0.0, 0.1, 0.9, 0.0)),
    (3,): ((0.25, 0.25, 0.25, 0.25), (0.0, 0.3, 0.7, 0.0)),
}
# Cases repeated without the draft law where a function says that it may be left out.
_WITHOUT_DRAFT_LAW = 6
DYADIC = "dyadic laws"
# Every ratio, residual and sum in here is exact in half precision: a function that is off here is wrong, not rounded.
_DYADIC: Rows = {
    (): ((0.5, 0.25, 0.25, 0.0), (0.25, 0.25, 0.0, 0.5)),
    (0,): ((0.25, 0.25, 0.25, 0.25), (0.125, 0.375, 0.125, 0.375)),
    (1,): ((0.0, 0.5, 0.5, 0.0), (0.5, 0.25, 0.25, 0.0)),
    (2,): ((0.25, 0.5, 0.25, 0.0), (0.0, 0.25, 0.25, 0.5)),
    (3,): ((0.5, 0.0, 0.0, 0.5), (0.25, 0.5, 0.0, 0.25)),
}


def _table(rows: Rows, which: int, *, is_rotated: bool = True) -> Conditional:
    """A law of the last token only, from a table; deeper prefixes rotate the rows, so that none is met twice."""

    def law(prefix: tuple[int, ...]) -> NDArray[np.float64]:
        row = np.array(rows[prefix[-1:]][which], dtype=np.float64)
        return np.roll(row, len(prefix) - 1) if is_rotated and len(prefix) > 1 else row

    return law


def _from_table(name: str, rows: Rows, num_draft_tokens: int) -> Scenario:
    return Scenario(name, len(rows[()][0]), num_draft_tokens, _table(rows, 1), _table(rows, 0))


def dyadic_scenario() -> Scenario:
    """Laws whose whole arithmetic is exact in half precision."""
    return _from_table(DYADIC, _DYADIC, 2)


def chi_square_scenario() -> Scenario:
    """Few continuations, none of them rare: what a chi-square needs."""
    return _from_table("three tokens", _THREE, 2)


def edge_scenarios() -> list[Scenario]:
    """Laws that forbid the first and the last token, one and two draft tokens."""
    law = [_table(_ENDS, which, is_rotated=False) for which in (1, 0)]
    return [Scenario("zeros at both ends", 4, k, law[0], law[1]) for k in (1, 2)]


def independence_scenario() -> Scenario:
    """One draft token, accepted as often as not, and a residual that leaves something to draw."""
    return _from_table("four tokens", _FOUR, 1)


def _tree(
    name: str, vocab_size: int, num_draft_tokens: int, seed: int, *, target: Sequence[str] = (),
    draft: Sequence[str] = (), support: int | None = None, disagreement: float = 0.4, chance: float = 0.5,
) -> Scenario:  # fmt: skip
    tree = ConditionalTree(vocab_size, seed, specials=target, special_chance=chance)
    drafts = tree.draft(
        seed + 1, disagreement=disagreement, specials=draft, special_chance=chance, support=support
    )  # fmt: skip
    return Scenario(name, vocab_size, num_draft_tokens, tree, drafts)


def standard_scenarios() -> list[Scenario]:
    """Every case, smallest first."""
    return [
        _from_table("two tokens", _TWO, 1),
        _from_table("three tokens", _THREE, 1),
        _from_table("five tokens", _FIVE, 1),
        _from_table("two tokens", _TWO, 2),
        _from_table("three tokens", _THREE, 2),
        _tree("zeros in both laws", 4, 1, 11, target=("zeros",), draft=("zeros", "disjoint"), chance=0.8),
        dyadic_scenario(),
        _tree("equal and nearly equal laws", 3, 2, 21, draft=("equal", "near-equal"), chance=0.8),
        _tree("one-hot laws and ties", 4, 2, 31, target=("one-hot", "ties"), draft=("one-hot", "ties", "disjoint")),
        _tree("random laws", 3, 3, 41),
        _tree("random laws, draft on a few tokens", 8, 2, 51, support=3),
        _tree("long tails, zeros and flat laws", 8, 2, 61, target=("long-tail", "zeros", "flat"), support=2),
        _tree("random laws, longer draft", 6, 4, 71, support=2),
        # Sizes at which tables, blocks and narrow types end: more draft tokens, and ids beyond a byte.
        _tree("eight draft tokens", 3, 8, 72, support=1),
        _tree("a larger vocabulary, draft on a few tokens", 300, 1, 73, support=2),
    ]


def tree_scenarios(*, has_draft_law: bool = True) -> list[Scenario]:
    """Trees of candidates, drawn with and without replacement, and chosen without chance; smallest first.

    has_draft_law: whether the function is told the draft law. Where it is not, candidates are the likeliest tokens as
    a rule, and no two siblings hold the same one: rules for such trees count a token once for each sibling.
    """
    shapes = (((-1, -1), 3), ((-1, -1, -1), 4), ((-1, -1, 0, 0), 3), ((-1, -1, 1, 2), 3), ((-1, 0, 0, 0), 4))
    scenarios = []
    for number, (parents, vocab_size) in enumerate(shapes):
        tree = ConditionalTree(vocab_size, 81 + number)
        drafts = tree.draft(91 + number, support=min(3, vocab_size))
        for with_replacement in (True, False) if has_draft_law else (False,):
            law = _tree_draft(drafts, parents, with_replacement=with_replacement)
            name = f"candidates drawn {'with' if with_replacement else 'without'} replacement"
            scenarios.append(Scenario(name, vocab_size, len(parents), tree, law, parents=parents))
        chosen = _likeliest(drafts, parents)
        scenarios.append(Scenario("the likeliest candidates", vocab_size, len(parents), tree, chosen, parents=parents))
    return scenarios


def _likeliest(draft: Conditional, parents: tuple[int, ...]) -> Conditional:
    """Point masses on the likeliest tokens, in order: nothing about such a candidate was left to chance."""
    rest = _tree_draft(draft, parents, with_replacement=False)

    def law(tokens: tuple[int, ...]) -> NDArray[np.float64]:
        row = rest(tokens)
        point: NDArray[np.float64] = np.eye(1, len(row), int(row.argmax()))[0]
        return point

    return law


def _tree_draft(draft: Conditional, parents: tuple[int, ...], *, with_replacement: bool) -> Conditional:
    """Law of the next token of a tree given those before it in the list."""

    def law(tokens: tuple[int, ...]) -> NDArray[np.float64]:
        place = len(tokens)
        if place >= len(parents):
            return draft(())
        parent = parents[place]
        row = np.array(draft(tree_paths(tokens, parents)[parent] if parent >= 0 else ()))
        if not with_replacement:
            row[[token for token, other in zip(tokens, parents, strict=False) if other == parent]] = 0.0
            row /= row.sum()
        return row

    return law


def scenarios_for(subject: VerifySubject) -> Iterator[Scenario]:
    """The standard cases as this function can be asked them: rounded to its type, told of the draft law or not."""
    for scenario in standard_scenarios():
        yield adapted(scenario, subject)
    if subject.draft_law_is_optional:
        for scenario in standard_scenarios()[:_WITHOUT_DRAFT_LAW]:
            yield adapted(replace(scenario, name=f"{scenario.name}, no draft law given", is_told=False), subject)
    for scenario in tree_scenarios(has_draft_law=subject.takes_draft_law) if subject.takes_trees else ():
        yield adapted(scenario, subject)
    if subject.takes_no_drafts:
        yield adapted(_from_table("no draft tokens", _THREE, 0), subject)
    if subject.takes_batches:
        for row, neighbour in itertools.product((0, 1), _neighbours(is_ragged=subject.takes_ragged_batches)):
            yield adapted(_with_neighbour(neighbour, row), subject)


def adapted(scenario: Scenario, subject: VerifySubject) -> Scenario:
    """The scenario with laws as the function sees them."""

    def seen(law: Conditional) -> Conditional:
        cache: dict[tuple[int, ...], NDArray[np.float64]] = {}

        def row(prefix: tuple[int, ...]) -> NDArray[np.float64]:
            if prefix not in cache:
                cache[prefix] = subject.law_seen(law(prefix))
            return cache[prefix]

        return row

    parents, neighbour = scenario.parents, scenario.neighbour
    if subject.takes_trees and parents is None:
        parents = tuple(range(-1, scenario.num_draft_tokens - 1))
        if neighbour is not None:
            neighbour = replace(neighbour, parents=tuple(range(-1, len(neighbour.draft_token_ids) - 1)))
    target = seen(scenario.target)
    given = None
    if subject.is_greedy:
        target, given = _greedy(target), target
    return Scenario(
        scenario.name, scenario.vocab_size, scenario.num_draft_tokens, target, seen(scenario.draft),
        is_told=scenario.is_told and subject.takes_draft_law, neighbour=neighbour, row=scenario.row, parents=parents,
        drafts_itself=subject.drafts_itself,
        given=given,
    )  # fmt: skip


def _greedy(law: Conditional) -> Conditional:
    def row(prefix: tuple[int, ...]) -> NDArray[np.float64]:
        full = law(prefix)
        best = np.zeros_like(full)
        best[int(full.argmax())] = 1.0
        return best

    return row


def _neighbours(*, is_ragged: bool) -> list[VerifyInput]:
    """Rows that are decided beforehand: one rejects its first draft and takes token 2, one accepts all it has.

    is_ragged: the second has one draft token only, so that rows do not begin where equal lengths put them.
    """
    first, second, third = np.eye(3)
    rejecting = VerifyInput((0, 1), np.stack([first, second]), np.stack([third, second, first]))
    if is_ragged:
        return [rejecting, VerifyInput((0,), first[None], np.stack([first, third]))]
    return [rejecting, VerifyInput((0, 1), np.stack([first, second]), np.stack([first, second, third]))]


def _with_neighbour(neighbour: VerifyInput, row: int) -> Scenario:
    """A batch of two whose other row leaves nothing to chance.

    A function that mixes rows up takes draws, laws or counts from the neighbour; and since that one is decided
    beforehand, the batch costs no more paths than a single row.
    """
    scenario = _from_table("a batch of two", _THREE, 2)
    return replace(scenario, neighbour=neighbour, row=row)
