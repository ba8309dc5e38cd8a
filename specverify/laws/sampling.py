"""From logits to the law that a token is drawn from: constraints, penalties, temperature, top-k, top-p, min-p."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specverify.core.errors import UsageError
from specverify.core.types import SamplingParams


def law_from_logits(
    logits: ArrayLike,
    sampling: SamplingParams,
    *,
    prompt_token_ids: Sequence[int] = (),
    output_token_ids: Sequence[int] = (),
    is_allowed: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """The law of the next token, float64 [..., vocab]. Same arguments as processed_logits."""
    return softmax(
        processed_logits(
            logits,
            sampling,
            prompt_token_ids=prompt_token_ids,
            output_token_ids=output_token_ids,
            is_allowed=is_allowed,
        )
    )


def laws_along(
    logits: NDArray[np.float64], sampling: SamplingParams, prompt_token_ids: Sequence[int],
    output_token_ids: Sequence[int],
) -> NDArray[np.float64]:  # fmt: skip
    """The laws of an output's tokens, [n, vocab]: row i after its first i tokens, which is what penalties count."""
    if not sampling.has_penalties:
        return law_from_logits(logits, sampling)
    return np.stack([
        law_from_logits(row, sampling, prompt_token_ids=prompt_token_ids, output_token_ids=output_token_ids[:length])
        for length, row in enumerate(logits)
    ])  # fmt: skip


