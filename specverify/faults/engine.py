"""All engine faults, and the engines that every check must leave alone."""

from __future__ import annotations

from specverify.faults import (
    engine_batch,
    engine_cache,
    engine_correct,
    engine_grammar,
    engine_heads,
    engine_lasting,
    engine_log_probs,
    engine_long,
    engine_lookup,
    engine_lossy,
    engine_mixed,
    engine_quantized,
    engine_random,
    engine_rotary,
    engine_rules,
    engine_settings,
    engine_tokens,
    engine_tree,
    engine_tree_laws,
    engine_unusual,
)
from specverify.faults.fault import CorrectSubject, Fault

_PARTS = (
    engine_cache,
    engine_batch,
    engine_tokens,
    engine_rules,
    engine_settings,
    engine_grammar,
    engine_tree,
    engine_tree_laws,
    engine_heads,
    engine_long,
    engine_log_probs,
    engine_lasting,
    engine_lookup,
    engine_lossy,
    engine_mixed,
    engine_quantized,
    engine_random,
    engine_rotary,
    engine_unusual,
)
FAULTS: tuple[Fault, ...] = tuple(fault for part in _PARTS for fault in part.FAULTS)
CORRECT: tuple[CorrectSubject, ...] = tuple(
    one
    for part in (engine_correct, engine_tree_laws, engine_heads, engine_lossy, engine_quantized)
    for one in part.CORRECT
)
