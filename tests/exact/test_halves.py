"""Random numbers of half precision: laws with ties, held against ordinary calls of numpy and torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specverify.exact import torch_coarse
from specverify.exact.coarse import halves_in, rounding_cells
from specverify.exact.errors import NotEnumerable, ReusedRandomness
from specverify.exact.law import enumerate_law

# Both ends, two on the grids, two between their points.
THRESHOLDS = torch.tensor([0.0, 0.25, 0.3, 0.7501, 0.75, 1.0])
WEIGHTS = torch.tensor([0.1, 0.2, 0.3, 0.4])
NUM_CALLS = 200_000
HALVES = (torch.bfloat16, torch.float16)
BITS = {torch.float32: 24, torch.float64: 53}


def law_of(program, **options):
    return enumerate_law(program, cross_check_calls=200, **options)


def chances(law, size):
    """Probability that each of the program's truth values is true."""
    return np.array([sum(p for output, p in law.probabilities.items() if output[place]) for place in range(size)])


def assert_agrees(wanted, counted):
    """Shares of true values in NUM_CALLS ordinary calls lie within five standard deviations."""
    spread = np.sqrt(np.maximum(wanted * (1.0 - wanted), 1e-9) / NUM_CALLS)
    assert (np.abs(counted - wanted) < 5.0 * spread).all(), (wanted, counted)


def drawn(shape, dtype, generator):
    return torch.rand(shape, dtype=dtype, generator=generator)


def cast(shape, dtype, generator):
    return torch.rand(shape, generator=generator).to(dtype)


@pytest.mark.parametrize("compare", [torch.lt, torch.le, torch.eq], ids=["lt", "le", "eq"])
@pytest.mark.parametrize("uniforms", [drawn, cast])
@pytest.mark.parametrize("dtype", HALVES, ids=["bfloat16", "float16"])
def test_comparisons_follow_the_grid(dtype, uniforms, compare):
    """Thresholds on the grid, between its points and at both ends: the law is that of torch's own draws."""
    law = law_of(lambda source: compare(uniforms(6, dtype, source.torch_generator()), THRESHOLDS).long())

    native = compare(uniforms((NUM_CALLS, 6), dtype, torch.Generator().manual_seed(8)), THRESHOLDS)

    assert_agrees(chances(law, 6), native.double().mean(dim=0).numpy())


def test_numpy_rounds_uniforms_too():
    """astype(float16) of float64 and float32 draws, compared with numbers of other types."""
    limits = THRESHOLDS.double().numpy()

    def flags(generator, rows, dtype):
        halves = generator.random((rows, 6), dtype=dtype).astype(np.float16)
        return (halves <= limits).astype(int) + (halves == limits.astype(np.float16))

    for dtype in (np.float64, np.float32):
        law = law_of(lambda source, dtype=dtype: flags(source.numpy_generator(), 1, dtype)[0] == 2)
        native = flags(np.random.default_rng(3), NUM_CALLS, dtype) == 2
        assert_agrees(chances(law, 6), native.mean(axis=0))


def test_certain_and_impossible_ends():
    """A rounded uniform is 1 once in 512 draws, a drawn one is never 1 and is 0 as much more often."""
    rounded = law_of(lambda source: cast(1, torch.bfloat16, source.torch_generator()) == 1.0)
    never = law_of(lambda source: drawn(1, torch.bfloat16, source.torch_generator()) == 1.0)
    zero = law_of(lambda source: drawn(1, torch.bfloat16, source.torch_generator()) <= 0.0)

    assert pytest.approx(rounded.probabilities[(True,)], abs=2.0**-24) == 2.0**-9
    assert never.probabilities == {(False,): 1.0}
    assert pytest.approx(zero.probabilities[(True,)], abs=2.0**-24) == 2.0**-9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("half", HALVES, ids=["bfloat16", "float16"])
def test_cells_are_where_torch_rounds(half, dtype):
    """The first and the last uniform of every cell become the cell's value."""
    edges, values = rounding_cells(torch_coarse.name_of(half), BITS[dtype], via_single=dtype is torch.float64)

    for uniforms in ends(edges, BITS[dtype]):
        np.testing.assert_array_equal(values, torch.from_numpy(uniforms).to(dtype).to(half).double().numpy())


@pytest.mark.parametrize(("dtype", "bits"), [(np.float32, 24), (np.float64, 53)])
def test_cells_are_where_numpy_rounds(dtype, bits):
    """numpy rounds float64 to float16 at once, torch by way of float32."""
    edges, values = rounding_cells("float16", bits)

    for uniforms in ends(edges, bits):
        np.testing.assert_array_equal(values, uniforms.astype(dtype).astype(np.float16))


def ends(edges, bits):
    """The first and the last multiple of 2^-bits in every cell."""
    return np.append(0.0, edges), np.append(edges, 1.0) - 2.0**-bits


def test_arithmetic_rounds_as_torch_does():
    """u * q <= p in half precision: products round onto p, and that has a probability."""
    weights, draft = WEIGHTS.bfloat16(), torch.full((4,), 0.4375, dtype=torch.bfloat16)
    law = law_of(lambda source: (drawn(4, torch.bfloat16, source.torch_generator()) * draft <= weights).long())

    native = drawn((NUM_CALLS, 4), torch.bfloat16, torch.Generator().manual_seed(8)) * draft <= weights

    assert_agrees(chances(law, 4), native.double().mean(dim=0).numpy())


