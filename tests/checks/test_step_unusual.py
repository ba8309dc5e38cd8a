"""Verify functions that only some sizes, shapes or parameters bring out, and unusual ones that must pass."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from specverify.adapters.function import FunctionSubject
from specverify.catalogue import check_by_id
from specverify.core.errors import UsageError
from specverify.core.outcomes import CheckResult, Outcome
from specverify.faults.verify_correct import TokenwiseVerifier
from specverify.faults.verify_unusual import FAULTS, FlatVerifier
from specverify.report.text import render_result
from specverify.runner import run_checks

FAULT = {fault.name: fault for fault in FAULTS}


def judged(function: Any, check_id: str = "lossless.step-law", effort: float = 0.05, **options: Any) -> CheckResult:
    subject = FunctionSubject(function, name="subject", **options)
    return run_checks(subject, checks=[check_by_id(check_id)], effort=effort).results[0]


class _ResidualByRejection(TokenwiseVerifier):
    """Draws from the residual by drawing from the target until a second test lets a token pass."""

    def residual_token(
        self, draft: Any, target: Any, position: int, token: int, uniform: float, rng: np.random.Generator
    ) -> int:
        while True:
            drawn = self.draw(target[position], rng)
            wanted, drafted = target[position, drawn], draft[position, drawn]
            if rng.random() * wanted < wanted - drafted:
                return drawn


class _TiledRace(TokenwiseVerifier):
    """The final token by a race in tiles of four: the best of each tile against the best so far."""

    def draw(self, mass: Any, rng: np.random.Generator) -> int:
        arrivals = np.where(mass > 0.0, mass / rng.exponential(size=len(mass)), 0.0)
        best, place = -1.0, 0
        for first in range(0, len(mass), 4):
            winner = first + int(np.argmax(arrivals[first : first + 4]))
            if arrivals[winner] > best:
                best, place = arrivals[winner], winner
        return place


@pytest.mark.parametrize("check_id", ["lossless.step-law", "random.draws-independent"])
@pytest.mark.parametrize("correct", [_ResidualByRejection, _TiledRace])
def test_what_cannot_be_enumerated_is_sampled_and_passes(correct, check_id):
    """A loop without end does not hang the check, and the running best of a race is no reuse of randomness."""
    result = judged(correct(), check_id, effort=0.25)

    assert result.outcome is Outcome.PASSED
    assert "could not be enumerated" in result.worth


def test_rows_of_unequal_length_lie_end_to_end():
    """Bonus ids come as [batch, 1], as vLLM documents, and rows begin where the one before ends."""
    result = judged(FlatVerifier())

    assert result.outcome is Outcome.PASSED
    assert "batches were not judged" not in result.worth


def test_counter_based_generators_with_a_key_are_followed():
    """The stream of a Philox that is told its key and counter is as good as a seed's."""

    def verify(draft_token_ids, draft_probs, target_probs, seed):
        def generator(position):
            return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, position]))

        for position, token in enumerate(draft_token_ids.tolist()):
            rng = generator(position)
            if not rng.random() * draft_probs[position, token] < target_probs[position, token]:
                mass = np.maximum(target_probs[position] - draft_probs[position], 0.0)
                return [*draft_token_ids[:position].tolist(), int(rng.choice(len(mass), p=mass / mass.sum()))]
        rng = generator(len(draft_token_ids))
        return [*draft_token_ids.tolist(), int(rng.choice(target_probs.shape[1], p=target_probs[-1]))]

    for check_id in ("lossless.step-law", "random.draws-independent"):
        result = judged(verify, check_id)
        assert result.outcome is Outcome.PASSED
        assert "exact" in result.worth


def test_a_numpy_generator_with_a_multinomial_does_not_make_a_torch_function():
    """rng.multinomial is no sign of torch: laws cast to float32 would sum to less than 1."""

    class Multinomial(TokenwiseVerifier):
        def draw(self, mass, rng):
            return int(rng.multinomial(1, mass / mass.sum()).argmax())

    subject = FunctionSubject(Multinomial().__call__, name="subject")

    assert set(subject.dialect.kinds.values()) == {"numpy"}


def test_candidates_of_a_tree_without_a_draft_law_differ():
    """A rule for trees of likeliest tokens counts a token once for each sibling; it is not given the same one twice."""

    def target_only(draft_token_ids, parents, target_probs, rng):
        tokens, node = [], -1
        while True:
            law, coin, tried = target_probs[node + 1].copy(), rng.random(), 0.0
            children, parent = np.flatnonzero(parents == node).tolist(), node
            for child in children:
                tried += law[draft_token_ids[child]]
                if coin < tried:
                    tokens.append(int(draft_token_ids[child]))
                    node = child
                    break
            if node == parent:
                law[draft_token_ids[children]] = 0.0
                law = law if law.any() else target_probs[node + 1]
                return [*tokens, int(rng.choice(len(law), p=law / law.sum()))], len(tokens)

    assert judged(target_only).outcome is Outcome.PASSED


