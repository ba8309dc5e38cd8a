"""The checks that a subject does not allow, counted by what would unlock them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# More groups than that are not read; the HTML and JSON reports have every check.
_MOST_GROUPS = 8


def unsupported_text(figures: Sequence[Mapping[str, Any]]) -> str:
    """How many checks, and which abilities unlock how many. figures: those of the unsupported results."""
    parts = []
    other = Counter(one["for_others"] for one in figures if one.get("for_others"))
    if other:
        parts.append(", ".join(f"{count} for {kind}" for kind, count in other.most_common()))
    groups = Counter(tuple(one["missing"]) for one in figures if one.get("missing") and not one.get("for_others"))
    if groups:
        ranked = sorted(groups.items(), key=lambda item: (len(item[0]), -item[1], item[0]))
        first, *others = ranked[:_MOST_GROUPS]
        shown = [f"{_joined(first[0])} to unlock {first[1]}", *(f"{_joined(names)} {count}" for names, count in others)]
        rest = sum(count for _, count in ranked[_MOST_GROUPS:])
        parts.append("declare " + ", ".join(shown) + (f", more of them for the other {rest}" if rest else ""))
    excused = sum(1 for one in figures if not one.get("missing"))
    if excused:
        parts.append(f"{excused} left out by the subject itself")
    return f"{_checks(len(figures))}: {'; '.join(parts)}"


def _checks(number: int) -> str:
    return "1 check" if number == 1 else f"{number} checks"


def _joined(names: Iterable[str]) -> str:
    return " + ".join(names)
