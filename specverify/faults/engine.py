"""All engine faults, and the engines that every check must leave alone."""

from __future__ import annotations

from specverify.faults import engine_batch, engine_cache, engine_correct, engine_rules, engine_tokens
from specverify.faults.fault import CorrectSubject, Fault

FAULTS: tuple[Fault, ...] = (
    *engine_cache.FAULTS,
    *engine_batch.FAULTS,
    *engine_tokens.FAULTS,
    *engine_rules.FAULTS,
)
CORRECT: tuple[CorrectSubject, ...] = engine_correct.CORRECT
