"""Constraints in words that the engine knows, such that a state that is off by one forbids what should come next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from specverify.checks import evidence
from specverify.checks.registry import CheckContext, Inconclusive
from specverify.core.capabilities import Capability
from specverify.core.constraint import Arrows, Constraint
from specverify.core.types import Request, Trace

_NUM_TOKENS = 12
_NUM_CLASSES = 3
# Two words in each class at least: a class of one leaves nothing to choose.
_FEWEST_WORDS = 2 * _NUM_CLASSES
_NUM_SAMPLED = 3
# Rows without a constraint, in the middle of the others: what they do to each other needs company on both sides.
_NUM_FREE = 2


@dataclass(frozen=True, eq=False)
class Asked:
    """The requests of one call. names: of the automaton of each request, empty where it has none."""

    requests: tuple[Request, ...]
    names: tuple[str, ...]


def automata(words: Sequence[int]) -> dict[str, Constraint]:
    """By name: a cycle through three classes of words, a branch with self-loops, and two that end after a few words.

    In the cycle each word is allowed in one state of three. It may end in one state of six, so that it seldom does.
    """
    one, two, three = (tuple(words[first::_NUM_CLASSES]) for first in range(_NUM_CLASSES))

    def state(*arrows: tuple[Sequence[int], int]) -> Arrows:
        return tuple((word, following) for group, following in arrows for word in group)

    cycle = tuple(state((group, (number + 1) % 6)) for number, group in enumerate((one, two, three) * 2))
    branch = (
        state((one, 0), (two, 1), (three, 2)),
        state((two, 1), (one, 0)),
        state((three, 2), (one, 0)),
    )
    ends = [state((one, 1), (two, 1)), state((two, 2), (three, 2)), state((three, 3), (one, 3))]
    return {
        "a cycle": Constraint(cycle, frozenset({5})),
        "a branch": Constraint(branch, frozenset({1})),
        "three words": Constraint((*ends, ()), frozenset({3})),
        "four words": Constraint((*ends, state((one, 4), (three, 4)), ()), frozenset({4})),
    }


def asked(subject: Any, context: CheckContext, plain: Sequence[Trace]) -> Asked:
    """Greedy requests with each automaton, sampled ones, and some without; plain: the standard ones without any.

    All have an end token, where the engine honours those; without them no automaton that ends is asked for.
    """
    can_end = Capability.STOP in subject.capabilities
    words = _words(subject, plain)
    ends = (_end_token(subject, words),) if can_end else ()
    known = {
        name: one for name, one in automata([word for word in words if word not in ends]).items()
        if can_end or all(one.transitions)
    }  # fmt: skip
    is_slow = getattr(subject, "is_slow", False)
    num_tokens = min(_NUM_TOKENS, evidence.new_tokens(subject))
    made: list[tuple[str, Request]] = []

    def ask(name: str, request: Request, label: str) -> None:
        short = replace(request, max_new_tokens=num_tokens, request_id=f"{label}{request.request_id}")
        if name:
            short = replace(short, eos_token_ids=ends, constraint=known[name])
        made.append((name, short))

    names = list(known)
    free = evidence.standard_requests(subject, context, evidence.GREEDY)
    sampled = evidence.standard_requests(subject, context, evidence.SAMPLED)
    # As many as there are automata at least, where there are fewer prompts.
    for number in range(len(names) if is_slow else max(len(names), len(free))):
        ask(names[number % len(names)], free[number % len(free)], f"{names[number % len(names)]}/")
        if number < (1 if is_slow else _NUM_FREE):
            ask("", free[number % len(free)], "free/")
        if number < (1 if is_slow else _NUM_SAMPLED):
            ask(names[number % len(names)], sampled[-1 - number % len(sampled)], f"{names[number % len(names)]}/")
    return Asked(tuple(request for _, request in made), tuple(name for name, _ in made))


def _words(subject: Any, plain: Sequence[Trace]) -> list[int]:
    """Token ids that the engine emits or is asked with; on a probe pair its words."""
    vocab_size = getattr(getattr(subject, "checkpoint", None), "vocab_size", None)
    if vocab_size is not None:
        return list(range(evidence.FIRST_WORD_ID, int(vocab_size)))
    found: set[int] = set()
    for trace in plain:
        # The last token of an output that ended early may be the engine's own end token.
        is_short = len(trace.token_ids) < trace.request.max_new_tokens
        found.update(trace.token_ids[: -1 if is_short else None])
        # The first token of a prompt may be one that begins texts, and never comes again.
        found.update(trace.request.prompt_token_ids[1:])
    if len(found) < _FEWEST_WORDS + 1:
        raise Inconclusive(
            f"prompts and plain outputs hold {len(found)} different tokens, too few for a constraint "
            f"({_FEWEST_WORDS + 1} are wanted): bring more `prompts`"
        )
    return sorted(found)


def _end_token(subject: Any, words: Sequence[int]) -> int:
    """The probe's end token; elsewhere the last word, which then is none."""
    own = getattr(getattr(subject, "checkpoint", None), "eos_token_id", None)
    return words[-1] if own is None else int(own)
