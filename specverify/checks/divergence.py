"""Where two greedy outputs of one prompt part, whether rounding explains it, and what is said of it if not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specverify.checks import noise, places, wording
from specverify.checks.evidence import Run
from specverify.checks.registry import CheckContext, Inconclusive
from specverify.core.outcomes import Finding, Table
from specverify.core.types import Step, Trace
from specverify.trace.pipeline import common_length

# Without scores a near tie cannot be told from a bug. Near ties are rare: this share of tokens or more is a bug.
_DIVERGENCES_PER_TOKEN_WITHOUT_SCORES = 0.04


@dataclass(frozen=True, eq=False)
class Divergence:
    """The first new token at which two greedy outputs of one prompt differ.

    token_index: index among the new tokens; on, off: the two tokens, None where that output had already ended.
    margin: log-probability of the best token minus that of `on`, and of `off`; None where nobody knows them.
    """

    run: Run
    on: Trace
    off: Trace
    token_index: int
    on_token: int | None
    off_token: int | None
    on_margin: float | None = None
    off_margin: float | None = None

    @property
    def step(self) -> Step | None:
        """The step that emitted the token."""
        position = len(self.on.request.prompt_token_ids) + self.token_index
        for step in self.on.steps:
            if step.start_position <= position < step.start_position + len(step.token_ids):
                return step
        return None

    @property
    def slot(self) -> int:
        """Place of the token in its step."""
        step = self.step
        return 0 if step is None else len(self.on.request.prompt_token_ids) + self.token_index - step.start_position

    def is_near_tie(self, tolerance: float) -> bool:
        """Whether rounding can turn one of the two into the other: both are as good as the best token."""
        margins = (self.on_margin, self.off_margin)
        return all(margin is not None and margin <= tolerance for margin in margins)


def first_divergence(run: Run, on: Trace, off: Trace) -> Divergence | None:
    """Where two outputs of one prompt part; None where they are equal."""
    index = common_length(on.token_ids, off.token_ids)
    on_token, off_token = (trace.token_ids[index] if index < len(trace.token_ids) else None for trace in (on, off))
    return None if on_token is off_token is None else Divergence(run, on, off, index, on_token, off_token)


def _tokens(divergence: Divergence) -> tuple[int | None, int | None]:
    return divergence.on_token, divergence.off_token


def with_margins(divergence: Divergence, subject: Any, context: CheckContext) -> Divergence:
    """With the margins of both tokens, where their probabilities are known; among allowed tokens where some are not."""
    prefix = divergence.off.token_ids[: divergence.token_index]
    request = divergence.off.request
    log_probs = noise.next_log_probs(subject, request.prompt_token_ids, prefix, request.sampling)
    if log_probs is None or None in _tokens(divergence):
        return divergence
    allowed = request.allowed_after(prefix)
    if allowed is not None:
        log_probs = noise.only_allowed(log_probs, allowed)
    best = float(np.max(log_probs))
    margins = [best - float(log_probs[token]) for token in _tokens(divergence) if token is not None]
    return replace(divergence, on_margin=margins[0], off_margin=margins[1])


def bugs_among(found: Sequence[Divergence], tolerance: float, context: CheckContext) -> list[Divergence]:
    """The divergences that are no near ties. Raises Inconclusive where nobody can tell, and they are few."""
    bugs = [divergence for divergence in found if not divergence.is_near_tie(tolerance)]
    unscored = [divergence for divergence in bugs if divergence.on_margin is None and None not in _tokens(divergence)]
    if bugs and len(unscored) == len(bugs) and not _too_many(unscored, context):
        raise Inconclusive(
            f"{len(bugs)} outputs diverge and nobody can say by how much: declare SCORE, or load a probe checkpoint, "
            "so that a near tie can be told from a bug"
        )
    return bugs


def _too_many(unscored: Sequence[Divergence], context: CheckContext) -> bool:
    tokens = context.counters["tokens"] + len(unscored)
    return len(unscored) > 2 and len(unscored) / tokens > _DIVERGENCES_PER_TOKEN_WITHOUT_SCORES


def finding_of(bugs: Sequence[Divergence], tolerance: float, context: CheckContext) -> Finding:
    """What is said of divergences that are no near ties; the earliest is shown."""
    worst = min(bugs, key=lambda item: item.token_index)
    index, prompt = worst.token_index, worst.on.request.prompt_token_ids
    position = len(prompt) + index
    shown = slice(max(0, index - 3), index + 5)
    step = worst.step
    return Finding(
        headline=f"The outputs first differ at position {position} (new token {index}): "
        f"{_name(worst.on_token)} with speculation, {_name(worst.off_token)} without.",
        table=Table(
            rows=(
                ("new token", *(str(i) for i in range(len(worst.off.token_ids))[shown])),
                ("speculation off", *wording.token_text(worst.off.token_ids[shown])),
                ("speculation on", *wording.token_text(worst.on.token_ids[shown])),
            )
        ),
        not_noise=_not_noise(worst, tolerance, len(bugs), context),
        where=(
            f"Seen in: {worst.run.label}, request {worst.on.request.request_id}, prompt {wording.prompt_text(prompt)}.",
            *(_slot(worst, step) if step is not None else (f"It {places.place_text(worst.on, index)}.",)),
            f"{len(bugs)} outputs diverge: {_by_drafter(bugs)}.",
        ),
        likely_cause=_cause(bugs),
        details={"token_index": index, "margin": worst.on_margin, "tolerance": tolerance, "divergences": len(bugs)},
    )


def _name(token: int | None) -> str:
    return "the end" if token is None else f"token {token}"


def _not_noise(worst: Divergence, tolerance: float, num_bugs: int, context: CheckContext) -> str:
    if worst.on_margin is None or worst.off_margin is None:
        if None in _tokens(worst):
            return "Not a near tie: one output ends where the other goes on."
        return (
            f"No scores are available, but {num_bugs} outputs diverge within {context.counters['tokens']:,} tokens: "
            "near ties are far rarer."
        )
    if worst.off_margin > tolerance:
        return (
            f"Not a near tie: plain decoding took a token {worst.off_margin:.3g} below the best one in "
            f"log-probability; rounding explains {tolerance:.1g}. Here plain decoding departs from the model."
        )
    return (
        f"Not a near tie: the token with speculation is {worst.on_margin:.3g} below the best one in log-probability; "
        f"rounding explains {tolerance:.1g}."
    )


def _slot(worst: Divergence, step: Step) -> Iterator[str]:
    slot = worst.slot
    if slot < step.num_accepted:
        what = f"an accepted draft token (number {slot} of {step.num_draft_tokens})"
    elif step.parents is not None:
        what = f"the token after {slot} accepted tokens of a draft tree of {step.num_draft_tokens}"
    elif step.is_rejection:
        what = f"the token in place of rejected draft token {slot} of {step.num_draft_tokens}"
    else:
        what = f"the bonus token after {step.num_draft_tokens} accepted draft tokens"
    yield f"It is {what}, in step {step.index}."


def _by_drafter(bugs: Sequence[Divergence]) -> str:
    names = Counter(divergence.run.drafter for divergence in bugs)
    return ", ".join(f"{count} with the {name} drafter" for name, count in names.items())


def _cause(bugs: Sequence[Divergence]) -> str:
    """A cause that every divergence shares, or nothing."""
    kinds = set()
    for divergence in bugs:
        step = divergence.step
        if step is None or None in _tokens(divergence):
            return ""
        kinds.add("draft" if divergence.slot < step.num_accepted else "residual" if step.is_rejection else "bonus")
        if all(earlier.num_accepted == earlier.num_draft_tokens for earlier in divergence.on.steps[: step.index]):
            kinds.add("no rejection before")
    if len(bugs) < 2:
        return ""
    if kinds - {"no rejection before"} == {"bonus"}:
        return "the bonus token is taken from the wrong row: accepted and residual tokens are right everywhere."
    if kinds == {"draft", "no rejection before"}:
        return "draft tokens are accepted that the target would not have chosen."
    if "no rejection before" not in kinds and all(d.step is None or d.step.parents is None for d in bugs):
        return "something a rejection leaves behind (cache rows, positions): no output diverges before its first one."
    return ""
