"""Turns of a conversation: a prompt that goes on from what an earlier call answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specverify.checks import evidence, noise, places, wording
from specverify.checks.calls import generate_in_calls
from specverify.checks.evidence import GREEDY
from specverify.checks.kv_calls import first_wrong, require_right_so_far
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.checks.samples import Scorer
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.types import Request, Trace

# Answers of 4 to 7 tokens end on different places of a draft; the last two end at an end token, or at 8 tokens.
_ANSWER_LENGTHS = (4, 5, 6, 7, 8, 8)
_WITH_END = (4, 5)
# Every fourth token is an end token there: one comes soon, and nobody needs to know which.
_TOKENS_PER_END = 4
_NUM_WORDS = 3
# Whether each turn is speculated: what a turn leaves behind must be right for the other way of decoding too.
_TURNS = (True, True, False, True)


@dataclass(frozen=True, eq=False)
class _Wrong:
    """A turn, the one before it, its first wrong token, and what the model says instead."""

    before: Trace
    turn: Trace
    token_index: int
    best: Sequence[int]
    margin: float


@check(
    "kv.next-turn-right",
    claim="A prompt that goes on from an earlier answer is decoded like any other prompt.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE, Capability.LOAD_CHECKPOINT},
    exercised_by=(Exercised("tokens"),),
    catches=("prefix-cache-keeps-rejected",),
    source="Blaizzy/mlx-vlm#1715: rows of rejected draft tokens were kept for the next turn of a conversation",
)
def next_turn_right(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Conversations of four greedy turns: with speculation, with, without, and with it again. Each prompt is the one
    before, its answer, and a few more words. Answers end at their length limit, on different places of a draft, and at
    an end token.

    A cache that outlives a call misleads both ways of decoding, so every token from the second turn on is held against
    the probe's oracle. Inconclusive where the standard runs or the first turn depart from it already.
    """
    tolerance = 2.0 * noise.log_prob_noise(subject, context)
    scorer = Scorer(subject)
    if not scorer.has_oracle:
        raise Inconclusive("nobody knows what the tokens of the next turn should be")
    require_right_so_far(subject, context, scorer, tolerance)
    # One engine for all turns: what it keeps between calls is what is judged.
    engine = evidence.quiet(subject)
    before: tuple[Trace, ...] = ()
    for number, speculate in enumerate(_TURNS, start=1):
        requests = [_reply(trace) for trace in before] if before else _openings(subject, context)
        turns = generate_in_calls(engine, requests, speculate=speculate)
        wrong = [first_wrong(scorer, trace, tolerance) for trace in turns]
        if not before:
            if any(wrong):
                raise Inconclusive("the first turn departs from the checkpoint that was loaded already")
        elif any(wrong):
            found = [_Wrong(one, two, *how) for one, two, how in zip(before, turns, wrong, strict=True) if how]
            yield _finding(found, number, tolerance)
            return
        else:
            context.exercised("tokens", sum(len(trace.token_ids) for trace in turns))
        before = turns
    num_tokens = context.counters["tokens"]
    context.worth(f"{len(before)} conversations of {len(_TURNS)} turns; {num_tokens} tokens as the oracle has them")


def _openings(subject: Any, context: CheckContext) -> list[Request]:
    """First turns, of prompts that no other check has: a cache may hold right rows of those."""
    prompts = evidence.standard_prompts(subject, context)
    longest = evidence.new_tokens(subject)
    requests = []
    for index, length in enumerate(_ANSWER_LENGTHS):
        prompt = prompts[index % len(prompts)]
        has_end = index in _WITH_END and Capability.STOP in subject.capabilities
        ends = tuple(range(0, int(subject.checkpoint.vocab_size), _TOKENS_PER_END)) if has_end else ()
        name = f"conversation {index + 1}"
        requests.append(Request((*prompt, prompt[-1]), min(length, longest), GREEDY, None, ends, name))
    return requests


def _reply(trace: Trace) -> Request:
    """The next turn: prompt, answer and a few words of the prompt."""
    words = trace.request.prompt_token_ids[-_NUM_WORDS:]
    return replace(trace.request, prompt_token_ids=(*places.committed_token_ids(trace), *words))


def _finding(found: Sequence[_Wrong], number: int, tolerance: float) -> Finding:
    worst = min(found, key=lambda one: (len(one.turn.request.prompt_token_ids), one.token_index))
    before, turn, index = worst.before, worst.turn, worst.token_index
    shown = slice(max(0, index - 3), index + 5)
    how_far = f"it is {worst.margin:.3g} below the best one in log-probability" if worst.best else "no such token"
    return Finding(
        headline=f"In turn {number} of a conversation, new token {index} is {turn.token_ids[index]}, "
        "which is not the model's best.",
        table=Table(
            rows=(
                ("new token", *(str(i) for i in range(len(turn.token_ids))[shown])),
                ("best after this text", *wording.token_text(worst.best[shown])),
                ("the engine's", *wording.token_text(turn.token_ids[shown])),
            )
        ),
        not_noise=f"Not a near tie: {how_far}; rounding explains {tolerance:.1g}.",
        where=(
            f"Turn {number - 1}: prompt {wording.prompt_text(before.request.prompt_token_ids)}, "
            f"answer {list(before.token_ids)}, with speculation {'on' if before.speculated else 'off'}.",
            f"Turn {number}: both and {list(turn.request.prompt_token_ids[-_NUM_WORDS:])}, "
            f"with speculation {'on' if turn.speculated else 'off'}. The turns before it were right.",
            f"{len(found)} of {len(_ANSWER_LENGTHS)} conversations are wrong in this turn.",
        ),
        likely_cause="the cache that is kept for the next turn holds a row that is not the answer's: "
        "of a rejected draft token, or of a token that no pass has computed yet."
        if before.speculated
        else "",
        details={"wrong": len(found), "turn": number, "token_index": index, "margin": worst.margin},
    )
