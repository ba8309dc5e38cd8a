"""Writing into an array of random numbers changes that array and its views, and nothing that was computed from it."""

from __future__ import annotations

import numpy as np
import pytest

from specverify.exact.law import enumerate_law


def compared_before(generator):
    uniforms = generator.random(2)
    below = uniforms < 0.3
    uniforms[0] = 2.0
    return int(below[0])


def drawn_again_after(generator):
    uniforms = generator.random(2)
    below = uniforms < 0.3
    uniforms[:] = generator.random(2)
    return int(below[0] and uniforms[0] < 0.5)


def scaled_before(generator):
    uniforms = generator.random(2)
    doubled = uniforms * 2.0
    uniforms[0] = 5.0
    return int(doubled[0] < 0.6)


def scalar_before(generator):
    uniforms = generator.random(2)
    first = uniforms[0]
    uniforms[0] = 5.0
    return int(first < 0.3)


def raced_before(generator):
    arrivals = generator.exponential(size=2) / np.array([0.3, 0.7])
    winner = arrivals.argmin()
    arrivals[0] = 0.0
    return int(winner == 0)


def through_a_view(generator):
    uniforms = generator.random(3)
    view = uniforms[:2]
    view[0] = 2.0
    return int(uniforms[0] < 0.3)


def through_a_view_of_a_result(generator):
    uniforms = generator.random(3)
    doubled = uniforms * 2.0
    view = doubled[:2]
    view[0] = 5.0
    return int(uniforms[0] < 0.3 and doubled[0] > 4.0)


def through_a_view_of_an_operand(generator):
    uniforms = generator.random(3)
    doubled = uniforms * 2.0
    view = uniforms.reshape(3, 1)
    view[0] = 5.0
    return int(doubled[0] < 0.6 and uniforms[0] > 4.0)


def computed_from_a_view(generator):
    uniforms = generator.random(3)
    doubled = uniforms[:2] * 2.0
    uniforms[0] = 5.0
    return int(doubled[0] < 0.6)


def in_place_with_a_view(generator):
    uniforms = generator.random(3)
    view = uniforms[:1]
    uniforms *= 2.0
    return int(view[0] < 0.6)


def unchanged_result(generator):
    uniforms = generator.random(3)
    same = +uniforms
    uniforms[0] = 5.0
    return int(same[0] < 0.3)


@pytest.mark.parametrize(
    ("program", "share"),
    [
        (compared_before, 0.3),
        (drawn_again_after, 0.15),
        (scaled_before, 0.3),
        (scalar_before, 0.3),
        (raced_before, 0.3),
        (through_a_view, 0.0),
        (through_a_view_of_a_result, 0.3),
        (through_a_view_of_an_operand, 0.3),
        (computed_from_a_view, 0.3),
        (in_place_with_a_view, 0.3),
        (unchanged_result, 0.3),
    ],
)
def test_what_was_computed_stays(program, share):
    """As with numpy's own arrays: results are copies, views are not."""
    law = enumerate_law(lambda source: program(source.numpy_generator()), cross_check_calls=500)

    assert law.probabilities.get(1, 0.0) == pytest.approx(share, abs=1e-12)
