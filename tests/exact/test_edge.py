"""The edge probe: real generators at the ends of their range."""

from __future__ import annotations

import numpy as np
import pytest

from specverify.exact.edge import EdgeSource, possible_tokens, probe_edges
from tests.exact.numpy_subjects import PYTHON_STYLES, STYLES

DRAFT_PROBS = np.array([[0.25, 0.5, 0.25, 0.0], [0.5, 0.25, 0.0, 0.25]])
TARGET_PROBS = np.array([[0.0, 0.25, 0.75, 0.0], [0.0, 0.5, 0.5, 0.0], [0.0, 0.5, 0.5, 0.0]])
DRAFT = (1, 1)


def program_of(verify):
    def program(source):
        return verify(source.numpy_generator(), np.array(DRAFT), DRAFT_PROBS, TARGET_PROBS)

    return program


def test_float32_draws_reach_the_ends():
    """Draws of 24 bits are 0 or the largest number below 1, in the pattern asked for."""
    import torch

    source = EdgeSource(("0", "1-"))

    drawn = source.numpy_generator().random(4, dtype=np.float32).tolist()
    assert drawn == [0.0, 0.0, 1.0 - 2.0**-24, 1.0 - 2.0**-24]
    drawn = torch.rand(4, generator=source.torch_generator(), dtype=torch.float32).tolist()
    assert drawn == [0.0, 0.0, 1.0 - 2.0**-24, 1.0 - 2.0**-24]
    narrow = EdgeSource(("0", "1-"), is_float64=False)
    assert narrow.uniforms((2, 2)).tolist() == [[0.0, 1.0 - 2.0**-24]] * 2


def test_wide_draws_come_near_the_ends():
    """A float64 uniform is exactly 0 once in 2^53 draws, which is never: it comes near the end and not to it."""
    import torch

    source = EdgeSource(("0", "1-"))
    python = source.python_random()
    for low, high in (
        source.numpy_generator().random(2).tolist(),
        [python.random(), python.random()],
        torch.rand(2, generator=source.torch_generator(), dtype=torch.float64).tolist(),
        source.uniforms(2).tolist(),
    ):
        assert 0.0 < low < 2.0**-26
        assert 1.0 - 2.0**-25 < high < 1.0 - 2.0**-31


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("verify", STYLES, ids=lambda style: style.__name__)
def test_correct_functions_keep_to_the_support(verify):
    """Inverse CDFs, races and library draws in float64 lead to no impossible token, whatever the pattern."""
    assert probe_edges(program_of(verify), possible_tokens(TARGET_PROBS)) == ()


def test_an_unguarded_race_is_found():
    """residual / exponential with a zero draw gives NaN or infinity for an impossible token."""

    def race(rng, draft, draft_probs, target_probs):
        with np.errstate(all="ignore"):
            return [int(np.argmax(target_probs[0] / -np.log1p(-rng.random(4, dtype=np.float32))))]

    failures = probe_edges(program_of(race), possible_tokens(TARGET_PROBS))

    assert any("impossible" in failure.reason for failure in failures)


def test_an_inverse_cdf_from_the_left_is_found_at_zero():
    """searchsorted from the left gives token 0 for u = 0, although its probability is 0."""

    def inverse(rng, draft, draft_probs, target_probs):
        return [int(np.searchsorted(np.cumsum(target_probs[0]), rng.random(dtype=np.float32), side="left"))]

    failures = probe_edges(program_of(inverse), possible_tokens(TARGET_PROBS))

    assert failures
    assert all(failure.pattern[0] == "0" for failure in failures)


def test_a_cumulative_sum_that_ends_below_one_is_found():
    """Without a clamp the largest uniform falls behind a sum that rounds to less than 1."""
    row = np.full(10, 0.1, dtype=np.float32) * np.float32(0.999999)

    def inverse(source):
        return [int(np.searchsorted(np.cumsum(row), source.numpy_generator().random(), side="right"))]

    failures = probe_edges(inverse, possible_tokens(row[None]))

    assert any("token ids run from 0 to 9" in failure.reason for failure in failures)


def test_one_itself_reaches_uniform_arguments_only():
    """A float32 uniform cast to bfloat16 can be 1; a generator's own draw cannot."""

    def inverse(source):
        return [int(np.searchsorted(np.cumsum(TARGET_PROBS[0]), source.uniforms(1)[0], side="right"))]

    assert probe_edges(inverse, lambda output: "" if output[0] < 4 else "too large") == ()
    failures = probe_edges(inverse, lambda output: "" if output[0] < 4 else "too large", with_one=True)
    assert failures
    assert all(failure.pattern[0] == "1" for failure in failures)


def test_a_crash_at_an_edge_is_reported():
    """log(0) in Python raises, once in 2 ** 24 float32 draws."""
    import math

    def program(source):
        return [int(math.log(source.numpy_generator().random(dtype=np.float32)) < -1.0)]

    failures = probe_edges(program, lambda output: "")

    assert any("ValueError" in failure.reason for failure in failures)


@pytest.mark.parametrize("verify", PYTHON_STYLES[:1], ids=lambda style: style.__name__)
def test_python_choices_keeps_to_the_support(verify):
    """random.choices is safe at both ends."""

    def program(source):
        return verify(source.python_random(), list(DRAFT), DRAFT_PROBS.tolist(), TARGET_PROBS.tolist())

    assert probe_edges(program, possible_tokens(TARGET_PROBS)) == ()
