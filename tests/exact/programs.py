"""Turns verify functions into programs that draw the draft tokens too, over random trees of conditional laws."""

from __future__ import annotations

import numpy as np

from specverify.laws.sequence import completed_distance
from specverify.laws.tree import ConditionalTree


def trees(vocab_size, *, seed=1, support=None, disagreement=0.4):
    target = ConditionalTree(vocab_size, seed)
    return target, target.draft(seed + 1, support=support, disagreement=disagreement)


def drafted(source, draft, num_draft_tokens):
    """Draft tokens and the rows they were drawn from."""
    tokens, rows = (), []
    for _ in range(num_draft_tokens):
        rows.append(draft(tokens))
        tokens = (*tokens, source.choose(rows[-1]))
    return tokens, np.array(rows)


def numpy_program(verify, target, draft, num_draft_tokens):
    known = {}

    def program(source):
        tokens = ()
        for _ in range(num_draft_tokens):
            tokens = (*tokens, source.choose(draft(tokens)))
        if tokens not in known:
            rows = [draft(tokens[:count]) for count in range(num_draft_tokens)]
            known[tokens] = np.array(rows), target.rows(tokens)
        draft_probs, target_probs = known[tokens]
        return verify(source.numpy_generator(), np.array(tokens), draft_probs.copy(), target_probs.copy())

    return program


def python_program(verify, target, draft, num_draft_tokens):
    known = {}

    def rows_of(tokens):
        if tokens not in known:
            rows = [draft(tokens[:count]).tolist() for count in range(num_draft_tokens)]
            known[tokens] = rows, target.rows(tokens).tolist()
        return known[tokens]

    def program(source):
        tokens = ()
        for _ in range(num_draft_tokens):
            tokens = (*tokens, source.choose(draft(tokens)))
        return verify(source.python_random(), list(tokens), *rows_of(tokens))

    return program


def distance(law, target):
    """Completed total variation of an enumerated law from the target."""
    return completed_distance(law.probabilities, target).tv
