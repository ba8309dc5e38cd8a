"""Operations on random tensors: modelled exactly, or refused with the line that called them, never guessed."""

from __future__ import annotations

import pytest
import torch

from specverify.exact.errors import NotEnumerable, UnsoundEnumeration
from tests.exact import torch_subjects
from tests.exact.programs import trees
from tests.exact.torch_programs import assert_law, probabilities, torch_law, torch_program, tv

WEIGHTS = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
LAW = {0: 0.2, 1: 0.3, 2: 0.5}


def uniform(generator, *size):
    return torch.rand(*size, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize(
    ("decide", "reason"),
    [
        (lambda u: u.sum() < 1, "closed form"),
        (lambda u: u[0] < u[1], "closed form|two"),
        (lambda u: u[0] * u[1] < 0.5, "closed form|product"),
        (lambda u: torch.softmax(u, 0)[0] < 0.5, "not modelled"),
        (lambda u: torch.sin(u)[0] < 0.5, "not modelled"),
        (lambda u: u.max() < 0.5, "not only its position|no exponential"),
        (lambda u: torch.ones(3)[(u * 3)] > 0, "not modelled|IndexError|index"),
        (lambda u: torch.clamp(torch.ones(2), max=u)[0] < 0.5, "closed form"),
        (lambda u: torch.zeros(2).index_add(0, torch.tensor([0, 0]), u.float())[0] < 0.5, "not modelled"),
    ],
)
def test_operations_without_a_closed_form_are_refused(decide, reason):
    """An operation that is not in the list is refused with the line that called it."""

    def program(source):
        return int(decide(torch.rand(2, dtype=torch.float64, generator=source.torch_generator())))

    with pytest.raises(NotEnumerable, match=reason) as caught:
        probabilities(program)
    assert "test_torch_operations.py" in caught.value.source_line


def test_a_swallowed_refusal_still_ends_the_enumeration():
    """A program that catches everything cannot go on with what it caught."""

    def program(source):
        generator = source.torch_generator()
        try:
            return int(torch.randn(1, generator=generator) > 0)
        except Exception:
            return int(uniform(generator, 1) < 0.5)

    with pytest.raises(NotEnumerable, match="not modelled"):
        probabilities(program)


def test_only_the_prefix_up_to_the_first_rejection_is_looked_at():
    """k accept tests cost k + 1 runs in every spelling, not 2^k."""
    chances = torch.full((6,), 0.5, dtype=torch.float64)
    spellings = [
        lambda accepted: accepted.long().cumprod(0).sum(),
        lambda accepted: ((~accepted).cumsum(-1) < 1).sum(),
        lambda accepted: torch.cat([~accepted, torch.tensor([True])]).int().argmax(),
        lambda accepted: accepted.cumprod(0).count_nonzero(),
        lambda accepted: torch.tensor(6) if accepted.all() else (~accepted).float().argmax(),
        lambda accepted: (accepted & torch.ones(6, dtype=torch.bool)).to(torch.int32).cumprod(-1).sum(-1),
        lambda accepted: accepted.float().cumprod(0).sum().long(),
    ]
    for spell in spellings:
        law = torch_law(lambda source, spell=spell: int(spell(uniform(source.torch_generator(), 6) < chances)))
        assert law.num_runs == 7
        assert law.probabilities[6] == pytest.approx(0.5**6)


def test_a_draw_compared_with_a_token_forks_in_two():
    """Matching a drawn token with a draft token asks one question of it."""

    def program(source):
        drawn = torch.multinomial(torch.ones(50, dtype=torch.float64), 1, generator=source.torch_generator())
        return int(drawn[0] == 7)

    law = torch_law(program)
    assert law.num_runs <= 2
    assert law.probabilities[1] == pytest.approx(0.02)


@pytest.mark.parametrize("guard", [1e-20, 1e-30])
def test_a_guard_against_zero_is_dropped_and_recorded(guard):
    """clamp(min=1e-20) changes a uniform with probability 1e-20: dropped, and its mass is in the law."""

    def program(source):
        noise = uniform(source.torch_generator(), 3).clamp(min=guard)
        return (WEIGHTS.log() - torch.log(-torch.log(noise))).argmax()

    law = torch_law(program, calls=200)
    assert 0 < law.clipped_mass < 4 * guard
    assert law.probabilities[2] == pytest.approx(0.5, abs=1e-12)


def test_a_clamp_that_matters_is_forked():
    """A clamp that changes a value often is decided like a comparison."""
    assert_law(
        {1: 0.4, 0: 0.6},
        lambda source: int(uniform(source.torch_generator(), 1).clamp(min=0.4) <= 0.4),
        calls=200,
    )


def test_attention_without_dropout_is_not_random():
    """Scaled dot product attention is tagged random for its dropout only."""

    def program(source):
        heads = torch.ones(1, 1, 3, 4)
        out = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return int(uniform(source.torch_generator(), 1) < out[0, 0, 0, 0] / 4)

    assert_law({1: 0.25, 0: 0.75}, program)


@pytest.mark.parametrize("verify", torch_subjects.STYLES.values(), ids=torch_subjects.STYLES)
def test_inference_mode_changes_nothing(verify):
    """Tensors made in inference mode bring whole composite operations to the dispatcher."""
    target, draft = trees(3)

    @torch.inference_mode()
    def verify_in_inference_mode(*arguments):
        return verify(*arguments)

    law = torch_law(torch_program(verify_in_inference_mode, target, draft, 2), calls=100)

    assert tv(law, target) < 1e-12


def test_tensors_that_leave_inference_mode_are_followed():
    """Composite operations on inference tensors outside of inference mode are taken apart."""

    def program(source):
        with torch.inference_mode():
            accepted = uniform(source.torch_generator(), 3) < 0.5
        return accepted.long().cumprod(0).sum()

    assert_law({3: 0.125, 2: 0.125, 1: 0.25, 0: 0.5}, program, calls=100)


def test_compiled_functions_are_enumerated_uncompiled():
    """torch.compile'd code runs as the Python that it was made from; ordinary calls run it compiled."""
    compiled = torch.compile(lambda values: (values < 0.5).long().cumprod(0).sum(), backend="eager")

    assert_law({2: 0.25, 1: 0.25, 0: 0.5}, lambda source: compiled(uniform(source.torch_generator(), 2)), calls=20)


def test_code_that_insists_on_ints_gets_ints():
    """Undecided numbers that no type check takes are decided in a second attempt."""

    def program(source):
        token = torch.multinomial(WEIGHTS, 1, generator=source.torch_generator()).item()
        return token if isinstance(token, int) else -1

    assert_law(LAW, program, calls=100)


def test_a_wrong_law_is_not_accepted():
    """Ordinary calls that contradict an enumerated law end it: here a program that sees who is watching."""

    def program(source):
        generator = source.torch_generator()
        is_watched = "Symbolic" in type(source).__name__
        return (uniform(generator, 1) < (0.5 if is_watched else 0.9)).long()

    with pytest.raises(UnsoundEnumeration, match="contradict"):
        probabilities(program, calls=500)
