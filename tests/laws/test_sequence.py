"""Sequence laws and the completed distance, against the definition written out in full."""

from itertools import product

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.laws.residual import residual
from specverify.laws.sequence import completed_distance, sequence_law, total_variation
from specverify.laws.steps import assembled_law, chain_step, step_law
from specverify.laws.tree import TARGET_SPECIALS, ConditionalTree

VOCAB_SIZE = 3
NUM_DRAFT_TOKENS = 2


def random_law(seed, *, max_length=3):
    """Any law over tuples of mixed length: what a broken step might emit."""
    rng = np.random.default_rng(seed)
    outputs = [output for length in range(max_length + 1) for output in product(range(VOCAB_SIZE), repeat=length)]
    chosen = rng.choice(len(outputs), 12, replace=False)
    return dict(zip([outputs[i] for i in chosen], rng.dirichlet(np.ones(12)), strict=True))


def completed(law, target, length):
    """Every output completed token by token from the target: V ** length cells, the slow definition."""
    result = {}
    for output, probability in law.items():
        for tail, tail_probability in sequence_law(target, length - len(output), prefix=output).items():
            result[output + tail] = result.get(output + tail, 0.0) + probability * tail_probability
    return result


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("specials", [(), TARGET_SPECIALS])
def test_distance_is_that_of_the_completed_law(seed, specials):
    """The trie gives the total variation of the completed law without its V ** length cells."""
    target = ConditionalTree(VOCAB_SIZE, seed, specials=specials)
    law = random_law(seed)

    wanted = total_variation(completed(law, target, 3), sequence_law(target, 3))

    assert completed_distance(law, target).tv == pytest.approx(wanted, abs=1e-14)


def test_impossible_tokens_are_counted_apart():
    """Mass on tokens that the target forbids, or that do not exist, is impossible mass."""
    target = ConditionalTree(3, 1, support=2)
    forbidden = int(np.flatnonzero(target(()) == 0.0)[0])
    allowed = int(np.flatnonzero(target(()))[0])

    distance = completed_distance({(forbidden, 0): 0.2, (-1,): 0.1, (allowed,): 0.7}, target)

    assert distance.impossible_mass == pytest.approx(0.3)


def test_sequence_law_is_the_product_of_conditionals():
    """Probabilities multiply along the prefix and sum to one."""
    tree = ConditionalTree(VOCAB_SIZE, 2)

    law = sequence_law(tree, 3)

    assert law[(2, 0, 1)] == pytest.approx(tree(())[2] * tree((2,))[0] * tree((2, 0))[1])
    assert sum(law.values()) == pytest.approx(1.0)
    assert len(law) == VOCAB_SIZE**3


def test_sequence_law_ends_at_an_end_token():
    """An end token ends the sequence, is part of it, and nothing follows it."""
    law = sequence_law(ConditionalTree(VOCAB_SIZE, 2), 3, eos_token_ids=(1,))

    assert all(1 not in tokens[:-1] for tokens in law)
    assert (1,) in law
    assert sum(law.values()) == pytest.approx(1.0)


def wrong_second_row(draft_token_ids, draft_probs, target_probs):
    """Replaces a token rejected at the second position from the target, only after a first draft token 2."""
    replacement = residual(draft_probs, target_probs[:-1])
    if draft_token_ids[0] == 2:
        replacement[1] = target_probs[1]
    tokens = tuple(draft_token_ids)
    accept = np.minimum(1.0, [target_probs[i][t] / draft_probs[i][t] for i, t in enumerate(tokens)])
    return assembled_law(tokens, accept, replacement, target_probs[-1])


def test_the_failing_prefix_is_named_with_its_laws():
    """A bug that only shows after token 2 is found at prefix (2,), with both laws side by side."""
    target = ConditionalTree(VOCAB_SIZE, 9)
    draft = target.draft(10)

    distance = completed_distance(step_law(wrong_second_row, draft, target, NUM_DRAFT_TOKENS), target)

    assert distance.tv > 0.01
    assert distance.worst_prefix == (2,)
    assert distance.first_prefix == (2,)
    np.testing.assert_array_equal(target((2,)), distance.wanted)
    assert distance.observed.sum() == pytest.approx(1.0)
    assert np.abs(distance.observed - distance.wanted).sum() > 0.02


def test_an_exact_law_has_no_failing_prefix():
    """Rounding is not a failure: nothing is named for a correct step."""
    target = ConditionalTree(VOCAB_SIZE, 4)

    assert completed_distance(step_law(chain_step, target.draft(5), target, 3), target).first_prefix is None


def test_a_prefix_shifts_the_whole_tree():
    """Outputs are judged against the laws after the given prefix."""
    target = ConditionalTree(VOCAB_SIZE, 4)

    assert completed_distance(sequence_law(target, 2, prefix=(1,)), target, prefix=(1,)).tv < 1e-15
    assert completed_distance(sequence_law(target, 2, prefix=(1,)), target).tv > 0.05


def test_emitting_nothing_is_lossless_but_empty():
    """A step that emits no token leaves all to the target."""
    assert completed_distance({(): 1.0}, ConditionalTree(3, 1)).tv == 0.0


@pytest.mark.parametrize(
    ("law", "says"),
    [({}, "sum to 0"), ({(0,): 0.5}, "sum to 0.5"), ({(0,): 1.5, (1,): -0.5}, "-0.5"), ({(0,): np.nan}, "nan")],
)
def test_an_incomplete_law_is_refused(law, says):
    """A law that is no law is refused, not measured."""
    with pytest.raises(UsageError, match=says):
        completed_distance(law, ConditionalTree(3, 1))
