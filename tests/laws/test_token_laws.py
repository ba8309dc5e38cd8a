"""Closed forms of single tokens against the rules of whole steps."""

import numpy as np
import pytest

from specverify.laws.mistakes import mistake_named
from specverify.laws.steps import law_over_paths, paths_with_rows
from specverify.laws.token_laws import TOKEN_LAWS
from specverify.laws.tree import ConditionalTree

VOCAB = 5


@pytest.mark.parametrize("name", TOKEN_LAWS)
def test_a_token_s_law_is_the_rule_s_first_token(name):
    """One draft token, every draft: what the named mistake emits first."""
    target, draft = ConditionalTree(VOCAB, 1), ConditionalTree(VOCAB, 2)
    wanted = np.zeros(VOCAB)
    for tokens, probability in law_over_paths(mistake_named(name).rule, paths_with_rows(draft, target, 1)).items():
        wanted[tokens[0]] += probability

    (law,) = TOKEN_LAWS[name](target(())[None], draft(())[None])

    np.testing.assert_allclose(law, wanted, atol=1e-12)
