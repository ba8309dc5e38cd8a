"""What a planted bug is, and what a correct subject is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Fault:
    """One planted bug.

    name: as the checks' `catches` spell it. sentence: what it does wrong. report: the public report it stands
    for. make: builds the broken subject (a verify function or an engine), without arguments. options: how a verify
    function wants to be called, as for specverify.verified.
    """

    name: str
    sentence: str
    report: str
    make: Callable[[], Any]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CorrectSubject:
    """A subject that every check must leave alone, usual or not. options: as of a Fault."""

    name: str
    sentence: str
    make: Callable[[], Any]
    options: Mapping[str, Any] = field(default_factory=dict)
