"""Every random call of torch that is modelled, alone: its law is the one torch documents."""

from __future__ import annotations

import pytest
import torch

from specverify.exact.errors import NotEnumerable
from tests.exact.torch_programs import assert_law, probabilities, torch_law

WEIGHTS = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
LAW = {0: 0.2, 1: 0.3, 2: 0.5}
COIN = {1: 0.3, 0: 0.7}
PAIRS_WITHOUT = {(0, 1): 0.075, (0, 2): 0.125, (1, 0): 3 / 35, (1, 2): 3 / 14, (2, 0): 0.2, (2, 1): 0.3}
PAIRS_WITH = {(a, b): LAW[a] * LAW[b] for a in LAW for b in LAW}


def uniform_into_view(generator):
    buffer = torch.zeros(2, 3, dtype=torch.float64)
    buffer[1].uniform_(generator=generator)
    return (buffer.t()[2, 1] < 0.3).long()


def uniform_from_minus_one_to_one(generator):
    return (torch.empty((), dtype=torch.float64).uniform_(-1, 1, generator=generator) < -0.4).long()


def uniform_into_out(generator):
    out, below = torch.empty(1, dtype=torch.float64), torch.empty(1, dtype=torch.bool)
    torch.rand(1, generator=generator, out=out, dtype=torch.float64)
    torch.lt(out, 0.3, out=below)
    return below.long()[0]


@pytest.mark.parametrize(
    "draw",
    [
        lambda g: (torch.rand((), generator=g, dtype=torch.float64) < 0.3).long(),
        lambda g: (torch.rand(2, 2, generator=g, dtype=torch.float64)[1, 0] >= 0.7).long(),
        lambda g: (torch.rand_like(WEIGHTS)[2] < 0.3).int(),
        uniform_into_view,
        uniform_from_minus_one_to_one,
        uniform_into_out,
        lambda g: torch.bernoulli(torch.tensor(0.3, dtype=torch.float64), generator=g).long(),
        lambda g: torch.empty(()).bernoulli_(0.3, generator=g).bool().long(),
        lambda g: torch.empty(2).bernoulli_(torch.tensor([0.9, 0.3], dtype=torch.float64), generator=g)[1].long(),
        lambda g: (torch.randint(0, 10, (), generator=g) < 3).long(),
        lambda g: (torch.zeros((), dtype=torch.long).random_(10, generator=g) < 3).long(),
        lambda g: int(torch.rand(1, generator=g).item() < 0.3),
        lambda g: int(torch.rand(1, 2, generator=g, dtype=torch.float64).tolist()[0][1] < 0.3),
    ],
)
def test_coins(draw):
    """A uniform compared with .3, or a coin of chance .3, in every spelling."""
    assert_law(COIN, lambda source: draw(source.torch_generator()), calls=200)


@pytest.mark.parametrize(
    "draw",
    [
        lambda g: torch.multinomial(WEIGHTS, 1, generator=g)[0],
        lambda g: torch.multinomial(WEIGHTS.expand(2, 3), 1, generator=g)[1, 0],
        lambda g: torch.multinomial(WEIGHTS * 7, 1, generator=g).item(),
        lambda g: int(torch.multinomial(WEIGHTS, 1, generator=g)),
        lambda g: (WEIGHTS / torch.empty(3).exponential_(generator=g)).argmax(),
        lambda g: (torch.empty_like(WEIGHTS).exponential_(2.0, generator=g) / WEIGHTS).argmin(),
        lambda g: (WEIGHTS.log() - torch.empty_like(WEIGHTS).exponential_(generator=g).log()).argmax(),
        lambda g: (WEIGHTS.log() - torch.log(-torch.log(torch.rand(3, generator=g)))).argmax(),
        lambda g: (torch.rand(3, generator=g, dtype=torch.float64) ** (1 / WEIGHTS)).argmax(),
        lambda g: (torch.rand(3, generator=g).log() / WEIGHTS).max(dim=0).indices,
        lambda g: (-torch.log1p(-torch.rand(3, generator=g)) / WEIGHTS).sort().indices[0],
        lambda g: (WEIGHTS / torch.empty(3).exponential_(generator=g)).topk(1).indices[0],
        lambda g: torch.searchsorted(WEIGHTS.cumsum(0), torch.rand(1, generator=g), right=True)[0],
        lambda g: torch.bucketize(torch.rand(1, generator=g, dtype=torch.float64), WEIGHTS.cumsum(0))[0],
        lambda g: (WEIGHTS.cumsum(0) > torch.rand((), generator=g, dtype=torch.float64)).int().argmax(),
        lambda g: (WEIGHTS.cumsum(0) <= torch.rand((), generator=g, dtype=torch.float64)).sum(),
        lambda g: (torch.rand(1, 1, generator=g, dtype=torch.float64) >= WEIGHTS.cumsum(0)).sum(-1)[0],
    ],
)
def test_categorical_draws(draw):
    """One token from three weights, in every spelling: multinomial, race, Gumbel, inverse CDF."""
    law = probabilities(lambda source: draw(source.torch_generator()), calls=200)

    assert max(abs(law.get(token, 0.0) - share) for token, share in LAW.items()) < 1e-12


