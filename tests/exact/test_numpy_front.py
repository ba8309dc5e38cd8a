"""Each draw of numpy's generators has its law, and what has no symbolic form is refused by name."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from specverify.exact.errors import NotEnumerable
from specverify.exact.law import enumerate_law

LAW = np.array([0.1, 0.2, 0.3, 0.4])
BY_TOKEN = dict(enumerate(LAW))


def law_of(program, **options):
    return enumerate_law(lambda source: program(source.numpy_generator()), cross_check_calls=500, **options)


def legacy(program):
    return enumerate_law(lambda source: program(np.random.RandomState()), cross_check_calls=500).probabilities


@pytest.mark.parametrize(
    ("draw", "wanted"),
    [
        (lambda g: g.choice(4, p=LAW), BY_TOKEN),
        (lambda g: g.choice([7, 8, 9, 10], p=LAW), {7: 0.1, 8: 0.2, 9: 0.3, 10: 0.4}),
        (lambda g: g.choice(np.array([5, 6])), {5: 0.5, 6: 0.5}),
        (lambda g: g.choice(2, size=1)[0], {0: 0.5, 1: 0.5}),
        (lambda g: g.integers(3), {0: 1 / 3, 1: 1 / 3, 2: 1 / 3}),
        (lambda g: g.integers(2, 4), {2: 0.5, 3: 0.5}),
        (lambda g: g.integers(1, 2, endpoint=True), {1: 0.5, 2: 0.5}),
        (lambda g: g.multinomial(1, LAW), {(1, 0, 0, 0): 0.1, (0, 1, 0, 0): 0.2, (0, 0, 1, 0): 0.3, (0, 0, 0, 1): 0.4}),
        (lambda g: g.multinomial(1, LAW).argmax(), BY_TOKEN),
        (lambda g: g.multinomial(1, LAW, size=2).argmax(axis=-1)[1], BY_TOKEN),
        (lambda g: g.binomial(1, 0.25), {0: 0.75, 1: 0.25}),
        (lambda g: int(g.uniform(2.0, 6.0) < 3.0), {1: 0.25, 0: 0.75}),
        (lambda g: int(g.random() * 4), {0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25}),
        (lambda g: int(g.exponential(2.0) > 2.0 * np.log(4.0)), {1: 0.25, 0: 0.75}),
        (lambda g: int(g.standard_exponential() > np.log(4.0)), {1: 0.25, 0: 0.75}),
        (lambda g: int(g.standard_exponential(method="inv") > np.log(4.0)), {1: 0.25, 0: 0.75}),
        (lambda g: int(g.gumbel() < -np.log(np.log(4.0))), {1: 0.25, 0: 0.75}),
        (lambda g: int(g.random(dtype=np.float32) < 0.25), {1: 0.25, 0: 0.75}),
        (lambda g: int(1.0 - g.random() < 0.25), {1: 0.25, 0: 0.75}),
        (lambda g: int(-np.log1p(-g.random()) < np.log(4.0)), {1: 0.75, 0: 0.25}),
        (lambda g: int(np.log(g.random() + 0.5) < 0.0), {1: 0.5, 0: 0.5}),
        (lambda g: int(np.log2(g.random()) < -2.0), {1: 0.25, 0: 0.75}),
        (lambda g: int(np.sqrt(g.random()) < 0.5), {1: 0.25, 0: 0.75}),
        (lambda g: int(g.random() ** 2 < 0.0625), {1: 0.25, 0: 0.75}),
        (lambda g: int(0.5 / g.random() > 2.0), {1: 0.25, 0: 0.75}),
        (lambda g: int(np.exp(g.random()) < np.exp(0.25)), {1: 0.25, 0: 0.75}),
        (lambda g: int(g.random() < 0.25), {1: 0.25, 0: 0.75}),
        (lambda g: int(np.float64(0.25) > g.random()), {1: 0.25, 0: 0.75}),
        (lambda g: int(np.array([0.25, 0.5])[0] >= g.random(1)[0]), {1: 0.25, 0: 0.75}),
        (lambda g: int(0.25 <= g.random() <= 0.75), {1: 0.5, 0: 0.5}),
        (lambda g: int(not (g.random() >= 0.25)), {1: 0.25, 0: 0.75}),
        (lambda g: int(min(g.random(), 1.0) < 0.25), {1: 0.25, 0: 0.75}),
    ],
)
def test_draws_of_a_generator(draw, wanted):
    """Each draw, and each function of a uniform, decides with the probability that it should."""
    law = law_of(draw)

    assert wanted.keys() == law.probabilities.keys()
    assert wanted == pytest.approx(law.probabilities, abs=1e-14)


@pytest.mark.parametrize(
    ("draw", "wanted"),
    [
        (lambda g: g.choice(4, p=LAW), BY_TOKEN),
        (lambda g: g.randint(2, 4), {2: 0.5, 3: 0.5}),
        (lambda g: int(g.rand() < 0.25), {1: 0.25, 0: 0.75}),
        (lambda g: tuple((g.rand(2) < 0.5).astype(int)), {(0, 0): 0.25, (0, 1): 0.25, (1, 0): 0.25, (1, 1): 0.25}),
        (lambda g: int(g.uniform(2.0, 6.0) < 3.0), {1: 0.25, 0: 0.75}),
        (lambda g: np.argmax(LAW / g.exponential(size=4)), BY_TOKEN),
        (lambda g: np.argmin(g.standard_exponential(4) / LAW), BY_TOKEN),
        (lambda g: np.argmax(np.log(LAW) + g.gumbel(size=4)), BY_TOKEN),
        (lambda g: g.multinomial(1, LAW).argmax(), BY_TOKEN),
    ],
)
@pytest.mark.parametrize(
    "owner", [lambda: np.random.RandomState(), lambda: np.random], ids=["RandomState", "numpy.random"]
)
def test_draws_of_the_legacy_generator(draw, wanted, owner):
    """RandomState and the functions of numpy.random have the same laws."""
    law = enumerate_law(lambda source: draw(owner()), cross_check_calls=500).probabilities

    assert wanted.keys() == law.keys()
    assert wanted == pytest.approx(law, abs=1e-14)


def test_choice_without_replacement():
    """Successive draws from what is left, renormalised; the last one stays open."""
    law = law_of(lambda g: g.choice(3, size=2, replace=False, p=[0.5, 0.3, 0.2]))

    wanted = {
        (a, b): p * q / (1 - p) for a, p in enumerate((0.5, 0.3, 0.2)) for b, q in enumerate((0.5, 0.3, 0.2)) if a != b
    }
    assert wanted == pytest.approx(law.probabilities)
    assert law.num_runs == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: g.choice(2, p=[0.5, 0.6]), "do not sum to 1"),
        (lambda g: g.choice(2, p=[1.5, -0.5]), "not non-negative"),
        (lambda g: g.choice(2, p=[np.nan, 1.0]), "contain NaN"),
        (lambda g: g.choice(3, p=[0.5, 0.5]), "same size"),
        (lambda g: g.integers(3, 3), "low >= high"),
        (lambda g: g.choice(3, size=3, replace=False, p=[0.5, 0.5, 0.0]), "Fewer non-zero entries"),
    ],
)
def test_numpys_own_complaints_are_kept(call, message):
    """What numpy refuses, the stand-in refuses in the same words: the function's own crash stays visible."""
    with pytest.raises(ValueError, match=message):
        law_of(lambda g: (int(g.random() < 2.0), call(g)))


