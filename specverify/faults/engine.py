"""All engine faults, and the engines that every check must leave alone."""

from __future__ import annotations

from specverify.faults import (
    engine_batch,
    engine_cache,
    engine_correct,
    engine_heads,
    engine_rules,
    engine_tokens,
    engine_tree,
    engine_tree_laws,
)
from specverify.faults.fault import CorrectSubject, Fault

FAULTS: tuple[Fault, ...] = tuple(
    fault
    for part in (engine_cache, engine_batch, engine_tokens, engine_rules, engine_tree, engine_tree_laws, engine_heads)
    for fault in part.FAULTS
)
CORRECT: tuple[CorrectSubject, ...] = (*engine_correct.CORRECT, *engine_tree_laws.CORRECT, *engine_heads.CORRECT)
