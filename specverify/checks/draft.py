"""Draft tokens really come from the law that is declared for them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.checks import evidence, noise, places, power, wording
from specverify.checks.places import Place
from specverify.checks.registry import CheckContext, Exercised, Inconclusive, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.stats.combine import average_log_e
from specverify.stats.pit import PitStream

Array = NDArray[np.float64]

_SHOWN = 6


@check(
    "draft.declared-law-sampled",
    claim="Every draft token is drawn from the very law that the verifier is told.",
    kind=Kind.STATISTICAL,
    needs={Capability.TRACE, Capability.DRAFT_PROBS},
    exercised_by=(Exercised("judged-draft-tokens"),),
    catches=(
        "draft-law-argmax-sampled",
        "draft-law-raw-declared",
        "tree-likeliest-declared-as-drawn",
        "draft-id-argmax-unmapped",
    ),
    source="jaymody/speculative-sampling#3: argmax drafts with the soft law in the ratio; transformers#47932",
)
def declared_law_sampled(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """The verifier's proof needs the draft law in the ratio to be the one the token was drawn from.

    Draft tokens are held against their declared rows, with and without filters: one token whose declared probability
    is zero is a proof; otherwise a randomised probability transform in several orders, by place in the draft.
    """
    seen = [place for place in drafting_places(subject, context) if place.step.draft_probs is not None]
    if not seen:
        raise Inconclusive("the drafter declares no law (a deterministic proposer), or drafted nothing")
    tokens, laws, slots, others = _draft_tokens(seen)
    context.exercised("judged-draft-tokens", len(tokens))
    # Half precision rounds small probabilities to zero: there a zero is no proof.
    outside = (tokens < 0) | (tokens >= laws.shape[1])
    own = np.where(outside, 0.0, laws[np.arange(len(tokens)), np.where(outside, 0, tokens)])
    if (own == 0.0).any() and noise.dtype_of(subject) != "float16":
        yield _impossible_finding(seen, own)
        return
    rng = context.streams.generator("draft", "declared-law")
    # All tokens together, and those of each sampling setting alone: a law declared before the filters is wrong only
    # where there are filters.
    settings = np.concatenate([np.full(p.step.num_draft_tokens, p.run.sampling.top_k) for p in seen])
    groups = [own > 0.0, *((own > 0.0) & (settings == value) for value in np.unique(settings))]
    streams = []
    for chosen in groups if len(groups) > 2 else groups[:1]:
        stream = PitStream(laws.shape[1], num_slots=int(slots.max()) + 1)
        stream.update(tokens[chosen], laws[chosen], rng=rng, slots=slots[chosen], draft_laws=others[chosen])
        streams.append(stream)
    log_e = float(average_log_e([stream.log_e for stream in streams]))
    context.figures.update(log_e=log_e, num_draft_tokens=len(tokens))
    if log_e >= -math.log(context.alpha):
        yield _law_finding(log_e, streams, tokens, laws, seen, context)
        return
    share = context.alpha / len(streams)
    tv = power.require(
        context, len(tokens), lambda count: streams[0].detectable_tv(share, count),
        things="draft tokens", how=power.more_drafts(subject), subject=subject,
    )  # fmt: skip
    caught = streams[0].detectable_text(tv, law="declared law", ratio="target / declared")
    context.worth(f"{len(tokens):,} draft tokens; would have caught {caught}")


def drafting_places(subject: Any, context: CheckContext) -> list[Place]:
    return [
        place for place in places.all_places(evidence.drafting_runs(subject, context)) if place.step.num_draft_tokens
    ]


def _draft_tokens(seen: Sequence[Place]) -> tuple[NDArray[np.int64], Array, NDArray[np.int64], Array]:
    """Draft tokens [n], their declared laws [n, vocab], places in the draft [n], and the target's laws or NaN."""
    tokens = np.concatenate([np.asarray(place.step.draft_token_ids, dtype=np.int64) for place in seen])
    laws = np.concatenate([np.asarray(place.step.draft_probs, dtype=np.float64) for place in seen])
    slots = np.concatenate([np.arange(place.step.num_draft_tokens) for place in seen])
    targets = [
        np.full((place.step.num_draft_tokens, laws.shape[1]), np.nan)
        if place.step.target_probs is None
        else np.asarray(place.step.target_probs, dtype=np.float64)[: place.step.num_draft_tokens]
        for place in seen
    ]
    laws = laws / laws.sum(axis=1, keepdims=True)
    return tokens, laws, slots, np.concatenate(targets)


def _impossible_finding(seen: Sequence[Place], own: Array) -> Finding:
    owners = [(place, index) for place in seen for index in range(place.step.num_draft_tokens)]
    wrong = [owner for owner, probability in zip(owners, own, strict=True) if probability == 0.0]
    place, index = min(wrong, key=lambda item: (item[0].step.start_position, item[1]))
    step, sampling = place.step, place.trace.request.sampling
    assert step.draft_probs is not None
    return Finding(
        headline=f"Step {step.index} drafted token {step.draft_token_ids[index]}, whose declared probability is 0.",
        table=_row_table(np.asarray(step.draft_probs[index], dtype=np.float64), step.draft_token_ids[index]),
        not_noise="A proof, not a statistic: a token cannot be drawn from a law that forbids it.",
        where=(
            f"Seen in: {place.describe()}, draft token {index} of {step.num_draft_tokens}.",
            f"{len(wrong)} such tokens among {len(own):,}; temperature {sampling.temperature:g}, "
            f"top-k {sampling.top_k or 'off'}.",
        ),
        details={"impossible": len(wrong), "draft_tokens": len(own)},
    )


def _row_table(law: Array, token: int) -> Table:
    shown = sorted(np.argsort(-law, kind="stable")[:_SHOWN].tolist())
    return Table(
        rows=(
            ("token", *map(str, shown)),
            ("declared law", *(wording.probability_text(float(law[t])) for t in shown)),
            ("drafted", str(token)),
        )
    )


def _law_finding(
    log_e: float, streams: Sequence[PitStream], tokens: NDArray[np.int64], laws: Array, seen: Sequence[Place],
    context: CheckContext,
) -> Finding:  # fmt: skip
    certified = max(stream.certified_tv(context.alpha / len(streams)) for stream in streams)
    best = float(np.mean(tokens == laws.argmax(axis=1)))
    expected = float(np.mean(laws.max(axis=1)))
    own = float(laws[np.arange(len(tokens)), tokens].mean())
    cause = ""
    if best == 1.0 and expected < 1.0:
        cause = "draft tokens are always the likeliest one, while the soft law is declared."
    filtered = [place for place in seen if place.trace.request.sampling != evidence.SAMPLED]
    return Finding(
        headline=f"{len(tokens):,} draft tokens do not follow the laws declared for them.",
        table=Table(
            rows=(
                ("", "observed", "declared"),
                ("the likeliest token", f"{best:.3f}", f"{expected:.3f}"),
                ("mean probability of the token", f"{own:.3f}", f"{(laws**2).sum(axis=1).mean():.3f}"),
            )
        ),
        not_noise=f"Not luck: log e-value {log_e:.1f}, alarm from {-math.log(context.alpha):.1f}."
        + (f" The tokens prove a total variation of at least {certified:.3g}." if certified > 0.0 else ""),
        where=(
            f"{len(seen):,} steps, {len(filtered):,} of them with temperature and top-k on.",
            "Acceptance and residual are computed from the declared law: the output is then not the target's.",
        ),
        likely_cause=cause,
        details={"log_e": log_e, "certified_tv": certified},
    )
