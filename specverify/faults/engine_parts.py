"""How an engine fault is put together: the reference engine with one part replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specverify.core.capabilities import Capability
from specverify.faults.fault import Fault
from specverify.reference.engine import ReferenceEngine
from specverify.reference.subject import Parts, reference_subject
from specverify.reference.verifiers import Verifier


def engine_fault(
    name: str,
    sentence: str,
    report: str,
    *,
    engine: type[ReferenceEngine] = ReferenceEngine,
    draft_side: type | None = None,
    verifier: Callable[[], Verifier] | None = None,
    **options: Any,
) -> Fault:
    """A fault whose subject is the reference engine on the default probe pair.

    engine: a subclass with the mistake. draft_side: a mixin for every proposer that runs a model. verifier: makes the
    broken one. options: as of reference_subject.
    """
    parts = Parts(engine_class=engine, proposer_mixin=draft_side, make_verifier=verifier)
    return Fault(name, sentence, report, lambda: reference_subject(name=name, parts=parts, **options))


class DeclaredLossy:
    """A subject that says of itself that it is lossy by design, and by how much at most."""

    def __init__(self, subject: Any, *, reason: str, distance: float | None = None) -> None:
        self._subject = subject
        self.lossy_by_design = reason
        self.capabilities = frozenset({*subject.capabilities, Capability.LOSSY_BY_DESIGN})
        if distance is not None:
            self.lossy_distance = distance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)