@pytest.mark.parametrize(
    "number",
    [
        lambda u: u[0] < 0.3,
        lambda u: u[0] < torch.tensor([0.3]),
        lambda u: u.item() < 0.3,
        lambda u: torch.tensor(0.3, dtype=torch.bfloat16) > u.item(),
        lambda u: u.to(torch.float64).view(1, 1)[:, 0].clone().log() < np.log(0.3),
        lambda u: torch.cat([u, torch.ones(2, dtype=torch.bfloat16)])[:1] < 0.3,
        lambda u: torch.searchsorted(torch.tensor([0.3, 0.9], dtype=torch.bfloat16), u) < 1,
        lambda u: (torch.tensor([0.3, 0.9, 1.0]) > u).int().argmax() == 0,
    ],
)
def test_spellings_of_a_comparison(number):
    """Casts up, views, items, mixed types and searches: each decides as torch decides it."""

    def program(u):
        return int(number(u))

    law = law_of(lambda source: program(drawn(1, torch.bfloat16, source.torch_generator())))
    # Two neighbours of .3 in bfloat16 are .299 and .301: what is promoted decides on which side .3 lies.
    values = torch.arange(0x3F80, dtype=torch.int16).view(torch.bfloat16)
    wanted = sum(
        chance for value, chance in zip(*cells(values), strict=True) if program(torch.tensor([value]).bfloat16())
    )

    assert wanted == pytest.approx(law.probabilities[1], abs=1e-12)


def cells(values):
    """Values of torch's bfloat16 uniforms and their probabilities, from the cells alone."""
    edges, found = torch_coarse.wrapped_cells("bfloat16")
    return found.tolist(), np.diff(edges, prepend=0.0, append=1.0).tolist()


@pytest.mark.parametrize("dtype", HALVES, ids=["bfloat16", "float16"])
def test_multinomial_of_half_precision_has_ties(dtype):
    """Its noise and quotients are rounded; the first of the largest wins, which favours the tokens in front."""
    weights = torch.tensor([0.0, 0.25, 0.25, 0.1, 0.4], dtype=dtype)
    law = law_of(lambda source: torch.multinomial(weights, 1, generator=source.torch_generator())).probabilities

    native = torch.multinomial(weights.expand(NUM_CALLS, 5), 1, generator=torch.Generator().manual_seed(8))
    shares = np.bincount(native[:, 0].numpy(), minlength=5) / NUM_CALLS

    assert_agrees(np.array([law.get((token,), 0.0) for token in range(5)]), shares)
    assert law[(1,)] > law[(2,)] + (4e-4 if dtype is torch.bfloat16 else 5e-5)


def test_as_if_fine_is_the_continuum():
    """What the law would be without the rounding, to tell the effect of the rounding from the rest."""

    def program(source):
        flags = drawn(2, torch.bfloat16, source.torch_generator()) < 0.3
        return flags.all().long() + torch.multinomial(WEIGHTS.bfloat16(), 1, generator=source.torch_generator())[0]

    law = law_of(program, halves_are_fine=True)

    wanted = WEIGHTS.bfloat16().double() / WEIGHTS.bfloat16().double().sum()
    assert 0.91 * float(wanted[0]) == pytest.approx(law.probabilities[0], abs=1e-12)
    assert None is law.cross_check


def test_laws_with_halves_say_so():
    """The notes name the type and the line where it comes in."""
    law = law_of(lambda source: (cast(1, torch.float16, source.torch_generator()) < 0.5).long())

    names, line = halves_in(law.notes)
    assert names == ("float16",)
    assert "return torch.rand(shape, generator=generator).to(dtype)" in line


def test_older_torch_takes_the_low_bits(monkeypatch):
    """Before 2.13 a bfloat16 uniform was one of 256 equally likely numbers; which kind it is, is found out."""

    def older(count, *, dtype, device, generator):
        words = torch.randint(0, 1 << 24, (count,), generator=generator)
        return (words / 2.0**24).to(dtype) if dtype is torch.float32 else (words % 256 / 256).to(dtype)

    monkeypatch.setattr(torch, "rand", older)
    edges, values = torch_coarse._drawn_cells.__wrapped__(torch.bfloat16, "cpu")

    np.testing.assert_array_equal(np.arange(256) / 256, values.double().numpy())
    np.testing.assert_array_equal(np.arange(1, 256) / 256, edges)


@pytest.mark.parametrize(
    "program",
    [
        lambda g: drawn(2, torch.bfloat16, g).sum() < 1.0,
        lambda g: drawn(1, torch.bfloat16, g) < drawn(1, torch.bfloat16, g),
        lambda g: (1.0 - torch.rand(1, generator=g)).bfloat16() < 0.5,
        lambda g: torch.empty(1, dtype=torch.bfloat16).uniform_(0.0, 2.0, generator=g) < 0.5,
        lambda g: (WEIGHTS.log() - drawn(4, torch.bfloat16, g).log().neg().log()).argmax(),
        lambda g: int(bool(drawn(1, torch.bfloat16, g))),
        lambda g: 1.0 / drawn(1, torch.bfloat16, g).item() < 2.0,
    ],
)
def test_what_needs_two_numbers_or_reads_one_is_refused(program):
    """No law is guessed."""
    with pytest.raises(NotEnumerable):
        law_of(lambda source: program(source.torch_generator()))


def test_one_seed_read_in_two_types_is_refused():
    """A bfloat16 draw and a float32 draw from one state depend on each other in a way that no symbol expresses."""

    def program(source):
        first, second = (torch.Generator().manual_seed(4) for _ in range(2))
        return (drawn(1, torch.bfloat16, first) < 0.5).long() + (torch.rand(1, generator=second) < 0.5).long()

    with pytest.raises(ReusedRandomness, match="bfloat16"):
        law_of(program)