@pytest.mark.parametrize(
    "call",
    [
        lambda g: int(g.normal() < 0.0),
        lambda g: g.permutation(3),
        lambda g: g.shuffle([1, 2, 3]),
        lambda g: g.multinomial(2, LAW),
        lambda g: np.sort(g.random(3)),
        lambda g: np.argsort(g.random(3)),
        lambda g: int(g.random(3).sum() < 1.0),
        lambda g: int(np.mean(g.random(3)) < 1.0),
        lambda g: int(g.random() + g.random() < 1.0),
        lambda g: int(g.random() < g.random()),
        lambda g: int(np.sin(g.random()) < 0.5),
        lambda g: int(g.random(3).max() < 0.5),
        lambda g: np.zeros(2).__iadd__(g.random(2)),
        lambda g: np.multiply(np.ones(2), g.random(2), out=np.zeros(2)),
        lambda g: int(np.array(g.random(2), dtype=np.int64)[0]),
        lambda g: int(np.zeros(3)[g.random(3).astype(int)][0]),
        lambda g: int(np.einsum("i,i", g.random(2), np.ones(2)) < 1.0),
        lambda g: int(np.dot(g.random(2), np.ones(2)) < 1.0),
        lambda g: int(g.random(2).view(np.int64)[0]),
        lambda g: g.bit_generator.random_raw(),
        lambda g: g.random(2, out=np.zeros(2)),
        lambda g: [1, 2, 3][g.random()],
        lambda g: f"{g.random():.3f}",
        lambda g: np.fromiter(g.random(2), dtype=float),
        lambda g: int(memoryview(g.random(2))[0]),
        lambda g: np.cumsum(g.random(3)),
        lambda g: np.linalg.norm(g.random(3)),
        lambda g: np.unique(g.random(3)),
        lambda g: np.floor(g.random(3)),
        lambda g: np.asarray(g.random(3), dtype=np.float64).tobytes(),
        lambda g: int(np.frombuffer(g.random(2))[0]),
    ],
)
def test_what_has_no_symbolic_form_is_refused(call):
    """Nothing is computed by guess: no ordinary array ever holds a random number."""
    with pytest.raises(NotEnumerable):
        law_of(lambda g: (int(g.random() < 0.5), call(g)))


