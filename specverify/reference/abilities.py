"""What the reference engine can show, by the name of its proposer."""

from __future__ import annotations

from specverify.core.capabilities import Capability
from specverify.reference.head_proposers import HEAD_TREES, HEADS_WITHOUT_CACHE, HEADS_WITHOUT_LAW
from specverify.reference.parts import TREES

_WITHOUT_LAW = ("n-gram", "tree-top", "tree-dynamic", *HEADS_WITHOUT_LAW)
# Prompt lookup runs no model; scripts change what the model says, by turns.
_WITHOUT_SCORE = ("n-gram", "anti", "alternating")
_ALWAYS = frozenset(
    {
        Capability.GENERATE,
        Capability.IN_PROCESS_RANDOMNESS,
        Capability.SCORE,
        Capability.TRACE,
        Capability.KV_LENGTH,
        Capability.POSITIONS,
        Capability.SCRIPTED_PROPOSER,
        Capability.SEED,
        Capability.BATCH,
        Capability.SAMPLING,
        Capability.PENALTIES,
        Capability.GRAMMAR,
        Capability.STOP,
    }
)


def drafting_capabilities(proposer: str, *, has_probs: bool) -> frozenset[Capability]:
    """What every engine of ours shows and what this proposer adds; has_probs: whether steps record laws."""
    shown = set(_ALWAYS)
    if has_probs:
        shown.add(Capability.TARGET_PROBS)
        if proposer not in _WITHOUT_LAW:
            shown.add(Capability.DRAFT_PROBS)
    if proposer not in ("n-gram", *HEADS_WITHOUT_CACHE):
        shown.add(Capability.DRAFT_KV)
    if proposer in (*TREES, *HEAD_TREES):
        shown.add(Capability.DRAFT_TREE)
    if proposer == "n-gram":
        shown.add(Capability.PROMPT_LOOKUP)
    if proposer not in _WITHOUT_SCORE:
        shown.add(Capability.DRAFT_SCORE)
    return frozenset(shown)
