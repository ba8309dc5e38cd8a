"""Compiled kernels of the decoder, for the CPU: the same arithmetic as `Model.forward`, without its calls.

Needs numba (the `fast` extra). Compiled on first use and kept beside this file, or in numba's cache directory where
that cannot be written. All arrays are float32 or all are float64; -inf stays -inf and NaN stays NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.extending import overload

# Sums may be taken in any order, which is what lets them run in vector registers. Neither NaN nor infinities are
# assumed away: masks are -inf, and a test that poisons a cache must see its NaN.
_MATH = {"reassoc", "contract", "nsz", "arcp"}


def _compiled(function: Callable[..., Any]) -> Any:
    try:
        return numba.njit(function, cache=True, nogil=True, fastmath=_MATH)
    except RuntimeError:  # no directory to keep it in
        return numba.njit(function, nogil=True, fastmath=_MATH)


def exponential(x: Any) -> Any:
    """e to the power of x, for x of at most 0."""
    return math.exp(x)


@overload(exponential, jit_options={"fastmath": _MATH})
def _exponential(x: Any) -> Any:
    def double(x: Any) -> Any:
        return math.exp(x)

    def single(x: Any) -> Any:
        # 2**n * e**r, r within half of log 2, by the Cephes polynomial: within 1.2e-7. The library's function is a call
        # for each number, ten times as slow. NaN goes through the polynomial and stays.
        if x < np.float32(-87.0):
            return np.float32(0.0)
        n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
        r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
        p = np.float32(1.9875691500e-4) * r + np.float32(1.3981999507e-3)
        p = p * r + np.float32(8.3334519073e-3)
        p = p * r + np.float32(4.1665795894e-2)
        p = p * r + np.float32(1.6666665459e-1)
        p = p * r + np.float32(5.0000001201e-1)
        power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
        return (p * r * r + r + np.float32(1.0)) * power

    return single if x == numba.types.float32 else double


@_compiled
def normalise(states: Any, weight: Any, size_eps: Any, root_size: Any, out: Any) -> None:
    """Each state [tokens, hidden] over the root of its mean square, times the weight, into out."""
    for token in range(states.shape[0]):
        state, normed = states[token], out[token]
        total = size_eps
        for i in range(state.size):
            total += state[i] * state[i]
        scale = root_size / np.sqrt(total)
        for i in range(state.size):
            normed[i] = state[i] * scale * weight[i]


@_compiled
def project(inputs: Any, weight: Any, bias: Any, out: Any) -> None:
    """inputs [tokens, in] times weight [out, in], transposed, plus bias [out] unless it is empty, into out.

    For a few tokens: each row of the weight is read from memory once, and from the cache for all tokens but two.
    """
    num_tokens, size = inputs.shape
    for i in range(weight.shape[0]):
        row = weight[i]
        start = bias[i] if bias.size else weight.dtype.type(0)
        for token in range(0, num_tokens - 1, 2):
            first, second, one, other = inputs[token], inputs[token + 1], start, start
            for j in range(size):
                one += row[j] * first[j]
                other += row[j] * second[j]
            out[token, i] = one
            out[token + 1, i] = other
        if num_tokens % 2:
            last, one = inputs[num_tokens - 1], start
            for j in range(size):
                one += row[j] * last[j]
            out[num_tokens - 1, i] = one


@_compiled
def gate(both: Any, out: Any) -> None:
    """silu of the first half of both [tokens, 2 * intermediate], times the second half, into out."""
    size, zero, one = out.shape[1], both.dtype.type(0), both.dtype.type(1)
    for token in range(both.shape[0]):
        gates, ups, gated = both[token, :size], both[token, size:], out[token]
        # By itself this loop runs in vector registers; together with the next it would not.
        for i in range(size):
            gated[i] = exponential(-abs(gates[i]))
        for i in range(size):
            power = gated[i]
            gated[i] = gates[i] * ups[i] * (one if gates[i] >= zero else power) / (one + power)


@_compiled
def rotate_and_write(
    stacked: Any, row: int, cos: Any, sin: Any, slots: Any, keys: Any, values: Any, num_heads: int
) -> None:
    """Turns the queries and keys of one row and writes its keys and values into the cache; as in `attend`."""
    half, num_kv_heads = stacked.shape[3] // 2, keys.shape[1]
    angle_row, slot_row = min(row, cos.shape[0] - 1), min(row, slots.shape[0] - 1)
    for token in range(stacked.shape[1]):
        c, s, slot = cos[angle_row, token], sin[angle_row, token], slots[slot_row, token]
        for head in range(num_heads + num_kv_heads):
            x = stacked[row, token, head]
            for i in range(half):
                low, high = x[i], x[i + half]
                x[i] = low * c[i] + high * s[i]
                x[i + half] = high * c[i + half] + low * s[i + half]
        for head in range(num_kv_heads):
            keys[row, head, slot] = stacked[row, token, num_heads + head]
            values[row, head, slot] = stacked[row, token, num_heads + num_kv_heads + head]


@_compiled
def softmax(scores: Any, mask: Any, scale: Any, end: int) -> None:
    """Turns scores [num_slots] into weights: scaled, masked unless the mask is empty, and 0 from slot `end` on."""
    most, total = scores.dtype.type(-np.inf), scores.dtype.type(0)
    for slot in range(end):
        scores[slot] *= scale
    if mask.size:
        for slot in range(end):
            scores[slot] += mask[slot]
    for slot in range(end):
        most = max(most, scores[slot])
    for slot in range(end):
        scores[slot] = exponential(scores[slot] - most)
        total += scores[slot]
    for slot in range(end):
        scores[slot] /= total
    for slot in range(end, scores.size):
        scores[slot] = 0


@_compiled
def attend(
    stacked: Any,
    cos: Any,
    sin: Any,
    slots: Any,
    mask: Any,
    keys: Any,
    values: Any,
    num_slots: int,
    out: Any,
) -> None:
    """Rotates queries and keys, writes keys and values into the cache, and attends.

    stacked: [rows, new, heads + 2 * kv_heads, head_dim], changed. cos, sin: [rows or 1, new, head_dim], the sines of
    the first half negated. slots: [rows or 1, new]. mask: [rows or 1, new, num_slots], or of size 0 where all slots are
    seen. keys, values: [rows, kv_heads, capacity, head_dim]. out: [rows, new, heads, head_dim].
    """
    new, num_heads, head_dim = out.shape[1:]
    group = num_heads // keys.shape[1]
    scale = stacked.dtype.type(1 / np.sqrt(head_dim))
    queries = np.empty((new * group, head_dim), stacked.dtype)
    ends = np.full(new, num_slots)
    for row in range(stacked.shape[0]):
        rotate_and_write(stacked, row, cos, sin, slots, keys, values, num_heads)
        mask_row = min(row, mask.shape[0] - 1)
        if mask.size:
            for token in range(new):
                # Nothing is computed of what no token sees.
                ends[token] = num_slots
                while ends[token] > 1 and mask[mask_row, token, ends[token] - 1] == -np.inf:
                    ends[token] -= 1
        end = ends.max()
        for kv_head in range(keys.shape[1]):
            # All query heads that share a KV head are rows of one product.
            for token in range(new):
                for head in range(group):
                    queries[token * group + head] = stacked[row, token, kv_head * group + head]
            scores = np.dot(queries, keys[row, kv_head, :end].T)
            for token in range(new):
                for head in range(group):
                    seen = mask[mask_row, token] if mask.size else mask.reshape(-1)
                    softmax(scores[token * group + head], seen, scale, ends[token])
            mixed = np.dot(scores, values[row, kv_head, :end])
            for token in range(new):
                for head in range(group):
                    out[row, token, kv_head * group + head] = mixed[token * group + head]


@_compiled
def block(
    states: Any,
    attention_norm: Any,
    query_key_value: Any,
    query_key_value_bias: Any,
    attention_out: Any,
    attention_out_bias: Any,
    mlp_norm: Any,
    gate_up: Any,
    gate_up_bias: Any,
    down: Any,
    down_bias: Any,
    cos: Any,
    sin: Any,
    slots: Any,
    mask: Any,
    keys: Any,
    values: Any,
    num_slots: int,
    size_eps: Any,
    root_size: Any,
) -> None:
    """One whole layer over a few tokens; states [tokens, hidden] are changed. The rest as in `Layer` and `attend`."""
    tokens = states.shape[0]
    rows, num_kv_heads, _, head_dim = keys.shape
    new, num_heads = tokens // rows, attention_out.shape[1] // head_dim
    normed = np.empty_like(states)
    stacked = np.empty((tokens, query_key_value.shape[0]), states.dtype)
    mixed = np.empty((tokens, attention_out.shape[1]), states.dtype)
    both = np.empty((tokens, gate_up.shape[0]), states.dtype)
    gated = np.empty((tokens, down.shape[1]), states.dtype)
    normalise(states, attention_norm, size_eps, root_size, normed)
    project(normed, query_key_value, query_key_value_bias, stacked)
    attend(
        stacked.reshape(rows, new, num_heads + 2 * num_kv_heads, head_dim), cos, sin, slots, mask, keys, values,
        num_slots, mixed.reshape(rows, new, num_heads, head_dim),
    )  # fmt: skip
    project(mixed, attention_out, attention_out_bias, normed)
    states += normed
    normalise(states, mlp_norm, size_eps, root_size, normed)
    project(normed, gate_up, gate_up_bias, both)
    gate(both, gated)
    project(gated, down, down_bias, normed)
    states += normed
