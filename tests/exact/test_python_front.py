"""Python's random module and math: laws of each draw, and refusal of the rest."""

from __future__ import annotations

import math
import random
from math import log as imported_log

import pytest

from specverify.exact import patching
from specverify.exact.errors import NotEnumerable
from specverify.exact.law import enumerate_law

WEIGHTS = [1.0, 2.0, 3.0, 4.0]
BY_TOKEN = {0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}


@pytest.mark.parametrize(
    ("draw", "wanted"),
    [
        (lambda r: r.choices(range(4), weights=WEIGHTS)[0], BY_TOKEN),
        (lambda r: r.choices(range(4), cum_weights=[1.0, 3.0, 6.0, 10.0], k=2)[1], BY_TOKEN),
        (lambda r: r.choices("ab")[0], {"a": 0.5, "b": 0.5}),
        (lambda r: r.choice([4, 5]), {4: 0.5, 5: 0.5}),
        (lambda r: r.randrange(1, 7, 2), {1: 1 / 3, 3: 1 / 3, 5: 1 / 3}),
        (lambda r: r.randint(1, 2), {1: 0.5, 2: 0.5}),
        (lambda r: int(r.random() < 0.25), {1: 0.25, 0: 0.75}),
        (lambda r: int(r.uniform(1.0, 3.0) < 1.5), {1: 0.25, 0: 0.75}),
        (lambda r: int(r.expovariate(2.0) > math.log(4.0) / 2.0), {1: 0.25, 0: 0.75}),
        (lambda r: int(math.log(r.random()) < -math.log(4.0)), {1: 0.25, 0: 0.75}),
        (lambda r: int(imported_log(r.random()) < -math.log(4.0)), {1: 0.25, 0: 0.75}),
        (lambda r: int(math.log(r.random(), 2.0) < -2.0), {1: 0.25, 0: 0.75}),
        (lambda r: int(math.sqrt(r.random()) < 0.5), {1: 0.25, 0: 0.75}),
        (lambda r: int(r.random() * 4), {0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25}),
        (lambda r: math.floor(r.random() * 2), {0: 0.5, 1: 0.5}),
        (lambda r: int(max(0.0, r.random()) < 0.25), {1: 0.25, 0: 0.75}),
    ],
)
@pytest.mark.parametrize(
    "owner", [lambda source: source.python_random(), lambda source: random], ids=["given", "global"]
)
def test_draws_of_random(draw, wanted, owner):
    """random.Random and the functions of random have the same laws."""
    law = enumerate_law(lambda source: draw(owner(source)), cross_check_calls=500).probabilities

    assert wanted.keys() == law.keys()
    assert wanted == pytest.approx(law, abs=1e-14)


@pytest.mark.parametrize(
    "call",
    [
        lambda r: int(r.gauss(0.0, 1.0) < 0.0),
        lambda r: r.sample(range(3), 2),
        lambda r: r.shuffle([1, 2, 3]),
        lambda r: r.getrandbits(1),
        lambda r: int(math.sin(r.random()) < 0.5),
        lambda r: int(math.fsum([r.random(), r.random()]) < 1.0),
        lambda r: sorted([r.random(), r.random()]) and 0,
        lambda r: round(r.random()),
        lambda r: int(r.random() + r.random() < 1.0),
    ],
)
def test_what_has_no_symbolic_form_is_refused(call):
    """Nothing is computed by guess."""
    with pytest.raises(NotEnumerable):
        enumerate_law(lambda source: (int(source.python_random().random() < 0.5), call(source.python_random())))


def test_what_a_library_draws_while_it_is_imported_is_its_own(monkeypatch, tmp_path):
    """sympy draws a number for itself when it is imported, which torch does in the midst of a program."""
    monkeypatch.setattr(patching, "_SKIPPED", patching._SKIPPED | {"draws_at_import"})
    (tmp_path / "draws_at_import.py").write_text(
        "import random\nnumber = random.Random().randint(10**6, 9 * 10**6) + random.randint(1, 10**7)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def program(source):
        import draws_at_import

        assert draws_at_import.number > 0
        return source.python_random().random() < 0.25

    assert enumerate_law(program).probabilities == {1: 0.25, 0: 0.75}