def test_residual_tokens_of_every_position_are_read_at_the_first_rejection():
    """An accept mask and the recovered token of each position: nothing is drawn where all are accepted."""

    def verify(draft_token_ids, draft_probs, target_probs, rng):
        places = np.arange(len(draft_token_ids))
        wanted, drafted = target_probs[places, draft_token_ids], draft_probs[places, draft_token_ids]
        mass = np.maximum(target_probs[:-1] - draft_probs, 0.0)
        mass = np.where(mass.sum(axis=1, keepdims=True) > 0.0, mass, target_probs[:-1])
        recovered = [int(rng.choice(len(row), p=row / row.sum())) for row in mass]
        return rng.random(len(places)) * drafted < wanted, recovered

    subject = FunctionSubject(verify, name="subject")

    assert subject.dialect.returns.names == ("accepted_mask", "recovered_token_ids")
    assert judged(verify).outcome is Outcome.PASSED


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("constant", [None, 0.7])
def test_a_temperature_of_its_own_is_no_difference_from_the_target(constant):
    """Whether a function divides both logits, the target's only, or leaves it to its caller: each is one reading."""

    def both(draft_token_ids, draft_logits, target_logits, rng, temperature=1.0):
        laws = softmax(draft_logits / temperature), softmax(target_logits / temperature)
        return TokenwiseVerifier()(draft_token_ids, *laws, rng)

    def target(draft_token_ids, draft_probs, target_logits, rng, temperature=1.0):
        return TokenwiseVerifier()(draft_token_ids, draft_probs, softmax(target_logits / temperature), rng)

    def unused(draft_token_ids, draft_probs, target_logits, rng, temperature=1.0):
        return TokenwiseVerifier()(draft_token_ids, draft_probs, softmax(target_logits), rng)

    options = {} if constant is None else {"constants": {"temperature": constant}}

    assert [judged(one, **options).outcome for one in (both, target)] == [Outcome.PASSED] * 2
    if constant is None:
        assert "the caller has to apply it" in judged(unused).worth


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ("draft_token_ids, draft_logits, target_logits, rng, top_k=2", "filters by top_k=2"),
        ("draft_token_ids, draft_probs, target_probs, rng, temperature=0.5", "takes no target logits"),
        ("draft_token_ids, draft_logits, target_logits, rng, temperature=0", "is_greedy=True"),
        ("key, draft_token_ids, draft_probs, target_probs", "never as a constant"),
        ("*args, **kwargs", "names nothing"),
    ],
)
def test_what_a_function_does_to_its_laws_unasked_is_asked_about(parameters, words):
    """A filter by default would make a correct function fail; the user is told what to say."""
    scope: dict[str, Any] = {"rule": TokenwiseVerifier(), "softmax": softmax}
    laws = "softmax(draft_logits), softmax(target_logits)" if "logits" in parameters else "draft_probs, target_probs"
    exec(f"def verify({parameters}): return rule(draft_token_ids, {laws}, rng)", scope)

    with pytest.raises(UsageError, match=words):
        FunctionSubject(scope["verify"], name="subject")


def test_what_a_call_of_ones_own_sets_is_ones_own_business():
    """Defaults of a function that the user calls himself are not ours to ask about."""

    def verify(draft_token_ids, draft_probs, target_probs, rng, temperature=0.0, top_k=2):
        assert (temperature, top_k) == (1.0, 0)
        return TokenwiseVerifier()(draft_token_ids, draft_probs, target_probs, rng)

    def call(case, source):
        laws = case.draft_probs, case.target_probs
        return verify(np.array(case.draft_token_ids), *laws, source.numpy_generator(), 1.0, 0)

    assert judged(verify, call=call).outcome is Outcome.PASSED


def test_the_promise_of_an_answer_is_no_answer():
    """Coroutines and generators are named for what they are, once."""

    async def later(draft_token_ids, draft_probs, target_probs, rng):
        await asyncio.sleep(0)

    def piecemeal(draft_token_ids, draft_probs, target_probs, rng):
        yield 0

    for function, words in ((later, "it is async"), (piecemeal, "with a generator")):
        with pytest.raises(UsageError, match=words) as caught:
            FunctionSubject(function, name="subject")
        assert str(caught.value).count(words) == 1


def test_a_second_row_that_cannot_be_asked_is_named():
    """A batch axis that must be 1 passes, and the report says what a call on two rows ended in."""

    def verify(draft_token_ids, draft_probs, target_probs, rng):
        (drafts,), (draft,), (target,) = draft_token_ids, draft_probs, target_probs
        tokens, _ = TokenwiseVerifier()(drafts, draft, target, rng)
        return [tokens]

    result = judged(verify)

    assert result.outcome is Outcome.PASSED
    assert "batches were not judged: a call on two rows ends in ValueError" in result.worth


def test_the_message_of_a_large_vocabulary_shows_the_tokens_that_are_off():
    """Three hundred columns would help nobody."""
    fault = FAULT["verify-top-k-by-default"]

    message = render_result(judged(fault.make(), **fault.options))

    assert "vocabulary 300, one draft token" in message
    assert max(map(len, message.splitlines())) < 130