def test_writing_random_numbers_into_an_array_is_refused():
    """An ordinary array cannot hold a symbol."""

    def program(g):
        noise = np.zeros(2)
        noise[0] = g.random()
        return int(noise[0] < 0.5)

    with pytest.raises(NotEnumerable):
        law_of(program)


def test_views_and_in_place_operations():
    """Writes through views of random arrays reach the array."""

    def program(g):
        noise = g.exponential(size=(2, 4))
        noise *= 2.0
        row = noise[1]
        row /= LAW
        noise[0] = np.inf
        return np.unravel_index(int(np.argmin(noise)), noise.shape)

    law = law_of(program)

    assert {(1, token): share for token, share in BY_TOKEN.items()} == pytest.approx(law.probabilities)


def test_isinstance_of_generators_holds():
    """Functions that check their generator's type accept the stand-in."""

    def program(source):
        assert isinstance(source.numpy_generator(), np.random.Generator)
        assert isinstance(np.random.default_rng(0), np.random.Generator)
        assert isinstance(np.random.RandomState(0), np.random.RandomState)
        return int(np.random.default_rng(source.numpy_generator()).random() < 0.5)

    assert enumerate_law(program).probabilities == {0: 0.5, 1: 0.5}


def test_batched_selection():
    """Races and inverse CDFs along the last axis of a batch are one deferred draw for each row."""

    def program(g):
        rows = np.array([LAW, LAW[::-1]])
        raced = np.argmax(np.log(rows) + g.gumbel(size=(2, 4)), axis=-1)
        counted = (g.random((2, 1)) > np.cumsum(rows, axis=-1)[:, :-1]).sum(axis=-1)
        return raced, counted

    law = law_of(program)

    assert law.num_runs == 1
    assert pytest.approx(law.probabilities[(0, 0), (1, 1)]) == 0.1 * 0.4 * 0.2 * 0.3


def test_arrays_made_of_random_scalars():
    """np.array of scalars drawn one by one is an array of random numbers."""

    def program(g):
        noise = np.array([-np.log(g.random()) for _ in range(4)])
        return np.argmin(noise / LAW)

    assert pytest.approx(law_of(program).probabilities) == BY_TOKEN


def test_random_numbers_in_a_list_decide_as_python_does():
    """A list of scalars compared one by one forks one by one."""

    def program(g):
        return sum(1 for value in [g.random() for _ in range(3)] if value < 0.5)

    assert law_of(program).probabilities == {0: 0.125, 1: 0.375, 2: 0.375, 3: 0.125}


def test_single_precision_is_noted():
    """A float32 uniform is a continuum to 6e-8, which is said."""
    law = law_of(lambda g: int(g.random(2).astype(np.float32)[0] < 0.5))

    assert any("single precision" in note for note in law.notes)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_row_searches_for_a_random_number_by_its_own_method(side):
    """row.searchsorted(u) is compiled code: it gives the law of the function np.searchsorted."""
    edges = LAW.cumsum()[:-1]

    law = law_of(lambda generator: edges.searchsorted(generator.random(1), side=side)[0])

    assert law.probabilities == pytest.approx(BY_TOKEN, abs=1e-15)


def test_a_search_does_not_open_random_numbers_to_other_compiled_code():
    """Where a function searches, its other conversions of random numbers still cannot read them."""

    def program(generator):
        uniforms = generator.random(1)
        return LAW.searchsorted(uniforms)[0] + (float(LAW[:1].dot(uniforms)) > 0.05)

    with pytest.raises(NotEnumerable):
        law_of(program)


@pytest.mark.parametrize("ratios", [(0.25, 3.0, 0.5), (-1.0, 0.25, 2.0), (1.0, 1.0, 1.0), (-2.0, -1.0, 0.0)])
@pytest.mark.parametrize("way", ["first", "first-above", "count", "count-above"])
def test_thresholds_outside_the_unit_interval_are_never_reached(ratios, way):
    """A uniform is below every ratio of 1 or more and above every ratio of 0 or less."""
    ratios = np.array(ratios)

    def looked_at(uniform):
        truths = uniform > ratios if way.endswith("above") else uniform < ratios
        return truths.sum() if way.startswith("count") else truths.argmax()

    law = law_of(lambda generator: looked_at(generator.random(1) * np.ones(3)))

    corners = np.unique(np.clip([0.0, *ratios, 1.0], 0.0, 1.0))
    wanted = dict.fromkeys(law.probabilities, 0.0)
    for low, high in itertools.pairwise(corners):
        value = int(looked_at((low + high) / 2))
        wanted[value] = wanted.get(value, 0.0) + high - low
    assert law.probabilities == pytest.approx(wanted, abs=1e-15)
