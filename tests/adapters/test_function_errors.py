"""What is wrong with a mapping ends in one UsageError that says what to write."""

from __future__ import annotations

import pytest

from specverify import verified
from specverify.adapters.function import FunctionSubject
from specverify.core.errors import UsageError


def verify(draft_ids, q, p, generator):
    return list(draft_ids)


def strange(alpha, beta, gamma_rays):
    return []


def unknown_extra(draft_ids, draft_probs, target_probs, rng, selector):
    return []


def refuses(draft_ids, draft_probs, target_probs):
    raise RuntimeError("no such kernel\nand a second line")


def answers_in_words(draft_ids, draft_probs, target_probs):
    return "accepted"


class Engine:
    def verify(self, draft_ids, draft_probs, target_probs):
        return []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: verified(draft_token_ids="drafts")(verify), ["no parameter 'drafts'", "draft_ids, q, p, generator"]),
        (lambda: verified(draft_tokens="draft_ids")(verify), ["no argument 'draft_tokens'", "draft_token_ids"]),
        (lambda: verified(draft_probs="q", target_probs="q")(verify), ["'q'", "two meanings"]),
        (lambda: verified(draft_probs=3)(verify), ["as a string"]),
        (lambda: verified(3), ["wants a function"]),
        (lambda: FunctionSubject(verify, kind="jax"), ["kind='jax'", "'numpy'"]),
        (lambda: FunctionSubject(verify, dtype="int8"), ["dtype='int8'", "'float32'"]),
        (lambda: FunctionSubject(verify, rng_kind="cuda"), ["rng_kind='cuda'", "'torch'"]),
        (lambda: FunctionSubject(verify, layout="tree"), ["layout='tree'", "'batch'"]),
        (lambda: FunctionSubject(verify, returns=("tokens",)), ["'tokens'", "token_ids"]),
        (lambda: FunctionSubject(verify, returns=()), ["returns=()"]),
        (lambda: FunctionSubject(verify, returns="_"), ["names no part"]),
        (lambda: FunctionSubject(verify, constants={"seed": 1}), ["no parameter 'seed'"]),
        (lambda: FunctionSubject(strange), ["alpha", "beta", "Write, with the names filled in", "target_probs"]),
        (lambda: FunctionSubject(unknown_extra), ["selector", 'draft_token_ids="draft_ids"', "constants="]),
        (lambda: FunctionSubject(Engine.verify), ["method without its object", "instance=object"]),
        (lambda: FunctionSubject(refuses), ["RuntimeError: no such kernel", "call=lambda case, source"]),
        (lambda: FunctionSubject(answers_in_words), ["'accepted'", "returns="]),
        (lambda: FunctionSubject(None), ["wants a function"]),
        (lambda: FunctionSubject(min), ["call=lambda case, source"]),
    ],
)
def test_wrong_mapping_is_one_clear_error(make, words):
    """The error names what came, what there is to choose from, and what to write."""
    with pytest.raises(UsageError) as caught:
        make()

    for word in words:
        assert word in str(caught.value)
    assert "second line" not in str(caught.value)
