"""The exact law of one verify call, for the curious: every outcome with its probability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specverify.checks.step_enumerate import enumerate_step
from specverify.checks.step_subject import Scenario, VerifySubject, emitted_law
from specverify.core.errors import UsageError
from specverify.core.randomness import kept_global_randomness
from specverify.laws.sampling import softmax
from specverify.laws.tree import Conditional
from specverify.laws.validate import checked_law, checked_step

MAX_ROWS_SHOWN = 24


@dataclass(frozen=True, repr=False)
class StepLaw:
    """What one call emits, exactly.

    probabilities: emitted tokens -> probability. total_variation: distance from the target's law once completed with
    tokens from the target; None for one given draft of a function that is told the draft law, whose law alone means
    nothing. num_runs: runs of the function that it took.
    """

    name: str
    probabilities: Mapping[tuple[int, ...], float]
    total_variation: float | None
    num_runs: int
    num_accepted: Mapping[int, float]

    def __getitem__(self, token_ids: Sequence[int]) -> float:
        return self.probabilities.get(tuple(token_ids), 0.0)

    def __repr__(self) -> str:
        ordered = sorted(self.probabilities.items(), key=lambda item: (-item[1], item[0]))
        shown = [(" ".join(map(str, tokens)) or "nothing", probability) for tokens, probability in ordered]
        width = max([len("emitted"), *(len(tokens) for tokens, _ in shown[:MAX_ROWS_SHOWN])])
        lines = [f"{self.name}: exact law of one call, {self.num_runs} runs", f"  {'emitted':{width}}  probability"]
        lines += [f"  {tokens:{width}}  {probability:.12g}" for tokens, probability in shown[:MAX_ROWS_SHOWN]]
        if len(shown) > MAX_ROWS_SHOWN:
            rest = sum(probability for _, probability in shown[MAX_ROWS_SHOWN:])
            lines.append(f"  {f'{len(shown) - MAX_ROWS_SHOWN} more':{width}}  {rest:.12g}")
        if self.num_accepted:
            counts = ", ".join(f"{count}: {chance:.4g}" for count, chance in sorted(self.num_accepted.items()))
            lines.append(f"  accepted draft tokens  {counts}")
        if self.total_variation is not None:
            lines.append(f"  total variation from the target, completed  {self.total_variation:.3g}")
        return "\n".join(lines)


def step_law_of(
    subject: VerifySubject,
    *,
    target_probs: ArrayLike | None,
    target_logits: ArrayLike | None,
    draft_probs: ArrayLike | None,
    draft_logits: ArrayLike | None,
    draft_token_ids: Sequence[int] | None,
) -> StepLaw:
    """Enumerates one case. Raises UsageError for laws that are none, NotEnumerable for randomness out of reach."""
    target = _law("target", target_probs, target_logits)
    draft = _law("draft", draft_probs, draft_logits, optional=True)
    if target is None or target.ndim != 2:
        raise UsageError("law(...) wants target_probs or target_logits of shape [num_draft_tokens + 1, vocab]")
    k = len(target) - 1
    if draft is not None and draft.shape != (k, target.shape[1]):
        raise UsageError(
            f"draft laws have shape {draft.shape} beside target laws {target.shape}; give {(k, target.shape[1])}: "
            "one row for each draft token"
        )
    if draft_token_ids is None and draft is None:
        raise UsageError("law(...) wants draft_token_ids, or draft_probs to draw them from")
    if draft is None and subject.takes_draft_law:
        raise UsageError(f"{subject.name} takes draft laws; give draft_probs or draft_logits")
    tokens = None if draft_token_ids is None else tuple(int(token) for token in draft_token_ids)
    if tokens is not None:
        checked_step(tokens, draft, target)
    scenario = Scenario("given laws", target.shape[1], k, _rows(target), _rows(_drawn(draft, tokens, target)),
                        is_told=subject.takes_draft_law, told=draft if tokens is not None else None)  # fmt: skip
    with kept_global_randomness():
        result = enumerate_step(subject, scenario)
    counts: dict[int, float] = {}
    for (_, _, count), probability in result.joint.items():
        if count is not None:
            counts[count] = counts.get(count, 0.0) + probability
    alone = tokens is not None and subject.takes_draft_law
    return StepLaw(
        subject.name, emitted_law(result.joint), None if alone else result.distance.tv, result.num_runs, counts
    )


def _law(side: str, probs: ArrayLike | None, logits: ArrayLike | None, *, optional: bool = False) -> Any:
    if probs is not None and logits is not None:
        raise UsageError(f"law(...) got both {side}_probs and {side}_logits; give one")
    if probs is not None:
        return checked_law(_plain(probs), f"{side}_probs")
    if logits is not None:
        return softmax(np.asarray(_plain(logits), dtype=np.float64))
    if not optional:
        raise UsageError(f"law(...) wants {side}_probs or {side}_logits")
    return None


def _plain(values: Any) -> Any:
    """Tensors as arrays, on the CPU."""
    return values.detach().cpu().double().numpy() if hasattr(values, "detach") else values


def _drawn(draft: Any, tokens: tuple[int, ...] | None, target: NDArray[np.float64]) -> NDArray[np.float64]:
    """The law that drafts are drawn from: the draft law, or nothing but the given draft."""
    if tokens is None:
        return np.asarray(draft)
    return np.eye(target.shape[1])[list(tokens)].reshape(len(tokens), target.shape[1])


def _rows(rows: NDArray[np.float64]) -> Conditional:
    """Given rows as conditional laws: the same whatever the tokens before."""
    return lambda prefix: rows[len(prefix)] if len(prefix) < len(rows) else rows[-1]
