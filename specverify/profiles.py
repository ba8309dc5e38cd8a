"""Profiles: checks that must be decided. A profile never changes; it only grows by a new number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specverify.core.errors import UsageError

_VERIFIER_1 = (
    "lossless.step-law",
    "lossless.step-chi-square",
    "lossless.step-edges",
    "tokens.step-form",
    "random.draws-independent",
)
_ENGINE_1 = (
    "lossless.sequence-stream",
    "lossless.sequence-joint",
    "lossless.sequence-chi-square",
    "greedy.on-equals-off",
    "tokens.at-most-max-tokens",
    "tokens.eos-ends-output",
    "seed.repeats",
)
_ENGINE_2 = (
    *_ENGINE_1,
    "activity.drafts-and-rejections",
    "activity.speculation-lasts",
    "greedy.unusual-requests",
    "lossless.one-token-left",
    "seed.tells-seeds-apart",
)
_BATCHED_ENGINE_1 = (
    *_ENGINE_2,
    "batch.rows-independent",
    "batch.rows-keep-their-sampling",
    "random.rows-draw-apart",
    "tokens.sampled-rows-end",
)
_TRACES = (
    "tokens.prefix-termination",
    "kv.rejected-rows-dropped",
    "kv.rows-equal-prefill",
    "positions.drafted-tokens",
    "draft.declared-law-sampled",
    "acceptance.matches-laws",
)
_TRACED_ENGINE_1 = (*_ENGINE_1, "activity.drafts-and-rejections", *_TRACES)
_TRACED_ENGINE_2 = (*_ENGINE_2, *_TRACES, "random.draft-and-accept-independent", "trace.agrees-with-itself")

PROFILES: Mapping[str, Sequence[str]] = {
    "verifier-1": _VERIFIER_1,
    "engine-1": _ENGINE_1,
    "engine-2": _ENGINE_2,
    "batched-engine-1": _BATCHED_ENGINE_1,
    "traced-engine-1": _TRACED_ENGINE_1,
    "traced-engine-2": _TRACED_ENGINE_2,
}


def profile(name: str) -> Sequence[str]:
    """The check ids that the profile of that name requires. Raises UsageError with the valid names."""
    if name not in PROFILES:
        raise UsageError(f"no profile is called {name!r}; there are {', '.join(PROFILES)}")
    return PROFILES[name]
