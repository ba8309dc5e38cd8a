"""The component that changed first is named, with its step and amount."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.core.types import Request
from specverify.trace import compare, compare_all
from specverify.trace.explain import fitted_power
from tests.trace.made import DRAFT, TARGET, changed, trace


def states(golden: Any, now: Any) -> dict[str, str]:
    return {component.name: component.state for component in compare(golden, now).components}


def test_equal_traces_are_the_same() -> None:
    """All ten components, bit for bit."""
    found = compare(trace(), trace())

    assert found.is_same
    assert {"same"} == {component.state for component in found.components}
    assert ("draft probs", "same", "steps 0-1, bit for bit") in found.rows()


@pytest.mark.parametrize(
    ("component", "step", "fields"),
    [
        ("draft token ids", 1, {"draft_token_ids": (1, 0)}),
        ("draft probs", 0, {"draft_probs": DRAFT[:, ::-1]}),
        ("target probs", 1, {"target_probs": TARGET[::-1]}),
        ("uniforms", 0, {"uniforms": (0.126, 0.9375)}),
        ("decision", 0, {"num_accepted": 0, "token_ids": (1,)}),
        ("final token", 0, {"token_ids": (1, 0)}),
        ("kv lengths", 0, {"draft_kv_length_after": 5}),
        ("positions", 1, {"target_positions": (5, 6, 7)}),
        ("text", 1, {"token_ids": (1,)}),
    ],
)
def test_the_changed_component_is_named_with_its_step(component: str, step: int, fields: dict[str, Any]) -> None:
    """One change, one name: what follows from it is not called the cause."""
    found = compare(trace(), changed(step, **fields))

    assert found.first is not None
    assert (component, step) == (found.first.name, found.first.step)
    assert "<- first difference" in found.rows()[[c.name for c in found.components].index(component)]


def test_other_prompts_are_not_compared_further() -> None:
    """Then everything differs for a reason that is not the engine's."""
    other = replace(trace(), request=Request((0, 2), 5))

    found = compare(trace(), other)

    assert found.first is not None
    assert found.first.name == "prompt token ids"
    assert {"not compared"} == {c.state for c in found.components[1:]}


def test_steps_after_the_texts_parted_are_not_compared() -> None:
    """Behind a changed decision the runs are in different situations."""
    golden = trace()
    now = changed(0, num_accepted=0, token_ids=(0,))
    now = replace(now, steps=(*now.steps, replace(golden.steps[1], start_position=4, target_probs=TARGET[::-1])))

    assert states(golden, now)["target probs"] == "same"


def test_a_changed_law_comes_before_the_draft_token_drawn_from_it() -> None:
    """Both changed in one step: the law is the cause."""
    found = compare(trace(), changed(0, draft_token_ids=(0, 0), draft_probs=DRAFT[:, ::-1]))

    assert found.first is not None
    assert found.first.name == "draft probs"


def test_laws_behind_a_changed_draft_token_are_not_compared() -> None:
    """Target row 2 answers another text once draft token 1 differs; rows 0 and 1 do not."""
    target = TARGET.copy()
    target[2] = (0.9, 0.1)

    found = states(trace(), changed(1, draft_token_ids=(1, 0), target_probs=target))

    assert (found["draft token ids"], found["target probs"]) == ("CHANGED", "same")


def test_small_differences_of_laws_are_within_tolerance() -> None:
    """Another machine rounds otherwise: said, not reported."""
    found = compare(trace(), changed(0, target_probs=TARGET + 3e-8))

    assert found.is_same
    assert ("target probs", "same", "steps 0-1, up to 3e-08") in found.rows()


def test_unrecorded_components_are_not_changes() -> None:
    """An engine that records less is compared on the rest."""
    found = states(trace(), changed(0, draft_probs=None, uniforms=None))
    lean = [replace(step, draft_probs=None, uniforms=None) for step in trace().steps]

    assert found["draft probs"] == "same"
    assert states(trace(), replace(trace(), steps=tuple(lean)))["draft probs"] == "not compared"


def test_nan_in_a_law_is_a_change() -> None:
    """NaN compares unequal to everything, also to the tolerance."""
    target = TARGET.copy()
    target[0, 0] = np.nan

    assert states(trace(), changed(0, target_probs=target))["target probs"] == "CHANGED"


def test_changed_decision_is_explained_with_its_numbers() -> None:
    """Law, uniform and verdict of the first draft token decided otherwise, golden and now."""
    lower = DRAFT.copy()
    lower[0] = (0.0, 1.0)
    now = changed(0, num_accepted=0, token_ids=(0,), draft_probs=lower)

    assert compare(trace(), now).story == (
        "Step 0, draft token 1, uniform 0.125",
        "golden   target / draft = 0.5 / 0.75 = 0.667   accept",
        "now      target / draft = 0.5 / 1 = 0.5   reject",
    )


def test_a_law_reported_at_another_temperature_is_recognised() -> None:
    """The golden law to the power 0.7, at temperature 0.7: reported as if at temperature 1."""
    untempered = DRAFT**0.7 / (DRAFT**0.7).sum(axis=-1, keepdims=True)

    found = compare(trace(), changed(0, draft_probs=untempered))

    assert "raised to the power 0.7 and renormalised" in found.likely_cause
    assert "the draft law is now reported at temperature 1" in found.likely_cause


def test_shifted_rows_are_recognised() -> None:
    """Rows off by one, either way."""
    later, earlier = TARGET[[0, 0, 1]], TARGET[[1, 2, 2]]

    assert compare(trace(), changed(0, target_probs=later)).likely_cause.endswith("one row later.")
    assert compare(trace(), changed(0, target_probs=earlier)).likely_cause.endswith("one row earlier.")


def test_no_cause_is_claimed_where_none_fits() -> None:
    """A cause is only named if it explains every row."""
    assert compare(trace(), changed(0, target_probs=TARGET[::-1])).likely_cause == ""
    assert fitted_power(np.array([[0.2, 0.3, 0.5]]), np.array([[0.5, 0.3, 0.2]]))[0] is None


def test_headline_names_the_first_different_token() -> None:
    """Position counts the prompt."""
    found = compare(trace(), changed(0, num_accepted=0, token_ids=(0,)))

    assert found.headline == "The text first differs at position 3 (token 1 became token 0)."


def test_numbers_of_traces_must_agree() -> None:
    """A replay answers the same requests."""
    with pytest.raises(UsageError, match="2 golden traces and 1 to compare"):
        compare_all([trace(), trace()], [trace()])
