"""The cases that verify functions are tried on, smallest first: laws that depend on the prefix, with every corner."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from specverify.checks.step_subject import Scenario, VerifySubject, tree_paths
from specverify.checks.step_tables import DYADIC, DYADIC_LAWS, ENDS, FIVE, FOUR, THREE, TWO, from_table, table
from specverify.core.types import VerifyInput
from specverify.laws.tree import Conditional, ConditionalTree

# Cases repeated at another temperature where a function has a parameter for it.
_TEMPERED = 4
# Drawn, this tree alone would be as many paths as all others together; chosen without chance, it is one.
_THREE_BELOW = (-1, 0, 0, 0)
# Cases repeated without the draft law where a function says that it may be left out.
_WITHOUT_DRAFT_LAW = 6


def dyadic_scenario() -> Scenario:
    """Laws whose whole arithmetic is exact in half precision."""
    return from_table(DYADIC, DYADIC_LAWS, 2)


def chi_square_scenario() -> Scenario:
    """Few continuations, none of them rare: what a chi-square needs."""
    return from_table("three tokens", THREE, 2)


def edge_scenarios() -> list[Scenario]:
    """Laws that forbid the first and the last token, one and two draft tokens."""
    law = [table(ENDS, which, is_rotated=False) for which in (1, 0)]
    return [Scenario("zeros at both ends", 4, k, law[0], law[1]) for k in (1, 2)]


def independence_scenario() -> Scenario:
    """One draft token, accepted as often as not, and a residual that leaves something to draw."""
    return from_table("four tokens", FOUR, 1)


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
        from_table("two tokens", TWO, 1),
        from_table("three tokens", THREE, 1),
        from_table("five tokens", FIVE, 1),
        from_table("two tokens", TWO, 2),
        from_table("three tokens", THREE, 2),
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
    shapes = (((-1, -1), 3), ((-1, -1, -1), 4), ((-1, -1, 0, 0), 3), ((-1, -1, 1, 2), 3), (_THREE_BELOW, 4))
    scenarios = []
    for number, (parents, vocab_size) in enumerate(shapes):
        tree = ConditionalTree(vocab_size, 81 + number)
        drafts = tree.draft(91 + number, support=2 if len(parents) > vocab_size else None)
        ways = (True, False) if has_draft_law else (False,)
        for with_replacement in () if parents == _THREE_BELOW else ways:
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
        yield adapted(from_table("no draft tokens", THREE, 0), subject)
    if subject.takes_batches:
        for row, neighbour in itertools.product((0, 1), _neighbours(is_ragged=subject.takes_ragged_batches)):
            yield adapted(_with_neighbour(neighbour, row), subject)


def tempered_scenarios(subject: VerifySubject) -> list[Scenario]:
    """The first cases, for a function that is called with another temperature."""
    cases = standard_scenarios()[:_TEMPERED]
    return [adapted(replace(one, name=f"{one.name}, another temperature"), subject) for one in cases]


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
    target, draft = seen(scenario.target), seen(scenario.draft)
    given = given_draft = None
    if subject.is_greedy:
        target, given = _greedy(target), target
    elif subject.temperature != 1.0:
        target, given = _tempered(target, subject.temperature), target
        if subject.tempers_draft:
            draft, given_draft = _tempered(draft, subject.temperature), draft
    return Scenario(
        scenario.name, scenario.vocab_size, scenario.num_draft_tokens, target, draft,
        is_told=scenario.is_told and subject.takes_draft_law, neighbour=neighbour, row=scenario.row, parents=parents,
        drafts_itself=subject.drafts_itself,
        given=given, given_draft=given_draft,
    )  # fmt: skip


def _greedy(law: Conditional) -> Conditional:
    def row(prefix: tuple[int, ...]) -> NDArray[np.float64]:
        full = law(prefix)
        best = np.zeros_like(full)
        best[int(full.argmax())] = 1.0
        return best

    return row


def _tempered(law: Conditional, temperature: float) -> Conditional:
    def row(prefix: tuple[int, ...]) -> NDArray[np.float64]:
        powered = law(prefix) ** (1.0 / temperature)
        tempered: NDArray[np.float64] = powered / powered.sum()
        return tempered

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
    scenario = from_table("a batch of two", THREE, 2)
    return replace(scenario, neighbour=neighbour, row=row)
