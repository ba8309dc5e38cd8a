"""Profiles: what is required, and that it never becomes less."""

from __future__ import annotations

import pytest

from specverify.catalogue import all_checks
from specverify.core.errors import UsageError
from specverify.profiles import PROFILES, profile


@pytest.mark.parametrize("name", PROFILES)
def test_every_id_names_a_check_once(name: str) -> None:
    known = {check.id for check in all_checks()}

    assert set(profile(name)) <= known
    assert len(set(profile(name))) == len(profile(name))


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ("engine-1", "engine-2"),
        ("engine-2", "batched-engine-1"),
        ("engine-2", "traced-engine-2"),
        ("traced-engine-1", "traced-engine-2"),
    ],
)
def test_a_later_profile_requires_more(smaller: str, larger: str) -> None:
    assert set(profile(smaller)) < set(profile(larger))


def test_the_first_ones_are_what_they_were() -> None:
    """Somebody's CI stands on them."""
    assert {name: len(profile(name)) for name in ("verifier-1", "engine-1", "traced-engine-1")} == {
        "verifier-1": 5,
        "engine-1": 7,
        "traced-engine-1": 14,
    }


def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no profile is called 'engine-9'; there are verifier-1, engine-1"):
        profile("engine-9")
