"""Rows of a batch that draw alike: what was seen of them, and what is said of it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from specverify.checks import wording
from specverify.core.outcomes import Finding, Table
from specverify.core.types import Trace
from specverify.stats.shuffle import GROUP_SIZE, ShuffleBetting, inner_product

Call = tuple[Trace, ...]
Residuals = dict[tuple[int, int], float]
"""By (step, draft token): 1 or 0 for accepted or not, minus the chance that it is accepted."""

_SHOWN_PLACES = 5


@dataclass(frozen=True, eq=False)
class Seen:
    """Groups of calls that asked for the same rows, and what was bet on them.

    residuals: of the accept tests, as groups, calls and rows, under the rule of that name.
    """

    groups: Sequence[Sequence[Call]]
    rule: str
    residuals: Sequence[Sequence[Sequence[Residuals]]]
    tokens: ShuffleBetting = field(default_factory=ShuffleBetting)
    accepts: ShuffleBetting = field(default_factory=ShuffleBetting)

    @property
    def calls(self) -> list[Call]:
        return [call for group in self.groups for call in group]

    @property
    def traces(self) -> list[Trace]:
        return [trace for call in self.calls for trace in call]


def token_features(trace: Trace) -> Mapping[Hashable, float]:
    """Likeness of two of them is the number of places with the same token."""
    return dict.fromkeys(enumerate(trace.token_ids), 1.0)


def tokens_finding(seen: Seen, not_noise: str) -> Finding:
    calls, rows = _most_alike(seen)
    texts = [{trace.token_ids for trace in made} for made in seen.calls]
    won, bets = seen.tokens.num_won, seen.tokens.num_bets
    if len(set.union(*texts)) == 1:
        headline = f"{len(seen.traces)} requests without a seed gave {len(seen.traces)} times the same text."
    else:
        headline = f"{won} of {bets} rows are more like the rows of their own call than like those of other calls."
    return Finding(
        headline=headline,
        table=Table(
            rows=[
                (f"call {call}, row {row}", *wording.token_text(seen.calls[call][row].token_ids))
                for call in calls
                for row in rows
            ]
        ),
        not_noise=not_noise,
        where=_where(seen, "Shown are the two rows that are most alike."),
        likely_cause="every row draws with the same random numbers." if max(map(len, texts)) == 1 else "",
        details={"num_won": won, "num_bets": bets},
    )


def _most_alike(seen: Seen) -> tuple[tuple[int, int], tuple[int, int]]:
    """Two calls, and two rows: those that are most alike in each of the calls, and not across."""
    best = (-math.inf, (0, 1), (0, 1))
    for calls in combinations(range(GROUP_SIZE), 2):
        gaps = []
        for first, second in zip(*(seen.calls[call] for call in calls), strict=True):
            gap = dict(token_features(first))
            for key, value in token_features(second).items():
                gap[key] = gap.get(key, 0.0) - value
            gaps.append(gap)
        pairs = combinations(range(len(gaps)), 2)
        best = max(best, max((inner_product(gaps[a], gaps[b]), calls, (a, b)) for a, b in pairs))
    return best[1:]


def accepts_finding(seen: Seen, not_noise: str) -> Finding:
    found = []
    for number, call in enumerate(call for group in seen.residuals for call in group):
        for place in sorted({place for row in call for place in row}):
            # A residual is 1 - chance or -chance; 0 is a test that was sure, and tells nothing.
            values = [row[place] for row in call if row.get(place)]
            if len(values) > 1:
                found.append((abs(sum(values)), number, place, values))
    found.sort(key=lambda item: -item[0])
    won, bets = seen.accepts.num_won, seen.accepts.num_bets
    rows = []
    for _, number, (step, index), values in found[:_SHOWN_PLACES]:
        accepted = sum(value > 0.0 for value in values)
        cells = (number, step, index, len(values), accepted)
        rows.append((*map(str, cells), f"{accepted - sum(values):.1f}"))
    is_one_uniform = all(_have_one_threshold(values) for *_, values in found)
    return Finding(
        headline=f"In {won} of {bets} rows the accept tests go as in other rows of the same call.",
        table=Table(rows=[("call", "step", "draft token", "rows", "accepted", "expected"), *rows]),
        not_noise=not_noise,
        where=_where(seen, f"Expected by the {seen.rule} rule and the recorded laws; the furthest places are shown."),
        likely_cause="one uniform a draft place serves the accept tests of all rows: those with a chance above it "
        "accept."
        if is_one_uniform
        else "",
        details={"num_won": won, "num_bets": bets},
    )


def _have_one_threshold(values: Sequence[float]) -> bool:
    """Whether every accepted token had a higher chance than every rejected one."""
    accepted = [1.0 - value for value in values if value > 0.0]
    rejected = [-value for value in values if value < 0.0]
    return not accepted or not rejected or min(accepted) > max(rejected)


def _where(seen: Seen, shown: str) -> Sequence[str]:
    request = seen.traces[0].request
    return (
        f"Prompt {wording.prompt_text(request.prompt_token_ids)}, {request.max_new_tokens} new tokens, temperature 1; "
        f"{len(seen.calls)} calls with the same {len(seen.calls[0])} requests.",
        shown,
    )
