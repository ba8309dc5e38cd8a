"""A declaration that is malformed is refused when it is made, and the whole catalogue keeps the house rules."""

from __future__ import annotations

import pytest

from specverify.catalogue import all_checks, check_by_id, select
from specverify.checks.registry import check
from specverify.core.errors import UsageError
from specverify.core.outcomes import Kind
from specverify.selftest import specimens
from tests.fakes import passes


def declare(check_id="fake.never-registered", **changes):
    settings = {"claim": "c", "kind": Kind.EXACT, "needs": (), "catches": ("f",), "source": "s"} | changes
    return check(check_id, **settings)(passes)


@pytest.mark.parametrize(
    ("check_id", "changes", "sentence"),
    [
        ("NoDots", {}, "not of the form"),
        ("kv.Upper", {}, "not of the form"),
        ("fake.no-claim", {"claim": ""}, "has no claim"),
        ("fake.no-source", {"source": ""}, "has no source"),
        ("fake.no-catches", {"catches": ()}, "has no catches"),
    ],
)
def test_malformed_declarations_are_refused(check_id, changes, sentence):
    """Id form, claim, source and catches are enforced at import."""
    with pytest.raises(UsageError, match=sentence):
        declare(check_id, **changes)


def test_an_id_cannot_be_registered_twice():
    """Two claims are two checks."""
    taken = all_checks()[0].id

    with pytest.raises(UsageError, match="registered twice"):
        declare(taken)


def test_every_fault_is_named_and_every_name_is_a_fault():
    """The checks' `catches` and the planted faults agree, both ways."""
    planted = {one.name for one in specimens() if hasattr(one, "report")}
    named = {name for one in all_checks() for name in one.catches}

    assert planted - named == set()
    assert named - planted == set()


def test_every_check_has_a_docstring():
    """`specverify explain` has something to say."""
    assert [one.id for one in all_checks() if not one.description] == []


def test_an_unknown_id_suggests_the_nearest():
    """A slip of the pen is answered with what was probably meant."""
    with pytest.raises(UsageError, match=r"did you mean .*lossless.step-law"):
        check_by_id("lossless.step-lax")


def test_wildcards_select_a_family():
    """kv.* selects the kv family and nothing else."""
    chosen = select(["kv.*"])

    assert chosen
    assert {one.id.split(".")[0] for one in chosen} == {"kv"}
