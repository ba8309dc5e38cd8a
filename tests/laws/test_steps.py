"""Step laws: lossless where they must be, and equal to what the published algorithms emit when run."""

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.laws.sequence import completed_distance, total_variation
from specverify.laws.steps import block_step, chain_step, draft_paths, point_mass_step, step_law
from specverify.laws.tree import DRAFT_SPECIALS, TARGET_SPECIALS, ConditionalTree

RULES = [chain_step, block_step, point_mass_step]
SIMULATED_CALLS = 40_000
# Total variation of an empirical law over at most 150 outputs from 40,000 calls; measured at most 0.02.
SIMULATION_NOISE = 0.03


def rows(vocab_size, num_draft_tokens, seed):
    target = ConditionalTree(vocab_size, seed)
    draft = target.draft(seed + 1)
    tokens, _ = list(draft_paths(draft, num_draft_tokens))[seed % vocab_size**num_draft_tokens]
    return tokens, draft.rows(tokens)[:-1], target.rows(tokens)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("vocab_size", "num_draft_tokens"), [(2, 4), (4, 3), (5, 1), (3, 0)])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("specials", [False, True])
def test_correct_rules_are_lossless(rule, vocab_size, num_draft_tokens, seed, specials):
    """Completed by the target, what a correct step emits has exactly the target's law, in every corner."""
    target = ConditionalTree(vocab_size, seed, specials=TARGET_SPECIALS if specials else ())
    draft = target.draft(seed + 1, specials=DRAFT_SPECIALS if specials else ())

    distance = completed_distance(step_law(rule, draft, target, num_draft_tokens), target)

    assert distance.tv < 1e-14
    assert distance.impossible_mass == 0.0


@pytest.mark.parametrize("rule", RULES)
def test_law_sums_to_one_for_every_draft(rule):
    """Even a draft that its own law calls impossible ends in some output."""
    target = ConditionalTree(4, 3, specials=TARGET_SPECIALS)
    draft = target.draft(4, specials=DRAFT_SPECIALS)
    for tokens in [(0, 1, 2), (3, 3, 3), (2, 0, 1), (1, 2, 3)]:
        law = rule(tokens, draft.rows(tokens)[:-1], target.rows(tokens))

        assert sum(law.values()) == pytest.approx(1.0, abs=1e-14)


def simulated_chain(rng, tokens, draft_probs, target_probs):
    emitted = []
    for i, token in enumerate(tokens):
        if rng.random() < target_probs[i][token] / draft_probs[i][token]:
            emitted.append(token)
            continue
        mass = np.clip(target_probs[i] - draft_probs[i], 0.0, None)
        return (*emitted, int(rng.choice(len(mass), p=mass / mass.sum())))
    return (*emitted, int(rng.choice(target_probs.shape[1], p=target_probs[-1])))


def simulated_block(rng, tokens, draft_probs, target_probs):
    """Algorithm 2 of arXiv 2403.10444 as printed: test every prefix, keep the longest that passes."""
    k, kept, weights = len(tokens), 0, [1.0]
    for i, token in enumerate(tokens):
        weights.append(min(1.0, weights[-1] * target_probs[i][token] / draft_probs[i][token]))
    for i in range(1, k + 1):
        if i == k:
            threshold = weights[k]
        else:
            mass = np.clip(weights[i] * target_probs[i] - draft_probs[i], 0.0, None).sum()
            threshold = mass / (mass + 1.0 - weights[i])
        if rng.random() <= threshold:
            kept = i
    law = target_probs[k] if kept == k else np.clip(weights[kept] * target_probs[kept] - draft_probs[kept], 0.0, None)
    return (*tokens[:kept], int(rng.choice(len(law), p=law / law.sum())))


def simulated_sampler_match(rng, tokens, draft_probs, target_probs):
    samples = [int(rng.choice(len(row), p=row)) for row in target_probs]
    agreed = next((i for i, token in enumerate(tokens) if samples[i] != token), len(tokens))
    return tuple(samples[: agreed + 1])


@pytest.mark.parametrize(
    ("rule", "simulate"),
    [(chain_step, simulated_chain), (block_step, simulated_block), (point_mass_step, simulated_sampler_match)],
)
def test_closed_form_is_what_the_algorithm_emits(rule, simulate):
    """The law equals the frequencies of the published algorithm, run with a fixed seed."""
    tokens, draft_probs, target_probs = rows(3, 3, 5)
    rng = np.random.default_rng(7)
    counts = {}
    for _ in range(SIMULATED_CALLS):
        emitted = simulate(rng, tokens, draft_probs, target_probs)
        counts[emitted] = counts.get(emitted, 0) + 1

    observed = {emitted: count / SIMULATED_CALLS for emitted, count in counts.items()}

    assert total_variation(rule(tokens, draft_probs, target_probs), observed) < SIMULATION_NOISE


def test_block_verification_emits_more_than_the_chain():
    """Block verification accepts at least as much on average, and more somewhere (its reason to exist)."""
    gains = []
    for seed in range(6):
        target = ConditionalTree(4, seed)
        draft = target.draft(seed + 1)
        lengths = [
            sum(probability * len(emitted) for emitted, probability in step_law(rule, draft, target, 3).items())
            for rule in (block_step, chain_step)
        ]
        gains.append(lengths[0] - lengths[1])

    assert min(gains) > -1e-12
    assert max(gains) > 0.01


def test_draft_paths_cover_the_draft_law():
    """Paths are the support of the draft, with probabilities that sum to one."""
    draft = ConditionalTree(5, 1, support=2)

    paths = dict(draft_paths(draft, 3))

    assert len(paths) == 8
    assert sum(paths.values()) == pytest.approx(1.0)


UNEVEN, FLAT = [0.7, 0.2, 0.1], [1 / 3] * 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([0], [UNEVEN], [FLAT]), "1 rows for 1 draft tokens; give 2"),
        (([3], [UNEVEN], [FLAT, FLAT]), r"draft_token_ids\[0\] is 3"),
        (([0], [UNEVEN, UNEVEN], [FLAT, FLAT]), "one row for each draft token"),
        (([0], [[0.5, 0.5]], [FLAT, FLAT]), "vocabulary of 3"),
        (([0], [[0.7, 0.2, 0.2]], [FLAT, FLAT]), r"draft_probs\[0\] sums to 1.1"),
        (([0], [UNEVEN], [FLAT, [0.5, np.nan, 0.5]]), r"target_probs\[1, 1\] is nan"),
        (([0], [[1.2, -0.2, 0.0]], [FLAT, FLAT]), r"draft_probs\[0, 1\] is -0.2"),
        (([0], None, [FLAT, FLAT]), "needs draft_probs"),
        (([0], [UNEVEN], FLAT), "num_draft_tokens \\+ 1, vocab"),
        (([0], [["a", "b", "c"]], [FLAT, FLAT]), "no rectangular array"),
    ],
)
def test_bad_input_names_the_row_and_the_value(arguments, says):
    """A bad law or shape is refused in one sentence that names the culprit."""
    with pytest.raises(UsageError, match=says):
        chain_step(*arguments)