def processed_logits(
    logits: ArrayLike,
    sampling: SamplingParams,
    *,
    prompt_token_ids: Sequence[int] = (),
    output_token_ids: Sequence[int] = (),
    is_allowed: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """Logits after all sampling parameters, float64 [..., vocab]; removed tokens are -inf.

    Order as in transformers' generate: penalties, temperature, top-k, top-p, min-p. Several rows share one history.
    is_allowed: [vocab], or [..., vocab] for rows that differ: False for tokens that a constraint forbids. Their logits
    are -inf before everything else, so that filters count, and keep, allowed tokens only.
    Temperature 0 leaves one token, the likeliest after penalties; on a tie the lowest id.
    -inf is a legal logit (a masked token); NaN and +inf raise UsageError, as do parameters out of range.
    """
    values = _checked_logits(logits if is_allowed is None else allowed_logits(logits, is_allowed))
    _check_parameters(sampling)
    values = penalised_logits(values, sampling, prompt_token_ids, output_token_ids)
    if sampling.is_greedy:
        best = values.argmax(axis=-1, keepdims=True)
        return np.where(np.arange(values.shape[-1]) == best, 0.0, -np.inf)
    values = values / sampling.temperature
    if sampling.top_k > 0:
        values = _keep_top_k(values, sampling.top_k)
    if sampling.top_p < 1.0:
        values = _keep_top_p(values, sampling.top_p)
    if sampling.min_p > 0.0:
        values = _keep_min_p(values, sampling.min_p)
    return values


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of float64 logits along the last axis."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probs: NDArray[np.float64] = weights / weights.sum(axis=-1, keepdims=True)
    return probs


def allowed_logits(logits: ArrayLike, is_allowed: ArrayLike) -> NDArray[np.float64]:
    """The logits, -inf where is_allowed is False: the law under a constraint is the one of these."""
    masked: NDArray[np.float64] = np.where(np.asarray(is_allowed, dtype=bool), logits, -np.inf)
    return masked


def penalised_logits(
    logits: NDArray[np.float64],
    sampling: SamplingParams,
    prompt_token_ids: Sequence[int],
    output_token_ids: Sequence[int],
) -> NDArray[np.float64]:
    """Logits after repetition (prompt and output), presence and frequency (output only) penalties.

    Repetition divides positive logits and multiplies negative ones.
    Source: CTRL, arXiv 1909.05858, section 4.1, for repetition; OpenAI's API reference for the other two.
    """
    if not sampling.has_penalties:
        return logits
    vocab_size = logits.shape[-1]
    output_counts = _token_counts(output_token_ids, vocab_size, "output_token_ids")
    is_seen = output_counts + _token_counts(prompt_token_ids, vocab_size, "prompt_token_ids") > 0
    factor = np.where(logits > 0.0, 1.0 / sampling.repetition_penalty, sampling.repetition_penalty)
    values = np.where(is_seen, logits * factor, logits)
    values = values - sampling.frequency_penalty * output_counts
    result: NDArray[np.float64] = values - sampling.presence_penalty * (output_counts > 0)
    return result


def _keep_top_k(logits: NDArray[np.float64], top_k: int) -> NDArray[np.float64]:
    """Keeps the k largest; tokens tied with the last one kept stay too, as in transformers."""
    top_k = min(top_k, logits.shape[-1])
    threshold = np.partition(logits, -top_k, axis=-1)[..., -top_k, None]
    return np.where(logits < threshold, -np.inf, logits)


def _keep_top_p(logits: NDArray[np.float64], top_p: float) -> NDArray[np.float64]:
    """Removes the longest ascending tail with at most 1 - top_p of the mass; the likeliest token always stays.

    Sorting is ascending and stable as in transformers on a CPU: of tied tokens the lowest ids go first.
    """
    order = np.argsort(logits, axis=-1, kind="stable")
    tail = np.cumsum(np.take_along_axis(softmax(logits), order, axis=-1), axis=-1)
    is_removed_sorted = tail <= 1.0 - top_p
    is_removed_sorted[..., -1] = False
    is_removed = np.empty_like(is_removed_sorted)
    np.put_along_axis(is_removed, order, is_removed_sorted, axis=-1)
    return np.where(is_removed, -np.inf, logits)


def _keep_min_p(logits: NDArray[np.float64], min_p: float) -> NDArray[np.float64]:
    """Keeps tokens with at least min_p times the probability of the likeliest one."""
    probs = softmax(logits)
    return np.where(probs < min_p * probs.max(axis=-1, keepdims=True), -np.inf, logits)


def _token_counts(token_ids: Sequence[int], vocab_size: int, name: str) -> NDArray[np.int64]:
    ids = np.asarray(token_ids, dtype=np.int64).reshape(-1)
    outside = (ids < 0) | (ids >= vocab_size)
    if outside.any():
        position = int(np.argmax(outside))
        raise UsageError(f"{name}[{position}] is {ids[position]}; the logits have tokens 0 to {vocab_size - 1}")
    return np.bincount(ids, minlength=vocab_size)


def _checked_logits(logits: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(logits, dtype=np.float64)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise UsageError(f"logits have shape {values.shape}; give [..., vocab]")
    bad = np.isnan(values) | (values == np.inf)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        raise UsageError(f"logits{list(place)} is {values[place]}; logits are finite, or -inf for a masked token")
    if (values.max(axis=-1) == -np.inf).any():
        raise UsageError("a row of logits is -inf everywhere; at least one token must remain possible")
    return values


def _check_parameters(sampling: SamplingParams) -> None:
    rules = (
        ("temperature", sampling.temperature, 0.0 <= sampling.temperature < np.inf, "0 (greedy) or a positive number"),
        ("top_k", sampling.top_k, sampling.top_k >= 0, "0 (keep every token) or a positive number"),
        ("top_p", sampling.top_p, 0.0 < sampling.top_p <= 1.0, "above 0 and at most 1"),
        ("min_p", sampling.min_p, 0.0 <= sampling.min_p <= 1.0, "between 0 and 1"),
        ("repetition_penalty", sampling.repetition_penalty, sampling.repetition_penalty > 0.0, "above 0"),
        ("presence_penalty", sampling.presence_penalty, np.isfinite(sampling.presence_penalty), "finite"),
        ("frequency_penalty", sampling.frequency_penalty, np.isfinite(sampling.frequency_penalty), "finite"),
    )
    for name, value, is_right, rule in rules:
        if not is_right:
            raise UsageError(f"{name} is {value}; it must be {rule}")
