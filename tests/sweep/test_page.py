"""The page and the command."""

from __future__ import annotations

import re

from typer.testing import CliRunner

from specverify.cli import app
from specverify.sweep.page import HEADINGS, figures, render_page
from specverify.sweep.store import Sweep
from tests.sweep.made import length_row

ABOUT = {"family": "f", "label": "a <b> model", "quick": True, "specverify": "1", "torch": "2", "machine": "m",
         "threads": 1}  # fmt: skip
ROWS = [length_row(k, acceptance=0.75, fixed=0.0, draft_cost=0.12) for k in range(1, 11)]


def test_page_says_which_k():
    """The answer stands on the page in words, and the curve has a ring at it."""
    page = render_page(Sweep(ABOUT, ROWS))

    assert "draft-model, open-ended writing: use k = 4" in page
    assert page.count('class="best"') == 1


def test_page_asks_the_network_nothing():
    """No address, no script; names are escaped."""
    page = render_page(Sweep(ABOUT, ROWS))

    assert not re.search(r"https?:|<script|@import|url\(", page)
    assert "a &lt;b&gt; model" in page


def test_headings_fit_the_figures():
    """One heading per figure."""
    assert len(HEADINGS) == len(figures(ROWS[0]))


def test_command_measures_and_advises(tmp_path):
    """A sweep of one axis prints its table, names its files and ends with one next command."""
    out = tmp_path / "found"
    result = CliRunner().invoke(
        app, ["sweep", "--family", "probe", "--quick", "--only", "draft-size", "--out", str(out)]
    )

    assert result.exit_code == 0
    assert "Size of the draft model" in result.output
    assert "Next" in result.output.splitlines()[-1]
    assert {"sweep.csv", "sweep.html", "sweep.json"} == {file.name for file in out.iterdir()}
