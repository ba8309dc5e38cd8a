"""Explains a changed decision with its own numbers, and recognises how a law was changed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specverify.core.types import SamplingParams, Step

# How closely a recognised relation must fit, in probability.
FIT_TOLERANCE = 1e-9


def decision_story(golden: Step, now: Step) -> tuple[str, ...]:
    """The accept test of the first draft token that was decided otherwise, before and now; empty without laws."""
    index = min(golden.num_accepted, now.num_accepted)
    if index >= min(golden.num_draft_tokens, now.num_draft_tokens):
        return ()
    token = golden.draft_token_ids[index]
    uniform = ""
    if golden.uniforms is not None and golden.uniforms == now.uniforms:
        uniform = f", uniform {golden.uniforms[index]:.3f}"
    lines = [f"Step {golden.index}, draft token {token}{uniform}"]
    for label, step in (("golden", golden), ("now", now)):
        if step.target_probs is None:
            return ()
        target = float(step.target_probs[index][token])
        draft = 1.0 if step.draft_probs is None else float(step.draft_probs[index][token])
        ratio = target / draft if draft > 0.0 else float("inf")
        verdict = "accept" if step.num_accepted > index else "reject"
        lines.append(f"{label:<8} target / draft = {target:.3g} / {draft:.3g} = {ratio:.3g}   {verdict}")
    return tuple(lines)


def likely_cause(golden: Step, now: Step, component: str, sampling: SamplingParams) -> str:
    """How the new law follows from the golden one, if it fits; else empty.

    Recognised: raised to a power and renormalised (another temperature), and rows shifted by one.
    """
    if component not in ("draft probs", "target probs"):
        return ""
    which = "draft" if component == "draft probs" else "target"
    before = np.asarray(getattr(golden, f"{which}_probs"), dtype=np.float64)
    after = np.asarray(getattr(now, f"{which}_probs"), dtype=np.float64)
    if before.shape != after.shape or before.size == 0:
        return ""
    power, misfit = fitted_power(before, after)
    if power is not None:
        text = (
            f"The new {which} probs are the golden ones raised to the power {power:.3g} and renormalised "
            f"(to {misfit:.0e})"
        )
        if abs(power - sampling.temperature) < 1e-6:
            return (
                f"{text}, and this trace samples at temperature {sampling.temperature:g}. "
                f"So the {which} law is now reported at temperature 1."
            )
        return f"{text}: another temperature."
    if len(before) > 1 and np.abs(after[1:] - before[:-1]).max() < FIT_TOLERANCE:
        return f"The new {which} probs are the golden ones, one row later."
    if len(before) > 1 and np.abs(after[:-1] - before[1:]).max() < FIT_TOLERANCE:
        return f"The new {which} probs are the golden ones, one row earlier."
    return ""


def fitted_power(before: NDArray[np.float64], after: NDArray[np.float64]) -> tuple[float | None, float]:
    """(power, largest misfit) with after = before ** power renormalised in every row, or (None, inf)."""
    both = (before > 0.0) & (after > 0.0)
    if ((before > 0.0) != (after > 0.0)).any() or (both.sum(axis=-1) < 2).all():
        return None, float("inf")
    logs_before = np.log(before, where=both, out=np.zeros_like(before))
    logs_after = np.log(after, where=both, out=np.zeros_like(after))
    count = both.sum(axis=-1, keepdims=True)
    x = np.where(both, logs_before - logs_before.sum(axis=-1, keepdims=True) / count, 0.0)
    y = np.where(both, logs_after - logs_after.sum(axis=-1, keepdims=True) / count, 0.0)
    if not (x * x).sum() > 0.0:
        return None, float("inf")
    power = float((x * y).sum() / (x * x).sum())
    predicted = np.where(both, np.exp(power * logs_before), 0.0)
    predicted /= predicted.sum(axis=-1, keepdims=True)
    misfit = float(np.abs(predicted - after).max())
    return (power, misfit) if misfit < FIT_TOLERANCE else (None, float("inf"))
