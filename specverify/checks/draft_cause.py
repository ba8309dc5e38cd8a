"""What a drafter computed instead of its model's law: guesses that a float64 oracle can run, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.checks import noise, places
from specverify.checks.places import Place
from specverify.laws.sampling import softmax

Array = NDArray[np.float64]

# Traces whose first wrong row a guess must explain: later rows may suffer from several rejections at once.
_MOST_ROWS = 4
_STRETCHES = (2.0, 4.0, 8.0, 16.0, 32.0, 0.5, 0.25, 0.125)
_TEMPERATURES = (0.1, 10.0)
_NOT_THE_CACHE = (
    "every first draft token is wrong, before any cache row was left behind or dropped: the draft model's weights, "
    "vocabulary, rotary embedding or sampling are not those of its checkpoint."
)


@dataclass(frozen=True, eq=False)
class WrongRow:
    """A declared law that is not the draft model's. given: the law declared for draft token `index` of the step."""

    place: Place
    index: int
    given: Array

    @property
    def start(self) -> int:
        """Tokens of the text that the step began with."""
        return self.place.step.start_position

    @property
    def token_ids(self) -> list[int]:
        """The text and the draft tokens before this one."""
        text = places.committed_token_ids(self.place.trace)[: self.start]
        return [*text, *self.place.step.draft_token_ids[: self.index]]


def likely_cause(wrong: Sequence[WrongRow], judged: Sequence[Place], oracle: Any, allowed: float) -> str:
    """The one guess that gives the first wrong rows of several traces to within `allowed`; else an empty string.

    judged: the steps that were looked at. oracle: the draft model in float64: logits(token_ids, positions=, mask=).
    """
    first: dict[int, WrongRow] = {}
    for row in wrong:
        known = first.get(id(row.place.trace))
        if known is None or (row.start, row.index) < (known.start, known.index):
            first[id(row.place.trace)] = row
    chosen = sorted(first.values(), key=lambda row: (row.start, row.index))[:_MOST_ROWS]
    fitting: set[str] | None = None
    for row in chosen:
        found = {name for name, law in _guesses(row, oracle) if noise.total_variation(row.given, law) <= allowed}
        fitting = found if fitting is None else fitting & found
    temperature = _temperature(chosen, oracle, allowed)
    if temperature:
        return temperature
    # Where the text is short, several guesses are one and the same thing.
    if fitting and len(fitting) == 1:
        return f"{fitting.pop()}."
    begins = {id(place) for place in judged if place.previous is None and place.step.draft_token_ids}
    wrong_at_once = {id(row.place) for row in wrong if row.index == 0} & begins
    return _NOT_THE_CACHE if not fitting and len(wrong_at_once) == len(begins) > 0 else ""


def _guesses(row: WrongRow, oracle: Any) -> Iterator[tuple[str, Array]]:
    """(what went wrong, the law that would then come out)."""
    tokens, start = row.token_ids, row.start
    length = len(tokens)

    def law(positions: Any = None, mask: Any = None, ids: Sequence[int] = tokens) -> Array:
        return softmax(oracle.logits(np.asarray(ids), positions=positions, mask=mask)[-1])

    for factor in _STRETCHES:
        yield (
            f"the draft model turns queries and keys as if positions were divided by {factor:g}: it has another rotary "
            "scaling than its checkpoint says",
            law(np.arange(length) / factor),
        )
    for shift in (1, -1):
        where = f"one position too {'far' if shift > 0 else 'early'}"
        for first, what in ((start - 1, "the newest token and the draft tokens"), (start, "the draft tokens")):
            if 0 < first < length:
                positions = np.arange(length)
                positions[first:] += shift
                yield f"the draft model computes {what} {where}", law(positions)
    if length > start + 1:
        positions = np.arange(length)
        positions[start:] = start
        yield "the draft model computes every draft token at the position of the first", law(positions)
    if length > start - 1 > 0:
        yield "the draft model has not seen the newest token yet", law(ids=[*tokens[: start - 1], *tokens[start:]])
    for back in (1, 2, 3):
        # Rows of the text in front of the newest token.
        if start - 1 - back >= 0:
            mask = np.tri(length, dtype=bool)
            mask[start - 1 :, start - 1 - back] = False
            name = "the row of the token" if back == 1 else f"the row {back} tokens"
            yield f"{name} before the newest one is missing in the draft model's cache", law(mask=mask)
    yield from _after_a_rejection(row, tokens, law)


def _after_a_rejection(row: WrongRow, tokens: list[int], law: Any) -> Iterator[tuple[str, Array]]:
    before = row.place.previous
    if before is None or not before.is_rejection or before.parents is not None:
        return
    # The final token of the step before stands where its rejected token stood.
    where = before.start_position + before.num_accepted
    with_rejected = [*tokens[:where], before.draft_token_ids[before.num_accepted], *tokens[where:]]
    length = len(with_rejected)
    moved = np.arange(length)
    moved[where + 1 :] -= 1
    yield (
        "the row of a rejected draft token stays in the draft model's cache, in front of the right one",
        law(moved, ids=with_rejected),
    )
    yield (
        "the row of a rejected draft token stays in the draft model's cache, and all rows after it stand one too far",
        law(ids=with_rejected),
    )
    mask = np.tri(length, dtype=bool)
    mask[where + 1, where] = False
    mask[where + 2 :, where + 1] = False
    if length > where + 2:
        yield (
            "the draft model's cache keeps the row of a rejected draft token in place of the right one",
            law(moved, mask, with_rejected),
        )


def _temperature(rows: Sequence[WrongRow], oracle: Any, allowed: float) -> str:
    """Whether all are the right law at one other temperature."""
    slopes = []
    for row in rows:
        right = softmax(oracle.logits(np.asarray(row.token_ids))[-1])
        kept = (row.given > 0.0) & (right > 0.0)
        if kept.sum() < 3 or not kept.all():
            return ""
        x, y = np.log(right), np.log(row.given)
        spread = float(((x - x.mean()) ** 2).sum())
        slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread > 0.0 else 0.0
        if not 1.0 / _TEMPERATURES[1] < slope < 1.0 / _TEMPERATURES[0]:
            return ""
        if noise.total_variation(row.given, softmax(slope * x)) > allowed:
            return ""
        slopes.append(slope)
    if not slopes or max(slopes) - min(slopes) > 1e-3 * max(slopes):
        return ""
    return f"the draft law is declared at {1.0 / float(np.mean(slopes)):.3g} times the temperature asked for."
