"""The failure message of every check, on the first fault it names, as the user reads it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from specverify import catalogue
from specverify.adapters.resolve import as_subject
from specverify.core.outcomes import Kind, Outcome
from specverify.report.text import MAX_LINES, WIDTH, render_result
from specverify.runner import run_checks
from specverify.selftest import specimens

SNAPSHOTS = Path(__file__).parent / "snapshots"
SPECIMENS = {one.name: one for one in specimens()}
# Their numbers come from sampling, which other platforms round differently; the shape of the message is compared.
NUMBER = re.compile(r"\d[\d,]*(\.\d+)?(e[-+]?\d+)?|(?<=[ +-])\.\d+|\binf\b")


def shape(text):
    """The message without its numbers, signs and column widths."""
    return [re.sub(r"[ +-]+", " ", NUMBER.sub("#", line)).strip() for line in text.splitlines()]


@pytest.mark.parametrize("check", catalogue.all_checks(), ids=lambda check: check.id)
def test_a_failure_reads_as_it_did(check):
    """Claim, smallest case, observed beside wanted, why it is no noise, where, cause: at most thirty lines.

    SPECVERIFY_UPDATE_SNAPSHOTS=1 writes the files anew; read them before committing.
    """
    fault = SPECIMENS[check.catches[0]]
    subject = as_subject(fault.make(), fault.name)

    (result,) = run_checks(subject, ids=[check.id], seed=7, rerun=f"specverify check {subject.name}").results
    text = render_result(result) + "\n"

    assert result.outcome is Outcome.FAILED, result.reason or result.worth
    assert len(text.splitlines()) <= MAX_LINES
    assert max(map(len, text.splitlines())) <= WIDTH + 20
    path = SNAPSHOTS / f"{check.id}.txt"
    if os.environ.get("SPECVERIFY_UPDATE_SNAPSHOTS"):
        path.write_text(text, encoding="utf-8")
    expected = path.read_text(encoding="utf-8")
    if check.kind is Kind.EXACT:
        assert shape(expected) == shape(text)
    else:
        assert shape(expected)[:4] == shape(text)[:4]
