"""A drafter may sample in a way of its own, whatever the request asks for: lossless, so long as its laws say so.

What its laws should be is then a matter of what it was meant to do, which only the engine's authors know: they declare
`draft_sampling`. Where they do not and the laws fit such a way, that is no finding and no pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.core.errors import UsageError
from specverify.core.types import SamplingParams
from specverify.laws.sampling import law_from_logits

Array = NDArray[np.float64]

# So many rows must tell a temperature, and this share of all must follow from it, before it is believed.
_FEWEST_ROWS, _MOST_ROWS, _SHARE = 8, 200, 0.9
# The model's own probabilities of the two tokens that tell a temperature differ by this factor at least.
_LEAST_RATIO = 1.2
_DIGITS = 4


def draft_sampling(subject: Any, request: SamplingParams) -> SamplingParams:
    """How the drafter samples for a request: as the request says, unless the subject declares a way of its own."""
    declared = getattr(subject, "draft_sampling", None)
    if declared is not None and not isinstance(declared, SamplingParams):
        raise UsageError(
            f"{subject.name}: draft_sampling is a {type(declared).__name__}; give specverify.core.types.SamplingParams"
        )
    return declared or request


def undeclared_text(subject: Any, given: Sequence[Array], plain: Sequence[Array], allowed: float) -> str:
    """Why nothing is decided, if nearly all given laws are the plain ones under one way of sampling; else empty.

    given: laws that were declared, each [vocab]; plain: the model's law at temperature 1 for the same places. allowed:
    total variation that rounding explains.
    """
    if getattr(subject, "draft_sampling", None) is not None:
        return ""
    every = max(1, len(given) // _MOST_ROWS)
    found = _fitted(np.stack(given[::every]), np.stack(plain[::every]), allowed) if len(given) else None
    if found is None:
        return ""
    parts = ", ".join(
        f"{one.name}={getattr(found, one.name):.{_DIGITS}g}" for one in fields(found) if _differs(found, one.name)
    )
    return (
        f"the laws that the drafter declares are its model's under other options than the request's ({parts}): if it "
        f"is meant to sample so, declare draft_sampling = SamplingParams({parts}) on the engine"
    )


def _differs(found: SamplingParams, name: str) -> bool:
    return bool(getattr(found, name) != getattr(SamplingParams(), name))


def _fitted(given: Array, plain: Array, allowed: float) -> SamplingParams | None:
    temperature = _temperature(given, plain)
    if temperature is None:
        return None
    with np.errstate(divide="ignore"):
        logits = np.log(plain)
    for found in _with_filters(given, logits, temperature):
        gaps = 0.5 * np.abs(law_from_logits(logits, found) - given).sum(axis=1)
        if found != SamplingParams() and (gaps <= allowed).mean() >= _SHARE:
            return found
    return None


def _temperature(given: Array, plain: Array) -> float | None:
    """Median over rows, each told by the likeliest and the least likely token that was kept; None where few tell."""
    told = []
    for law, own in zip(given, plain, strict=True):
        kept = np.flatnonzero((law > 0.0) & (own > 0.0))
        if not len(kept):
            continue
        most, least = kept[own[kept].argmax()], kept[own[kept].argmin()]
        if own[most] >= _LEAST_RATIO * own[least] and law[most] > law[least]:
            told.append(math.log(own[most] / own[least]) / math.log(law[most] / law[least]))
    return round(float(np.median(told)), _DIGITS) if len(told) >= _FEWEST_ROWS else None


def _with_filters(given: Array, logits: Array, temperature: float) -> Iterator[SamplingParams]:
    """No filter, then top-k, top-p and min-p with the value that the kept tokens of all rows imply, if there is one."""
    yield SamplingParams(temperature=temperature)
    vocab_size = given.shape[-1]
    num_kept = (given > 0.0).sum(axis=1)
    top_k = int(np.median(num_kept))
    if top_k < vocab_size:
        yield SamplingParams(temperature=temperature, top_k=top_k)
    tempered = law_from_logits(logits, SamplingParams(temperature=temperature))
    kept_mass = (tempered * (given > 0.0)).sum(axis=1)
    least_kept = np.where(given > 0.0, tempered, np.inf).min(axis=1)
    most_dropped = np.where(given > 0.0, 0.0, tempered).max(axis=1)
    best = tempered.max(axis=1)
    # The median over rows, on each side: a few rows that are wrong for another reason must not hide the value.
    low, high = np.quantile(kept_mass - least_kept, _SHARE), np.quantile(kept_mass, 1.0 - _SHARE)
    if 0.0 < low < high:
        yield SamplingParams(temperature=temperature, top_p=round(float(low + high) / 2.0, _DIGITS))
    low, high = np.quantile(most_dropped / best, _SHARE), np.quantile(least_kept / best, 1.0 - _SHARE)
    if 0.0 < low < high:
        yield SamplingParams(temperature=temperature, min_p=round(float(low + high) / 2.0, _DIGITS))
