"""What a planted bug is, and what a correct subject is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fault:
    """One planted bug.

    name: as the checks' `catches` spell it. sentence: what it does wrong. report: the public report it stands
    for. make: builds the broken subject (a verify subject or an engine), without arguments.
    """

    name: str
    sentence: str
    report: str
    make: Callable[[], Any]


@dataclass(frozen=True)
class CorrectSubject:
    """A subject that every check must leave alone, usual or not."""

    name: str
    sentence: str
    make: Callable[[], Any]
