"""Fixtures: reproducible, dependent on the prefix, and with the corners that were asked for."""

from itertools import product

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.laws.tree import DRAFT_SPECIALS, TARGET_SPECIALS, ConditionalTree, path_rows

PREFIXES = [prefix for length in range(3) for prefix in product(range(6), repeat=length)]


def distance(row, other):
    return 0.5 * np.abs(row - other).sum()


def test_same_arguments_give_the_same_rows():
    """A tree is a pure function of its arguments, whatever was looked at before."""
    first, second = ConditionalTree(6, 3), ConditionalTree(6, 3)
    second((5, 5))

    for prefix in PREFIXES:
        np.testing.assert_array_equal(first(prefix), second(prefix))


def test_every_prefix_has_its_own_row():
    """No two prefixes share a law, not even (), (0,) and (0, 0): row-offset bugs stay visible."""
    tree = ConditionalTree(6, 3)

    assert len({tree(prefix).tobytes() for prefix in PREFIXES}) == len(PREFIXES)


@pytest.mark.parametrize("specials", [(), TARGET_SPECIALS])
def test_rows_are_laws(specials):
    """Rows are non-negative and sum to one."""
    tree = ConditionalTree(6, 3, specials=specials)
    draft = tree.draft(4, specials=DRAFT_SPECIALS if specials else ())

    for prefix in PREFIXES:
        for row in (tree(prefix), draft(prefix)):
            assert row.dtype == np.float64
            assert (row >= 0.0).all()
            assert abs(row.sum() - 1.0) < 1e-14


@pytest.mark.parametrize("wanted", [0.02, 0.1, 0.4, 0.7])
def test_draft_disagrees_by_the_stated_total_variation(wanted):
    """The construction, not luck, sets how far the draft is from the target."""
    target = ConditionalTree(8, 5)
    draft = target.draft(6, disagreement=wanted)

    for prefix in product(range(8), repeat=2):
        assert distance(draft(prefix), target(prefix)) == pytest.approx(wanted, abs=2e-5)


@pytest.mark.parametrize(
    ("special", "holds"),
    [
        ("zeros", lambda row: (row == 0.0).any()),
        ("one-hot", lambda row: row.max() == 1.0),
        ("flat", lambda row: row.max() == row.min()),
        ("ties", lambda row: np.sort(row)[-1] == np.sort(row)[-2]),
        ("long-tail", lambda row: row.min() < 1e-3 * row.max()),
    ],
)
def test_target_special_is_what_it_says(special, holds):
    """A special kind, always on, shapes every row."""
    tree = ConditionalTree(6, 3, specials=(special,), special_chance=1.0)

    assert all(holds(tree(prefix)) for prefix in PREFIXES)


@pytest.mark.parametrize(
    ("special", "holds"),
    [
        ("equal", lambda draft, target: (draft == target).all()),
        ("disjoint", lambda draft, target: np.minimum(draft, target).sum() == 0.0),
        ("one-hot", lambda draft, target: draft.max() == 1.0),
        ("zeros", lambda draft, target: (draft == 0.0).any()),
    ],
)
def test_draft_special_is_what_it_says(special, holds):
    """Draft rows relate to the target's rows as their name says (target rows with zeros)."""
    target = ConditionalTree(6, 3, specials=("zeros",), special_chance=1.0)
    draft = target.draft(4, specials=(special,), special_chance=1.0)

    assert all(holds(draft(prefix), target(prefix)) for prefix in PREFIXES)


def test_near_equal_rows_differ_a_little():
    """Near-equal rows leave a residual that lives on tiny differences."""
    target = ConditionalTree(6, 3)
    draft = target.draft(4, specials=("near-equal",), special_chance=1.0)

    assert all(0.0 < distance(draft(prefix), target(prefix)) < 2e-3 for prefix in PREFIXES)


@pytest.mark.parametrize("specials", [(), DRAFT_SPECIALS])
def test_sparse_draft_keeps_paths_few_in_a_large_vocabulary(specials):
    """A draft row never exceeds its support, and shares likely tokens with the target."""
    target = ConditionalTree(1000, 3)
    draft = target.draft(4, support=3, specials=specials)

    assert all(np.count_nonzero(draft((token,))) <= 3 for token in range(20))
    assert np.mean([np.minimum(draft((t,)), target((t,))).sum() for t in range(20)]) > 0.05


def test_draft_leaves_the_support_of_a_target_with_zeros():
    """Some drafts are forbidden by the target, so that certain rejection is exercised."""
    target = ConditionalTree(6, 3, specials=("zeros",), special_chance=1.0)
    draft = target.draft(4)

    assert any(draft(prefix)[target(prefix) == 0.0].sum() > 0.0 for prefix in PREFIXES)


def test_rows_cannot_be_overwritten():
    """A subject that writes into its arguments cannot corrupt the fixture."""
    with pytest.raises(ValueError, match="read-only"):
        ConditionalTree(4, 1)(())[0] = 1.0


def test_path_rows_follow_the_path():
    """Row i is the law after i tokens, the prefix included."""
    tree = ConditionalTree(6, 3)

    rows = path_rows(tree, (4, 2), prefix=(1,))

    np.testing.assert_array_equal(np.stack([tree((1,)), tree((1, 4)), tree((1, 4, 2))]), rows)
    np.testing.assert_array_equal(rows, tree.rows((4, 2), prefix=(1,)))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ConditionalTree(1, 0), "at least 2"),
        (lambda: ConditionalTree(4, 0, support=5), "1 to 4"),
        (lambda: ConditionalTree(4, 0, specials=("peaky",)), "peaky.*choose from zeros"),
        (lambda: ConditionalTree(4, 0).draft(1, disagreement=1.0), "total variation"),
        (lambda: ConditionalTree(4, 0).draft(1, specials=("flat",)), "choose from equal"),
    ],
)
def test_wrong_arguments_are_refused_with_the_rule(make, says):
    """Every wrong argument ends in a UsageError that says what to give instead."""
    with pytest.raises(UsageError, match=says):
        make()
