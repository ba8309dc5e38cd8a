"""Other correct methods than token-wise rejection, and mistakes: enumerated, and told apart by their laws."""

from __future__ import annotations

import numpy as np
import pytest

from specverify.exact.law import enumerate_law
from tests.exact.programs import distance, numpy_program, trees


def block_verification(rng, draft, draft_probs, target_probs):
    """Sun et al. 2024, arXiv 2403.10444, algorithm 2: the longest prefix that passes is kept."""
    weight, kept = 1.0, 0
    finals = [target_probs[0] * 0.0] * (len(draft) + 1)
    for i in range(len(draft) + 1):
        if i:
            token = draft[i - 1]
            weight = min(1.0, weight * target_probs[i - 1, token] / draft_probs[i - 1, token])
        if i == len(draft):
            passes, finals[i] = weight, target_probs[i]
        else:
            mass = np.maximum(weight * target_probs[i] - draft_probs[i], 0.0)
            passes = mass.sum() / (mass.sum() + 1.0 - weight)
            finals[i] = mass / (mass.sum() or 1.0)
        if i and rng.random() <= passes:
            kept = i
    return (*draft[:kept], rng.choice(target_probs.shape[1], p=finals[kept]))


def block_that_stops(rng, draft, draft_probs, target_probs):
    """As above, but a prefix that fails ends the search: right for one draft token, wrong for more."""
    weight, kept = 1.0, 0
    for i in range(1, len(draft) + 1):
        weight = min(1.0, weight * target_probs[i - 1, draft[i - 1]] / draft_probs[i - 1, draft[i - 1]])
        mass = np.maximum(weight * target_probs[i] - draft_probs[i], 0.0) if i < len(draft) else None
        passes = weight if mass is None else mass.sum() / (mass.sum() + 1.0 - weight)
        if rng.random() > passes:
            break
        kept = i
    if kept == len(draft):
        return (*draft, rng.choice(target_probs.shape[1], p=target_probs[-1]))
    weight = 1.0
    for i in range(kept):
        weight = min(1.0, weight * target_probs[i, draft[i]] / draft_probs[i, draft[i]])
    mass = np.maximum(weight * target_probs[kept] - draft_probs[kept], 0.0)
    return (*draft[:kept], rng.choice(len(mass), p=mass / mass.sum()))


def sampler_match(rng, draft, draft_probs, target_probs):
    """Draws the target's own token at every position and keeps the draft as far as it agrees."""
    tokens = []
    for position, row in enumerate(target_probs):
        token = rng.choice(len(row), p=row)
        tokens.append(token)
        if position < len(draft) and token != draft[position]:
            break
    return tokens


def test_block_verification_is_lossless():
    """Acceptance need not be token by token."""
    target, draft = trees(4, seed=11)

    law = enumerate_law(numpy_program(block_verification, target, draft, 3), cross_check_calls=300)

    assert distance(law, target) < 1e-12


@pytest.mark.parametrize(("num_draft_tokens", "is_wrong"), [(1, False), (3, True)])
def test_block_that_stops_at_its_first_failure_shows_with_more_drafts(num_draft_tokens, is_wrong):
    """A defect that one draft token cannot show."""
    target, draft = trees(4, seed=11)

    law = enumerate_law(numpy_program(block_that_stops, target, draft, num_draft_tokens), cross_check_calls=300)

    assert is_wrong == (distance(law, target) > 1e-3)


def test_sampler_match_is_lossless():
    """A method that accepts little is still correct."""
    target, draft = trees(5, seed=2)

    law = enumerate_law(numpy_program(sampler_match, target, draft, 2), cross_check_calls=300)

    assert distance(law, target) < 1e-12


def recursive_rejection(rng, candidates, draft_row, target_row, *, replace, renormalise=True):
    """Several candidates for one position: each is tried against what the ones before it left."""
    draft_row, target_row = draft_row.copy(), target_row.copy()
    for token in candidates:
        if rng.random() < target_row[token] / draft_row[token]:
            return token, True
        target_row = np.maximum(target_row - draft_row, 0.0)
        target_row /= target_row.sum()
        if not replace:
            draft_row[token] = 0.0
            if renormalise:
                draft_row /= draft_row.sum()
    return rng.choice(len(target_row), p=target_row), False


def multi_draft_program(target, draft, num_candidates, *, replace, renormalise=True):
    """Two levels of candidates, drafting included."""

    def program(source):
        rng = source.numpy_generator()
        tokens = ()
        for _ in range(2):
            row = draft(tokens)
            candidates = rng.choice(len(row), size=num_candidates, replace=replace, p=row)
            token, is_accepted = recursive_rejection(
                rng, candidates.tolist(), row, target(tokens), replace=replace, renormalise=renormalise
            )
            tokens = (*tokens, token)
            if not is_accepted:
                return tokens
        return (*tokens, rng.choice(len(target(tokens)), p=target(tokens)))

    return program


@pytest.mark.parametrize("replace", [True, False], ids=["with replacement", "without"])
def test_recursive_rejection_is_lossless(replace):
    """Several candidates with drafting enumerated: the target's law."""
    target, draft = trees(4, seed=21)

    law = enumerate_law(multi_draft_program(target, draft, 2, replace=replace), cross_check_calls=300)

    assert distance(law, target) < 1e-12


def test_forgetting_to_renormalise_the_draft_law_is_seen():
    """Without replacement the second candidate's law is the draft law without the first."""
    target, draft = trees(4, seed=21)

    law = enumerate_law(multi_draft_program(target, draft, 2, replace=False, renormalise=False), cross_check_calls=300)

    assert distance(law, target) > 1e-3


def test_the_declared_law_must_be_the_sampled_one():
    """Enumerating drafting and verification together shows a draft law that is declared at another temperature."""
    target, draft = trees(5, seed=4)

    def program(source):
        rng = source.numpy_generator()
        declared = draft(())
        sampled = declared**1.2 / (declared**1.2).sum()
        token = rng.choice(5, p=sampled)
        if rng.random() < target(())[token] / declared[token]:
            return token
        residual = np.maximum(target(()) - declared, 0.0)
        return rng.choice(5, p=residual / residual.sum())

    law = enumerate_law(lambda source: (program(source),), cross_check_calls=300)

    assert distance(law, target) > 1e-3
