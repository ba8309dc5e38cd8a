"""A failure message has the house order and at most thirty lines."""

from __future__ import annotations

from specverify.core.outcomes import CheckResult, Finding, Outcome, Report, Table
from specverify.report.html import render_html
from specverify.report.json import report_as_dict
from specverify.report.text import MAX_LINES, render_report, render_result

LONG = Finding(
    headline="Step 0 of <a> starts with 7 committed tokens.",
    table=Table([[f"row {number}", str(number)] for number in range(60)]),
    not_noise="Not noise: counts are exact.",
    where=[f"where {number}" for number in range(20)],
    likely_cause="the rollback keeps one row too many.",
    details={"observed": [0.25, 0.75], "wanted": [0.5, 0.5]},
)


def failed(*findings: Finding) -> CheckResult:
    return CheckResult(
        "kv.rows", "my_engine:make", Outcome.FAILED, claim="The claim.", findings=findings or (LONG,),
        rerun="specverify check my_engine:make --select kv.rows --seed 7", figures={"tv": float("inf")},
    )  # fmt: skip


def test_a_message_is_never_longer_than_thirty_lines_and_keeps_its_commands():
    """What is cut is the middle; how to rerun and where to read on always stay."""
    text = render_result(failed(LONG, LONG))

    assert len(text.splitlines()) <= MAX_LINES
    assert "Rerun    specverify check my_engine:make --select kv.rows --seed 7" in text
    assert "Explain  specverify explain kv.rows" in text
    assert "And 1 more like it" in text


def test_the_order_is_claim_case_numbers_noise_place_cause_rerun():
    """The reader meets things in the order in which they are needed."""
    finding = Finding(
        headline="HEADLINE", table=Table([["TABLE", "1"]]), not_noise="NOISE", where=["WHERE"], likely_cause="CAUSE"
    )

    text = render_result(failed(finding))

    positions = [text.index(part) for part in ("The claim.", "HEADLINE", "TABLE", "NOISE", "WHERE", "CAUSE", "Rerun")]
    assert positions == sorted(positions)


def test_json_has_no_numbers_that_json_lacks():
    """Infinity is a word, so that every parser reads the report."""
    report = Report([failed()], seed=7, alpha=1e-9)

    data = report_as_dict(report)

    assert data["exit_status"] == 1
    assert data["results"][0]["figures"]["tv"] == "inf"


def test_html_escapes_what_the_subject_says():
    """A token or a name cannot break out of the page."""
    page = render_html(Report([failed()], seed=7, alpha=1e-9))

    assert "&lt;a&gt;" in page
    assert "<a>" not in page
    assert "<script" not in page


def test_report_text_ends_with_the_summary():
    """The last line says how many checks ended how."""
    text = render_report(Report([failed()], seed=7, alpha=1e-9))

    assert text.splitlines()[-1].startswith("0 passed, 1 failed")
