"""Verify functions as third parties write them in numpy or plain Python: one per style. All are lossless."""

from __future__ import annotations

import math

import numpy as np


def residual_row(draft_probs, target_probs, position):
    if position == len(draft_probs):
        return target_probs[position]
    return np.maximum(target_probs[position] - draft_probs[position], 0.0)


def at_draft(draft, draft_probs, target_probs):
    positions = np.arange(len(draft))
    return target_probs[positions, draft], draft_probs[positions, draft]


def scalar_choice(rng, draft, draft_probs, target_probs):
    tokens = []
    for position, token in enumerate(draft):
        if rng.random() < target_probs[position][token] / draft_probs[position][token]:
            tokens.append(int(token))
            continue
        residual = residual_row(draft_probs, target_probs, position)
        tokens.append(int(rng.choice(len(residual), p=residual / residual.sum())))
        return tokens
    tokens.append(int(rng.choice(target_probs.shape[1], p=target_probs[-1])))
    return tokens


def scalar_inverse_cdf(rng, draft, draft_probs, target_probs):
    position = 0
    while position < len(draft):
        token = draft[position]
        if rng.random() >= min(1.0, target_probs[position, token] / draft_probs[position, token]):
            break
        position += 1
    residual = residual_row(draft_probs, target_probs, position)
    cumulative = np.cumsum(residual / residual.sum())
    token = min(int(np.searchsorted(cumulative, rng.random(), side="right")), len(residual) - 1)
    return [*(int(token) for token in draft[:position]), token]


def vector_choice(rng, draft, draft_probs, target_probs):
    wanted, drafted = at_draft(draft, draft_probs, target_probs)
    accepted = rng.random(len(draft)) < wanted / drafted
    n = len(draft) if accepted.all() else int(np.argmin(accepted))
    residual = residual_row(draft_probs, target_probs, n)
    return (*draft[:n], rng.choice(len(residual), p=residual / residual.sum()))


def vector_log_ratio(rng, draft, draft_probs, target_probs):
    wanted, drafted = at_draft(draft, draft_probs, target_probs)
    uniforms = rng.random(len(draft) + 1)
    accepted = np.log(uniforms[:-1]) <= np.log(wanted) - np.log(drafted)
    n = int(np.cumprod(accepted.astype(int)).sum())
    residual = residual_row(draft_probs, target_probs, n)
    return (*draft[:n], np.argmax(np.cumsum(residual / residual.sum()) > uniforms[-1]))


def exponential_race(rng, draft, draft_probs, target_probs):
    wanted, drafted = at_draft(draft, draft_probs, target_probs)
    rejected = ~(rng.random(len(draft)) * drafted <= wanted)
    n = int(rejected.argmax()) if rejected.any() else len(draft)
    residual = residual_row(draft_probs, target_probs, n)
    return (*draft[:n], np.argmax(residual / rng.exponential(size=len(residual))))


def all_row_race(rng, draft, draft_probs, target_probs):
    noise = rng.standard_exponential(target_probs.shape)
    wanted, drafted = at_draft(draft, draft_probs, target_probs)
    gain = np.concatenate([np.maximum(target_probs[:-1] - draft_probs, 0.0), target_probs[-1:]])
    recovered = (gain / noise).argmax(axis=-1)
    accepted = (drafted > 0.0) & (wanted / drafted >= rng.random(len(draft)))
    n = int(np.cumprod(accepted).sum())
    return (*draft[:n], recovered[n])


def gumbel_max(rng, draft, draft_probs, target_probs):
    wanted, drafted = at_draft(draft, draft_probs, target_probs)
    uniforms = rng.random(len(draft))
    n = 0
    while n < len(draft) and uniforms[n] < wanted[n] / drafted[n]:
        n += 1
    residual = residual_row(draft_probs, target_probs, n)
    with np.errstate(divide="ignore"):
        scores = np.log(residual) - np.log(-np.log(rng.random(len(residual))))
    return (*draft[:n], np.argmax(scores))


def gumbel_library(rng, draft, draft_probs, target_probs):
    wanted, drafted = at_draft(draft, draft_probs, target_probs)
    n = 0
    while n < len(draft) and rng.uniform(0.0, drafted[n]) < wanted[n]:
        n += 1
    residual = residual_row(draft_probs, target_probs, n)
    with np.errstate(divide="ignore"):
        return (*draft[:n], np.argmax(np.log(residual) + rng.gumbel(size=len(residual))))


def multinomial_one_hot(rng, draft, draft_probs, target_probs):
    wanted, drafted = at_draft(draft, draft_probs, target_probs)
    accepted = np.minimum(1.0, wanted / drafted) > rng.random(len(draft))
    n = int(np.argmin(np.append(accepted, False)))
    residual = residual_row(draft_probs, target_probs, n)
    return (*draft[:n], rng.multinomial(1, residual / residual.sum()).argmax())


STYLES = (
    scalar_choice, scalar_inverse_cdf, vector_choice, vector_log_ratio, exponential_race, all_row_race, gumbel_max,
    gumbel_library, multinomial_one_hot,
)  # fmt: skip


def python_choices(rng, draft, draft_probs, target_probs):
    for position, token in enumerate(draft):
        if rng.random() < target_probs[position][token] / draft_probs[position][token]:
            continue
        rows = zip(target_probs[position], draft_probs[position], strict=True)
        weights = [max(wanted - drafted, 0.0) for wanted, drafted in rows]
        return [*draft[:position], rng.choices(range(len(weights)), weights=weights, k=1)[0]]
    return [*draft, rng.choices(range(len(target_probs[-1])), weights=target_probs[-1])[0]]


def python_running_sum(rng, draft, draft_probs, target_probs):
    position = 0
    while position < len(draft):
        token = draft[position]
        if rng.random() >= target_probs[position][token] / draft_probs[position][token]:
            break
        position += 1
    row = target_probs[position]
    if position < len(draft):
        row = [max(wanted - drafted, 0.0) for wanted, drafted in zip(row, draft_probs[position], strict=True)]
    point, reached = rng.random() * sum(row), 0.0
    for token, weight in enumerate(row):
        reached += weight
        if point < reached:
            return [*draft[:position], token]
    return [*draft[:position], max(token for token, weight in enumerate(row) if weight > 0.0)]


def python_loop(rng, draft, draft_probs, target_probs):
    tokens = list(draft)
    for position, token in enumerate(draft):
        if math.log(rng.random()) >= math.log(target_probs[position][token]) - math.log(draft_probs[position][token]):
            del tokens[position:]
            break
    position = len(tokens)
    row = target_probs[position]
    if position < len(draft):
        row = [max(wanted - drafted, 0.0) for wanted, drafted in zip(row, draft_probs[position], strict=True)]
    left = rng.uniform(0.0, sum(row))
    for token, weight in enumerate(row):
        left -= weight
        if left < 0.0:
            return [*tokens, token]
    return [*tokens, max(token for token, weight in enumerate(row) if weight > 0.0)]


PYTHON_STYLES = (python_choices, python_running_sum, python_loop)
