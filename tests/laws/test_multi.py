"""Several candidates per position: lossless for any tree, and equal to the recursion run candidate by candidate."""

import itertools

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.laws.multi import Children, candidates_law, expected_tokens, multi_step_law, node_law, ranked_law
from specverify.laws.residual import acceptance_efficiency
from specverify.laws.sequence import completed_distance
from specverify.laws.steps import chain_step, step_law
from specverify.laws.tree import DRAFT_SPECIALS, TARGET_SPECIALS, ConditionalTree


@pytest.mark.parametrize("with_replacement", [True, False])
@pytest.mark.parametrize("num_candidates", [(1,), (3,), (2, 2), (3, 1, 2)])
@pytest.mark.parametrize("specials", [False, True])
def test_recursive_rejection_is_lossless(with_replacement, num_candidates, specials):
    """For any tree shape, and where candidates run out, the emitted law completes to the target's."""
    target = ConditionalTree(4, 1, specials=TARGET_SPECIALS if specials else ())
    draft = target.draft(2, specials=DRAFT_SPECIALS if specials else ())

    law = multi_step_law(draft, target, num_candidates, with_replacement=with_replacement)

    assert completed_distance(law, target).tv < 1e-14


def drawn_candidates(draft, count, with_replacement):
    """Every tuple of candidates with its probability."""
    for tokens in itertools.product(range(len(draft)), repeat=count):
        weight, rest = 1.0, draft.copy()
        for token in tokens:
            weight *= rest[token] / rest.sum() if rest.sum() else 0.0
            if not with_replacement:
                rest[token] = 0.0
        if weight > 0.0:
            yield tokens, weight


@pytest.mark.parametrize("with_replacement", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_law_of_a_node_is_the_average_over_candidates(with_replacement, count):
    """The closed form over random candidates is the average of what happens for given ones."""
    target = ConditionalTree(4, 1)
    draft_row, target_row = target.draft(2)(()), target(())
    accepted, replaced = np.zeros(4), np.zeros(4)
    for tokens, weight in drawn_candidates(draft_row, count, with_replacement):
        kept, final = candidates_law(tokens, draft_row, target_row, with_replacement=with_replacement)
        np.add.at(accepted, list(tokens), weight * kept)
        replaced += weight * final

    wanted = node_law(draft_row, target_row, count, with_replacement=with_replacement)

    np.testing.assert_allclose(wanted[0], accepted, atol=1e-15)
    np.testing.assert_allclose(wanted[1], replaced, atol=1e-15)


@pytest.mark.parametrize("with_replacement", [True, False])
def test_one_candidate_is_the_chain(with_replacement):
    """With one candidate per level the law is that of token-wise rejection."""
    target = ConditionalTree(3, 1)
    draft = target.draft(2)

    law = multi_step_law(draft, target, (1, 1), with_replacement=with_replacement)

    assert law == pytest.approx(step_law(chain_step, draft, target, 2))


def test_more_candidates_accept_more():
    """A second candidate raises acceptance, one without replacement more than one with."""
    target = ConditionalTree(5, 1)
    draft_row, target_row = target.draft(2)(()), target(())
    accepted = [
        node_law(draft_row, target_row, count, with_replacement=with_replacement)[0].sum()
        for count, with_replacement in ((1, True), (2, True), (2, False))
    ]

    assert accepted[0] == pytest.approx(acceptance_efficiency(draft_row, target_row))
    assert accepted[0] < accepted[1] < accepted[2]


def test_bad_trees_are_refused():
    """A level without candidates, and a candidate outside the vocabulary, are named."""
    target = ConditionalTree(3, 1)
    with pytest.raises(UsageError, match="at least one candidate"):
        multi_step_law(target, target, (1, 0), with_replacement=True)
    with pytest.raises(UsageError, match=r"candidate_token_ids\[1\] is 5"):
        candidates_law((0, 5), target(()), target(()), with_replacement=True)


BRANCHED = (-1, -1, 0, 0, 1, 1)


@pytest.mark.parametrize("children", [Children.DRAWN, Children.DRAWN_WITH_REPLACEMENT])
def test_expected_tokens_are_the_mean_length_of_the_step_law(children):
    """Two ways to the same number, for two children of two."""
    target = ConditionalTree(4, 1, specials=TARGET_SPECIALS)
    draft = target.draft(2, specials=DRAFT_SPECIALS)
    law = multi_step_law(draft, target, (2, 2), with_replacement=children is Children.DRAWN_WITH_REPLACEMENT)

    found = expected_tokens(BRANCHED, draft, target, children)

    assert found == pytest.approx(sum(len(tokens) * share for tokens, share in law.items()), abs=1e-14)


def test_expected_tokens_of_likeliest_children_are_the_targets_own_mass_on_them():
    """A chosen child is accepted with its target probability, whichever siblings were tried before it."""
    target = ConditionalTree(4, 1)
    draft = target.draft(2)
    best = np.argsort(-draft(()), kind="stable")[:2]

    found = expected_tokens((-1, -1), draft, target, Children.LIKELIEST)

    assert found == pytest.approx(1.0 + target(())[best].sum(), abs=1e-15)


@pytest.mark.parametrize("children", [Children.DRAWN, Children.DRAWN_WITH_REPLACEMENT])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ranks_add_up_to_the_law_of_the_node(children, count):
    """The same law, split by which candidate it was."""
    target = ConditionalTree(4, 1, specials=TARGET_SPECIALS)
    draft_row = target.draft(2)(())

    by_rank = ranked_law(draft_row, target(()), count, children)

    whole, _ = node_law(draft_row, target(()), count, with_replacement=children is Children.DRAWN_WITH_REPLACEMENT)
    np.testing.assert_allclose(by_rank.sum(axis=0), whole, atol=1e-15)
