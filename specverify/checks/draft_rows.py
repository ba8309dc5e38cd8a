"""Declared draft laws beside the draft model's own: the first row that is not what the checkpoint gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.checks import evidence, noise, own_sampling, places, samples, wording
from specverify.checks.draft_cause import WrongRow, likely_cause
from specverify.checks.places import Place
from specverify.core.outcomes import Finding, Table
from specverify.laws.sampling import law_from_logits

Array = NDArray[np.float64]

_SHOWN = 6


def oracle_rows(seen: Sequence[Place], oracle: Any, *, final: bool, subject: Any = None) -> list[Array]:
    """The oracle's laws before each draft token of each step, and after the last with final: [k (+ 1), vocab].

    subject: whose way of drafting counts, where these are the draft's laws.
    """
    texts = [(*places.committed_token_ids(p.trace)[: p.step.start_position], *p.step.draft_token_ids) for p in seen]
    rows = []
    for place, text, logits in zip(seen, texts, oracle.batch_logits(texts), strict=True):
        start, count = place.step.start_position, place.step.num_draft_tokens
        prompt_length = len(place.trace.request.prompt_token_ids)
        needed = logits[start - 1 : start + count - 1 + int(final)]
        asked = place.run.sampling
        sampling = asked if subject is None else own_sampling.draft_sampling(subject, asked)
        if not sampling.has_penalties:
            rows.append(law_from_logits(needed, sampling))
            continue
        rows.append(
            np.stack(
                [
                    law_from_logits(
                        row,
                        sampling,
                        prompt_token_ids=place.trace.request.prompt_token_ids,
                        output_token_ids=text[prompt_length : start + index],
                    )
                    for index, row in enumerate(needed)
                ]
            )
        )
    return rows


def stale_draft_law(seen: Sequence[Place], scorer: samples.Scorer, subject: Any) -> Finding | str | None:
    """The first declared draft row that is not the draft model's law after the true text.

    A text in its place says why that is not decided: the drafter may sample in a way of its own.
    """
    if not scorer.has_draft_oracle:
        return None
    # Plain sampling only: options of the request are one more thing that a drafter may take or leave. It may also take
    # its likeliest token if it declares that. And no text with the padding token in it: transformers
    # masks it wherever it stands.
    declared = [
        place
        for place in seen
        if place.step.draft_probs is not None
        and place.step.parents is None  # draft.law-as-computed-afresh judges those
        and place.trace.request.sampling == evidence.SAMPLED
        and scorer.checkpoint.pad_token_id not in places.committed_token_ids(place.trace)
    ]
    if not declared:
        return None
    allowed = noise.row_allowance(subject)
    wrong: list[_Wrong] = []
    wanted = oracle_rows(declared, scorer.checkpoint.draft_oracle, final=False, subject=subject)
    for place, rows in zip(declared, wanted, strict=True):
        given = np.asarray(place.step.draft_probs, dtype=np.float64)
        gaps = 0.5 * np.abs(given - rows).sum(axis=1)
        is_argmax = [noise.is_point_mass_on_best(one, row, allowed) for one, row in zip(given, rows, strict=True)]
        bad = np.flatnonzero(~(gaps <= allowed) & ~np.array(is_argmax, dtype=bool))
        if bad.size:
            wrong.append(_Wrong(WrongRow(place, int(bad[0]), given[bad[0]]), float(gaps[bad[0]]), rows[bad[0]]))
    # Coarse dtypes let a token slip over the edge of a filter now and then: that is rounding, not a stale row.
    rare = noise.dtype_of(subject) != "float64" and len(wrong) < 0.02 * len(declared)
    if not wrong or rare:
        return None
    rows_given = [row for place in declared for row in np.asarray(place.step.draft_probs, dtype=np.float64)]
    undeclared = own_sampling.undeclared_text(subject, rows_given, list(np.concatenate(wanted)), allowed)
    return undeclared or _stale_finding(wrong, declared, allowed, scorer.checkpoint.draft_oracle)


@dataclass(frozen=True, eq=False)
class _Wrong:
    """gap: total variation of the declared row from the draft model's own law."""

    row: WrongRow
    gap: float
    wanted: Array


def _stale_finding(wrong: Sequence[_Wrong], declared: Sequence[Place], allowed: float, oracle: Any) -> Finding:
    where = places.smallest([one.row.place for one in wrong])
    first = next(one for one in wrong if one.row.place is where)
    step, index, given = where.step, first.row.index, first.row.given
    shown = sorted(np.argsort(-np.maximum(given, first.wanted), kind="stable")[:_SHOWN].tolist())
    return Finding(
        headline=f"Step {step.index}: the law of draft token {index} is not the draft model's law after this text.",
        table=Table(
            rows=(
                ("token", *map(str, shown)),
                ("draft model", *(wording.probability_text(float(first.wanted[t])) for t in shown)),
                ("declared", *(wording.probability_text(float(given[t])) for t in shown)),
            )
        ),
        not_noise=f"Total variation {first.gap:.3g}, rounding explains {allowed:.0e}; by the probe's float64 oracle.",
        where=(
            f"Seen in: {where.describe()}, position {step.start_position + index}.",
            places.where_it_begins([one.row.place for one in wrong], declared),
            "The output is right all the same: only acceptance suffers, so nothing else shows it.",
        ),
        likely_cause=likely_cause([one.row for one in wrong], declared, oracle, allowed),
        details={"wrong_steps": len(wrong), "steps": len(declared), "total_variation": first.gap},
    )