@pytest.mark.parametrize(
    ("wanted", "draw"),
    [
        (PAIRS_WITHOUT, lambda g: torch.multinomial(WEIGHTS, 2, generator=g)),
        (PAIRS_WITHOUT, lambda g: (WEIGHTS.log() - torch.log(-torch.rand(3, generator=g).log())).topk(2).indices),
        (PAIRS_WITHOUT, lambda g: (torch.empty(3).exponential_(generator=g) / WEIGHTS).argsort()[:2]),
        (PAIRS_WITH, lambda g: torch.multinomial(WEIGHTS, 2, replacement=True, generator=g)),
        ({(a, b): 1 / 4 for a in (1, 2) for b in (1, 2)}, lambda g: torch.randint(1, 3, (2,), generator=g)),
        ({(a, b): 1 / 6 for a in range(3) for b in range(3) if a != b}, lambda g: torch.randperm(3, generator=g)[:2]),
    ],
)
def test_several_draws_at_once(wanted, draw):
    """Draws with and without replacement: successive choices."""
    assert_law(wanted, lambda source: draw(source.torch_generator()), calls=200)


@pytest.mark.parametrize(
    "draw",
    [
        lambda g: torch.randn(1, generator=g) > 0,
        lambda g: torch.empty(1).normal_(generator=g) > 0,
        lambda g: torch.normal(0.0, 1.0, (1,), generator=g) > 0,
        lambda g: torch.empty(1).cauchy_(generator=g) > 0,
        lambda g: torch.poisson(torch.ones(1), generator=g) > 0,
        lambda g: torch.randint(0, 2**40, (1,), generator=g) > 5,
    ],
)
def test_other_draws_are_refused(draw):
    """A kind of draw that is not modelled ends the enumeration with its name and the user's line."""
    with pytest.raises(NotEnumerable, match="not modelled") as caught:
        probabilities(lambda source: draw(source.torch_generator()).long())

    assert "aten." in caught.value.operation
    assert "test_torch_draws.py" in caught.value.source_line


def test_invalid_weights_raise_what_torch_raises():
    """A program's own error stays its own."""
    with pytest.raises(RuntimeError, match="multinomial"):
        probabilities(lambda source: torch.multinomial(torch.zeros(3), 1, generator=source.torch_generator()))


def test_uniforms_as_an_argument():
    """Programs may take their uniforms as a tensor."""
    assert_law(COIN, lambda source: (source.torch_uniforms((2,))[1] < 0.3).long(), calls=200)
    assert_law(COIN, lambda source: int(source.torch_uniforms(1) < 0.3), calls=200)


def test_exponentials_of_half_precision_are_refused():
    """They tie, and a race knows no ties."""
    with pytest.raises(NotEnumerable, match="ties"):
        torch_law(
            lambda source: (
                WEIGHTS.bfloat16()
                .div(torch.zeros(3).bfloat16().exponential_(generator=source.torch_generator()))
                .argmax()
            )
        )


def test_single_precision_is_noted():
    """The law of a float32 uniform is a continuum's but for its 24 bits, and says so."""
    law = torch_law(lambda source: (torch.rand(1, generator=source.torch_generator()) < 0.5).long())

    assert any("2^-24" in note for note in law.notes)
