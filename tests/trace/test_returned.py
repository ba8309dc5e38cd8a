"""What an engine returns is checked at one door, and the first wrong thing is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specverify.core.errors import SubjectCrashed
from specverify.core.types import Request, Step, Trace
from specverify.trace.returned import returned_traces

REQUEST = Request((5, 6), 4)
TARGET = np.full((3, 4), 0.25)
STEP = Step(0, 3, (1, 2), (1, 3), 1, draft_probs=TARGET[:2], target_probs=TARGET)
TRACE = Trace(REQUEST, (0, 1, 3), (STEP,))


def changed(**fields):
    return [replace(TRACE, steps=(replace(STEP, **fields),))]


def with_value(value):
    rows = TARGET.copy()
    rows[1, 2] = value
    return rows


def test_sound_traces_come_back_as_they_are():
    """Nothing is copied."""
    (trace,) = returned_traces("mine", [TRACE], [REQUEST])

    assert trace is TRACE


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (None, "mine returned None from generate; return a list"),
        (TRACE, "mine returned a Trace from generate; return a list"),
        ([None], "mine returned None for request 0; give a specverify.core.types.Trace"),
        ([{"token_ids": []}], "mine returned a dict for request 0"),
        ([], "mine returned 0 traces for 1 requests"),
        ([replace(TRACE, token_ids="abc")], "Trace.token_ids of request 0 is a str; give a tuple of int"),
        ([replace(TRACE, token_ids=(1, 2.5))], "Trace.token_ids of request 0 has a float at 1"),
        ([replace(TRACE, steps=({},))], "the record of request 0, step 0 is a dict"),
        ([replace(TRACE, log_probs=(-1.0, None, -1.0))], "Trace.log_probs of request 0 has None at 1; give one number"),
        ([replace(TRACE, log_probs=(-1.0, float("nan")))], "Trace.log_probs of request 0 has NaN at 1"),
        ([replace(TRACE, log_probs={5: -1.0})], "Trace.log_probs of request 0 is a dict; give a tuple of float"),
        (changed(num_accepted=None), "Step.num_accepted of request 0, step 0 is None; give an int"),
        (changed(draft_token_ids=None), "Step.draft_token_ids of request 0, step 0 is None"),
        (changed(target_probs=with_value(np.nan)), "Step.target_probs[1] of request 0, step 0 has NaN at token 2"),
        (changed(draft_probs=with_value(np.nan)[:2]), "Step.draft_probs[1] of request 0, step 0 has NaN"),
        (changed(target_probs=np.log(TARGET) * 1e5), "(sum -5.55e+05): are these log-probabilities?"),
        (changed(target_probs=with_value(3.0)), "target_probs[1] of request 0, step 0 does not sum to 1 (sum 3.75)"),
        (changed(target_probs=with_value(-0.25)), "has -0.25 at token 2"),
        (changed(target_probs=TARGET[:2]), "has 2 rows, 3 wanted (k + 1); the last row is the law of the bonus token"),
        (changed(draft_probs=TARGET), "Step.draft_probs of request 0, step 0 has 3 rows, 2 wanted (k)"),
        (changed(target_probs=TARGET[0]), "has shape (4,); give [k + 1, vocab]"),
        (changed(target_probs="laws"), "is a str that does not become an array of numbers"),
    ],
)  # fmt: skip
def test_the_culprit_is_named(made, sentence):
    """Request, step, field and row, what came and what was wanted."""
    with pytest.raises(SubjectCrashed) as error:
        returned_traces("mine", made, [REQUEST])

    assert sentence in str(error.value)


def test_arrays_and_lists_of_token_ids_are_taken():
    """They become tuples of int."""
    given = replace(
        TRACE, token_ids=np.array([0, 1, 3]), steps=[replace(STEP, num_accepted=np.int64(1), token_ids=[1, 3])]
    )

    (trace,) = returned_traces("mine", [given], [REQUEST])

    assert (trace.token_ids, trace.steps[0].token_ids, trace.steps[0].num_accepted) == ((0, 1, 3), (1, 3), 1)
    assert {int} == {type(token) for token in (*trace.token_ids, trace.steps[0].num_accepted)}


@pytest.mark.parametrize("given", [np.array([-1.0, -2.0]), [np.float32(-1.0), -2], (-1.0, -2.0)])
def test_log_probabilities_become_numbers(given):
    """However many there are: a wrong number of them is the finding of a check."""
    (trace,) = returned_traces("mine", [replace(TRACE, log_probs=given)], [REQUEST])

    assert trace.log_probs == (-1.0, -2.0)
    assert {float} == {type(number) for number in trace.log_probs}


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_half_precision_sums_to_one(dtype):
    """A row that is off by 1e-2 is rounding."""
    (trace,) = returned_traces("mine", changed(target_probs=(TARGET * 1.01).astype(dtype)), [REQUEST])

    assert trace.steps[0].target_probs.dtype == dtype


def test_laws_are_left_alone_while_randomness_is_undecided():
    """An enumeration judges tokens only."""
    (trace,) = returned_traces("mine", changed(target_probs=TARGET[:2]), [REQUEST], with_laws=False)

    assert len(trace.steps[0].target_probs) == 2
