"""A report as text: one line for what passed, at most thirty for what failed, and what to do next."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from specverify.core.outcomes import CheckResult, Finding, Outcome, Report, Table

WIDTH = 100
MAX_LINES = 30
_MAX_WHERE_LINES = 8


def render_result(result: CheckResult) -> str:
    """One result: a line where it passed, a message in the house order where it failed."""
    if result.outcome is Outcome.FAILED:
        return "\n".join(_failure_lines(result))
    text = result.worth if result.outcome is Outcome.PASSED else result.reason
    head = f"{result.outcome.value}  {result.check_id}"
    return "\n".join(wrapped(f"{head}   {text}" if text else head, indent="", hanging="    "))


def render_report(report: Report) -> str:
    """The whole report: subjects in order, then the summary line."""
    lines: list[str] = []
    for subject in dict.fromkeys(result.subject for result in report.results):
        lines += [subject, ""]
        for result in report.results:
            if result.subject == subject and result.outcome is not Outcome.UNSUPPORTED:
                lines += [render_result(result), ""] if result.outcome is Outcome.FAILED else [render_result(result)]
        lines.append("")
    return "\n".join([*lines, render_summary(report)])


def render_summary(report: Report) -> str:
    """How many checks ended how, how long it took, and what a false alarm would have cost."""
    known = sum(1 for result in report.results if result.known_failure)
    counts = [
        f"{count} {outcome.value}"
        for outcome in Outcome
        if (count := report.count(outcome)) or outcome is Outcome.PASSED
    ]
    if known:
        counts.append(f"{known} of the failures known")
    text = (
        f"{', '.join(counts)} in {report.seconds:.1f} s, seed {report.seed}, false-alarm budget {report.alpha:g} a run"
    )
    if report.interrupted:
        text += f"; {report.interrupted}: the results above stand, the rest was not run"
    return text


def _failure_lines(result: CheckResult) -> list[str]:
    known = f"  (known: {result.known_failure})" if result.known_failure else ""
    lines = [f"FAILED  {result.check_id}  {result.subject}{known}"]
    lines += wrapped(result.claim, indent="  ")
    tail = list(_closing_lines(result))
    first, *others = result.findings
    body = list(_finding_lines(first))
    if others:
        tail = ["", f"  And {len(others)} more like it; the JSON and HTML reports have all.", *tail]
    room = MAX_LINES - len(lines) - len(tail)
    if len(body) > room:
        body = [*body[: room - 1], "      ..."]
    return [*lines, *body, *tail]


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield ""
    yield from wrapped(finding.headline, indent="  ")
    if finding.table is not None:
        yield from _table_lines(finding.table)
    if finding.not_noise:
        yield ""
        yield from wrapped(finding.not_noise, indent="  ")
    if finding.where:
        yield ""
        for line in finding.where[:_MAX_WHERE_LINES]:
            yield from wrapped(line, indent="  ")
    if finding.likely_cause:
        yield ""
        yield from wrapped(f"Most likely: {finding.likely_cause}", indent="  ")


def _closing_lines(result: CheckResult) -> Iterator[str]:
    yield ""
    if result.rerun:
        yield f"  Rerun    {result.rerun}"
    yield f"  Explain  specverify explain {result.check_id}"


def _table_lines(table: Table) -> Iterator[str]:
    num_columns = max((len(row) for row in table.rows), default=0)
    widths = [max((len(row[i]) for row in table.rows if i < len(row)), default=0) for i in range(num_columns)]
    for row in table.rows:
        yield _table_line(row, widths)


def _table_line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = row
    cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=False))]
    return f"      {'   '.join(cells)}".rstrip()


def wrapped(text: str, *, indent: str, hanging: str | None = None) -> list[str]:
    """The text in lines of at most WIDTH; hanging: the indent of all lines but the first."""
    later = indent if hanging is None else hanging
    # Words that carry their own alignment (step lists, columns) are printed as they come.
    if "\n" in text or ("   " in text.strip() and hanging is None):
        return [f"{indent}{line}" for line in text.splitlines()]
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )
