"""Why log-probabilities may be wrong: each cause predicts them all, and is named only where it fits them all."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from specverify.checks import samples
from specverify.checks.log_prob_readings import CONVENTIONS, PLAIN, Held, Wrong, kind_of, read
from specverify.core.types import Trace

Array = NDArray[np.float64]

# Wrong tokens that a cause must fit: enough to rule out another one, few enough to score what was drafted there.
_MOST_FITTED, _LEAST_FITTED = 48, 3
# Of this share of them at least, a cause must predict the value.
_LEAST_PREDICTED = 0.75

# Rows of the verify pass that could be taken in place of a token's own. Arguments: its place in the step, draft tokens,
# accepted ones.
_ROWS: Mapping[str, Callable[[int, int, int], int]] = {
    "the row behind the token in place of the one before it (row i + 1 for token i)": lambda i, k, n: min(i + 1, k),
    "the row one too early (row i - 1 for token i)": lambda i, k, n: max(i - 1, 0),
    "the row of the last draft token, for every token of a step": lambda i, k, n: max(k - 1, 0),
    "the bonus row, for every token of a step": lambda i, k, n: k,
    "the first row, for every token of a step": lambda i, k, n: 0,
    "the final token's row, for every token of a step": lambda i, k, n: n,
}


def cause_of_counts(wrong: Sequence[Trace]) -> str:
    """A cause that explains the number of entries in every one of these traces, or nothing."""

    def fits(entries: Callable[[Trace], int]) -> bool:
        return all(trace.steps and len(trace.log_probs or ()) == entries(trace) for trace in wrong)

    if all(trace.log_probs is None for trace in wrong):
        return "log-probabilities are not filled in on this path, or the adapter does not ask for them."
    if fits(lambda trace: _first(trace) + sum(step.num_draft_tokens + 1 for step in trace.steps)) or fits(
        lambda trace: _first(trace) + sum(step.num_draft_tokens for step in trace.steps)
    ):
        return "there is an entry for every token that was drafted, emitted or not."
    if fits(lambda trace: _first(trace) + len(trace.steps)):
        return "one entry a step is kept, however many tokens it committed."
    if fits(lambda trace: _first(trace) + sum(step.num_accepted + 1 for step in trace.steps)):
        return "tokens behind the end of the output, which were cut off, have their entries still."
    return ""


def _first(trace: Trace) -> int:
    return trace.first_from_prefill


def cause_of(
    wrong: Sequence[Wrong], held: Sequence[Held], convention: str, scorer: samples.Scorer, allowed: float
) -> str:
    """A cause that predicts every wrong value, or nothing."""
    kinds = list(dict.fromkeys(kind_of(one.held.run, one.held.trace, one.index) for one in wrong))
    if convention != PLAIN and (other := _convention_of(kinds, held, convention, allowed)):
        return f"{' and '.join(kinds)} follow a convention of their own: {other}."
    if all(one.reported == 0.0 for one in wrong):
        what = kinds[0] if len(kinds) == 1 else "these tokens"
        return f"zeros are filled in for {what}, probability 1, without a look at the target's law."
    # Spread over all of them: other drafters, other requests.
    sample = wrong[:: -(-len(wrong) // _MOST_FITTED)]
    for offset, where in ((-1, "before it"), (1, "behind it")):
        # Where every entry is wrong, so is the guess at the engine's convention.
        for name in (convention, *wrong[0].held.wanted):
            if _fit(sample, [_neighbour(one, name, offset) for one in sample], allowed):
                return f"the list is shifted: each entry is that of the token {where}."
    if convention == PLAIN:
        return ""
    if _fit(sample, _of_draft(sample, scorer, convention, allowed), allowed):
        return "they are those of the draft model."
    rows = _verify_rows(sample, scorer)
    for text, row_of in _ROWS.items():
        values = [_of_row(one, row, row_of, convention, allowed) for one, row in zip(sample, rows, strict=True)]
        if _fit(sample, values, allowed):
            return f"an index inside the step is wrong: they are read from {text}."
    return ""


def _fit(sample: Sequence[Wrong], predicted: Sequence[float], allowed: float) -> bool:
    """Whether all that is predicted was reported; of a few tokens, such as the first, there may be no prediction."""
    gaps = [abs(value - one.reported) for value, one in zip(predicted, sample, strict=True) if value == value]
    return len(gaps) >= max(_LEAST_FITTED, _LEAST_PREDICTED * len(sample)) and max(gaps) <= allowed


def _convention_of(kinds: Sequence[str], held: Sequence[Held], convention: str, allowed: float) -> str:
    """Another convention, to which all tokens of these kinds keep: processed here, raw there."""
    for name, other in CONVENTIONS.items():
        misfits = [(one, index) for one in held for index in one.wrong(name, allowed)]
        if name != convention and not any(kind_of(one.run, one.trace, index) in kinds for one, index in misfits):
            return other.text
    return ""


def _neighbour(one: Wrong, convention: str, offset: int) -> float:
    wanted, index = one.held.wanted[convention], one.index + offset
    return float(wanted[index]) if 0 <= index < len(wanted) else math.nan


def _of_draft(sample: Sequence[Wrong], scorer: samples.Scorer, convention: str, allowed: float) -> list[float]:
    """What the drafter's law gives the tokens: by the probe's oracle, else as recorded of accepted draft tokens."""
    logits = scorer.draft_logits([one.held.trace for one in sample])
    if logits is not None:
        return [_value(rows[one.index], one, convention, allowed) for rows, one in zip(logits, sample, strict=True)]
    values = []
    for one in sample:
        step, slot = one.step or (None, 0)
        laws = None if step is None or slot >= step.num_accepted or step.parents is not None else step.draft_probs
        chance = 0.0 if laws is None else float(np.asarray(laws)[slot, one.token])
        values.append(math.log(chance) if chance > 0.0 else math.nan)
    return values


def _verify_rows(sample: Sequence[Wrong], scorer: samples.Scorer) -> list[Array | None]:
    """Logits [k + 1, vocab] of each token's verify pass: behind the text before the step, and each draft token."""
    passes: list[Trace | None] = []
    rows: list[Array | None] = []
    for one in sample:
        found, trace = one.step, one.held.trace
        if found is None or found[0].parents is not None:
            passes.append(None)
            continue
        step = found[0]
        before = trace.token_ids[: step.start_position - len(trace.request.prompt_token_ids)]
        # Rows come before each token, so any token stands for the one behind the draft.
        passes.append(replace(trace, token_ids=(*before, *step.draft_token_ids, 0)))
    scored = iter(scorer.logits([one for one in passes if one is not None]))
    for one, made in zip(sample, passes, strict=True):
        rows.append(None if made is None or one.step is None else next(scored)[-one.step[0].num_draft_tokens - 1 :])
    return rows


def _of_row(
    one: Wrong, rows: Array | None, row_of: Callable[[int, int, int], int], convention: str, allowed: float
) -> float:
    if rows is None or one.step is None:
        return math.nan
    step, slot = one.step
    return _value(rows[row_of(slot, step.num_draft_tokens, step.num_accepted)], one, convention, allowed)


def _value(logits: Array, one: Wrong, convention: str, allowed: float) -> float:
    """What a row of logits gives the token, read by the convention."""
    sampling = one.held.run.sampling
    reading = CONVENTIONS[convention].reading(sampling)
    return float(read(logits[None], sampling, reading, allowed)[0, one.token])
