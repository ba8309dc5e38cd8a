"""What a test hands to the end of a pytest session, and the lines that are printed there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specverify.core.outcomes import CheckResult, Outcome
from specverify.report.text import wrapped
from specverify.report.unsupported import unsupported_text


def summary_of(result: CheckResult) -> dict[str, Any]:
    """One result in JSON types. A failure that was expected is none to whoever reads the summary."""
    is_unsupported = result.outcome is Outcome.UNSUPPORTED
    return {
        "outcome": "known failure" if result.known_failure else result.outcome.value,
        "check_id": result.check_id,
        "subject": result.subject,
        "text": result.known_failure or (result.worth if result.outcome is Outcome.PASSED else result.reason),
        "unsupported": {name: result.figures.get(name) for name in ("missing", "for_others")}
        if is_unsupported
        else None,
    }


def summary_lines(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each decided check, and one for each subject on all that it does not support."""
    for one in sorted(results, key=lambda one: (one["outcome"], one["check_id"], one["subject"])):
        if one["unsupported"] is None:
            line = f"{one['outcome']}  {one['check_id']}  {one['subject']}"
            yield from _hanging(f"{line}   {one['text']}" if one["text"] else line)
    for subject in dict.fromkeys(one["subject"] for one in results):
        figures = [
            one["unsupported"] for one in results if one["subject"] == subject and one["unsupported"] is not None
        ]
        if figures:
            yield from _hanging(f"unsupported  {subject}   {unsupported_text(figures)}")


def _hanging(text: str) -> list[str]:
    return wrapped(text, indent="", hanging="    ")
