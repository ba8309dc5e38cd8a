"""The text of `specverify explain`, and of a check's section in the docs."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Sequence

from specverify.checks.registry import Check
from specverify.core.outcomes import Kind

_KIND = {
    Kind.EXACT: "exact: it cannot fail by luck",
    Kind.STATISTICAL: "statistical: it spends its share of the run's false-alarm budget, fixed before sampling",
}


def explanation(one: Check) -> str:
    """Claim, kind, how it judges, what it needs, when it is inconclusive, what it catches, its source."""
    parts = [one.id, f"  {one.claim}", "", f"Kind      {_KIND[one.kind]}"]
    parts.append("Needs     a subject that " + "; ".join(sorted(c.value for c in one.needs)))
    if one.exercised_by:
        wanted = "; ".join(condition.wanted for condition in one.exercised_by)
        parts.append(f"A pass    needs {wanted}; otherwise it is inconclusive")
    parts.append("Catches   " + _filled(one.catches))
    parts.append(f"Source    {one.source}")
    parts.append(f"From      {one.origin}")
    if one.description:
        parts += ["", inspect.cleandoc(one.description)]
    return "\n".join(parts)


def _filled(names: Sequence[str]) -> str:
    """Names are copied into commands, so none is broken at its hyphens."""
    return textwrap.fill(
        ", ".join(names), 90, subsequent_indent=" " * 10, break_on_hyphens=False, break_long_words=False
    )
