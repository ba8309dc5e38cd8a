"""How far rounding alone may move an engine's numbers: a floor by dtype, and what was measured on the engine itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.checks import evidence
from specverify.checks.registry import CheckContext
from specverify.core.capabilities import Capability
from specverify.core.types import SamplingParams
from specverify.laws.sampling import penalised_logits

Array = NDArray[np.float64]

# Absolute difference of log-probabilities that other matrix shapes and reduction orders cause at logits of about 10:
# the unit roundoff of each dtype, times 10, times about 50 for depth. bfloat16: measured up to .06 on small Llamas.
LOG_PROB_FLOOR = {"float64": 1e-11, "float32": 1e-4, "bfloat16": 0.125, "float16": 0.02}
# The same for a probability law as total variation; float32 softmax after a float64 model is still good to 1e-6.
LAW_FLOOR = {"float64": 2e-7, "float32": 1e-5, "bfloat16": 0.05, "float16": 0.01}
# The same for cache rows, relative to the largest entry of a fresh prefill.
ROW_FLOOR = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 0.06, "float16": 0.01}
# What was measured on a few contexts is multiplied by this before it is trusted for all.
SAFETY = 8.0
# Softmax in float32 of one row in two shapes: 2e-6 was seen in transformers; stale rows and wrong positions are .01 up.
_LEAST_ROW_ALLOWANCE = 1e-4
_LENIENT = "bfloat16"


def dtype_of(subject: Any) -> str:
    """The dtype the engine computes in; the coarsest one where it does not say."""
    return str(getattr(subject, "dtype", _LENIENT)).removeprefix("torch.")


def assumed_text(subject: Any) -> str:
    """To follow what is taken for rounding: that the dtype is a guess, where it is; the reader can end it."""
    if hasattr(subject, "dtype"):
        return ""
    return (
        f" (dtype is not declared, so {_LENIENT} is assumed, which may hide a real fault: declare dtype = "
        '"float32", or whatever it computes in)'
    )


def floor(table: dict[str, float], subject: Any) -> float:
    return table.get(dtype_of(subject), table[_LENIENT])


def row_allowance(subject: Any) -> float:
    """Total variation by which two computations of one law may differ: a bug moves a row by far more than this."""
    return max(_LEAST_ROW_ALLOWANCE, SAFETY * floor(LAW_FLOOR, subject))


def log_prob_noise(subject: Any, context: CheckContext) -> float:
    """Largest difference of two log-probabilities that rounding explains: measured on score(), never below the floor.

    The same context is scored in different shapes: as part of a long continuation, and as the end of a prompt.
    """
    return evidence.once(context, "noise/log-prob", lambda: _measured_log_prob_noise(subject, context))


def _measured_log_prob_noise(subject: Any, context: CheckContext) -> float:
    lowest = floor(LOG_PROB_FLOOR, subject)
    if Capability.SCORE not in subject.capabilities:
        return lowest
    largest = 0.0
    for prompt in evidence.standard_prompts(subject, context)[:2]:
        tail = prompt[1:7] or prompt
        whole = np.asarray(subject.score(prompt, tail), dtype=np.float64)
        for cut in range(1, len(tail)):
            part = np.asarray(subject.score((*prompt, *tail[:cut]), tail[cut:]), dtype=np.float64)
            shared = np.isfinite(whole[cut:]) & np.isfinite(part)
            # Tokens far down in the tail move more in logarithm and matter less.
            likely = shared & (whole[cut:] > whole[cut:].max(axis=-1, keepdims=True) - 10.0)
            if likely.any():
                largest = max(largest, float(np.abs(whole[cut:] - part)[likely].max()))
    return max(lowest, SAFETY * largest)


def next_log_probs(
    subject: Any, prompt: tuple[int, ...], output: tuple[int, ...], sampling: SamplingParams | None = None
) -> Array | None:
    """Log-probabilities [vocab] of the token after prompt and output at temperature 1, or None if nobody knows them.

    sampling: its penalties are taken into account, by the oracle only.

    From the probe's float64 oracle where the engine has loaded a probe pair, else from the engine's own score().
    """
    checkpoint = getattr(subject, "checkpoint", None)
    if Capability.LOAD_CHECKPOINT in subject.capabilities and checkpoint is not None:
        logits: Array = checkpoint.target_oracle.logits(np.asarray((*prompt, *output)))[-1]
        if sampling is not None and sampling.has_penalties:
            logits = penalised_logits(logits, sampling, prompt, output)
        return log_softmax(logits)
    if Capability.SCORE in subject.capabilities:
        scores: Array = np.asarray(subject.score((*prompt, *output), (0,)), dtype=np.float64)
        first: Array = scores[0]
        return first
    return None


def only_allowed(log_probs: Array, allowed: Iterable[int]) -> Array:
    """The same where a constraint allows the token, -inf elsewhere: up to a constant the law under it."""
    kept = np.full_like(log_probs, -np.inf)
    inside = [token for token in allowed if token < len(log_probs)]
    kept[inside] = log_probs[inside]
    return kept


def log_softmax(logits: Array) -> Array:
    shifted = np.asarray(logits, dtype=np.float64) - np.max(logits)
    result: Array = shifted - np.log(np.exp(shifted).sum())
    return result


def total_variation(first: Any, second: Any) -> float:
    """Half the summed difference of two laws [vocab]; the shorter one is padded with zeros."""
    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    size = max(one.shape[-1], two.shape[-1])
    gap = np.pad(one, (0, size - one.shape[-1])) - np.pad(two, (0, size - two.shape[-1]))
    return float(0.5 * np.abs(gap).sum())


def is_point_mass_on_best(declared: Array, law: Array, allowed: float) -> bool:
    """Whether all is declared for one token, and it is a likeliest one by the law: a drafter that takes its argmax."""
    token = int(np.argmax(declared))
    return bool(declared[token] >= 1.0 - allowed and law[token] >= law.max() - allowed)


def are_near_best(log_probs: Array, tokens: Iterable[int], tolerance: float) -> bool:
    """Whether rounding explains that any of these tokens was taken for the best one."""
    return all(float(log_probs.max()) - float(log_probs[token]) <= tolerance for token in tokens)
