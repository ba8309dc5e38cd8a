"""What a subject can show of itself. A check names what it needs; the rest is skipped with the reason."""

from __future__ import annotations

import difflib
import enum
from typing import Any

from specverify.core.errors import UsageError


class Capability(enum.Enum):
    """One thing a subject offers beyond being called. The value is the sentence shown to users."""

    VERIFY = "is a verify function: draft tokens and laws in, tokens out"
    VERIFY_CALLS = "shows verify calls: the draft tokens and laws they were given, and what they emitted"
    DRAFT_PROBS_ARGUMENT = "takes the draft law as an argument"
    UNIFORMS_ARGUMENT = "takes its uniforms as an argument"
    GENERATOR_ARGUMENT = "takes a generator or a seed as an argument"
    GENERATE = "generates token ids for requests, with speculation on and off"
    IN_PROCESS_RANDOMNESS = "draws its randomness through torch, numpy or random in this process"
    LOGPROBS = "reports the log-probability of every emitted token"
    SCORE = "scores given token ids with the target model (log-probabilities of every token)"
    LOAD_CHECKPOINT = "has loaded a probe checkpoint, whose exact law is known"
    TRACE = "records drafts, decisions and final tokens of every step"
    DRAFT_PROBS = "records the draft law of every drafted token"
    TARGET_PROBS = "records the target law at every verified position"
    KV_LENGTH = "reports the KV rows of target and draft after every step"
    KV_ROWS = "shows the KV rows of target and draft after every step, and those of a fresh prefill"
    DRAFT_TREE = "drafts trees, and records the parent of every draft token and which ones were accepted"
    PROMPT_LOOKUP = "drafts by looking up what followed the end of the text earlier in it"
    DRAFT_SCORE = "computes its drafter's law afresh, after any text and any draft so far"
    DRAFT_KV = "has a KV cache for its drafter, shown wherever the target's is"
    POSITIONS = "reports the position of every token that target and draft computed"
    SCRIPTED_PROPOSER = "accepts a proposer that forces every accept length"
    TOKENIZER = "shows the tokenizers of target and draft"
    SEED = "honours a seed per request"
    BATCH = "decodes several requests in one batch"
    SAMPLING = "honours temperature, top-k and top-p"
    PENALTIES = "honours repetition, presence and frequency penalties"
    GRAMMAR = "keeps outputs to a constraint (an automaton over token ids)"
    STOP = "honours end-of-sequence token ids"
    LOSSY_BY_DESIGN = "declares itself lossy by design, and says why"


_FUNCTION = frozenset({Capability.VERIFY, Capability.VERIFY_CALLS})


def for_others(missing: frozenset[Capability], declared: frozenset[Capability]) -> str:
    """What a check is for that lacks these abilities of a subject of another kind; empty where it could declare them.

    A verify function cannot declare TRACE, nor a trace file that it generates.
    """
    if missing & _FUNCTION:
        return "verify functions"
    if Capability.LOSSY_BY_DESIGN in missing:
        return "modes that are lossy by design"
    return "engines" if Capability.GENERATE in missing or declared & _FUNCTION else ""


def checked_capabilities(subject: Any) -> frozenset[Capability]:
    """What the subject declares. Raises UsageError for anything that is no Capability.

    A name in place of the member equals nothing: every check would be unsupported, and nobody would be told.
    """
    declared = subject.capabilities
    if isinstance(declared, (str, Capability)):
        declared = [declared]
    elif not hasattr(declared, "__iter__"):
        raise UsageError(f"{subject.name}: capabilities is {declared!r}; give a frozenset of Capability")
    for one in declared:
        if not isinstance(one, Capability):
            near = difflib.get_close_matches(str(one).upper(), Capability.__members__, n=1)
            hint = f"Capability.{near[0]}" if near else "members of Capability"
            raise UsageError(
                f"{subject.name} declares {one!r}, a {type(one).__name__}; give {hint}, from "
                "specverify.core.capabilities (docs/adapters.md lists all)"
            )
    return frozenset(declared)
