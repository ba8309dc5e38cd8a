"""Things that people might name by mistake, and engines that misbehave."""

from __future__ import annotations

from typing import Any

import numpy as np

from specverify.core.capabilities import Capability
from specverify.core.types import Step, Trace

ENGINE_CAPABILITIES = frozenset({Capability.GENERATE, Capability.TRACE, Capability.STOP, Capability.SAMPLING})

not_callable = 42


def returns_nothing() -> None:
    """A factory that forgot its return statement."""


def returns_a_list_of_numbers() -> list[int]:
    return [1, 2]


def returns_no_engines() -> list[Any]:
    return []


class _Engine:
    name = "broken engine"
    capabilities = ENGINE_CAPABILITIES
    vocab_size = 32
    prompts = ((3, 4, 5),)


class Raises(_Engine):
    """Dies in generate."""

    def generate(self, requests: Any, *, speculate: bool) -> Any:
        raise MemoryError("the pool is empty")


class ReturnsTooFew(_Engine):
    """Loses the last request."""

    def generate(self, requests: Any, *, speculate: bool) -> Any:
        return []


def raises() -> Any:
    return Raises()


def returns_too_few() -> Any:
    return ReturnsTooFew()


def has_no_gpu() -> Any:
    """The factory itself raises."""
    raise RuntimeError("no GPU here")


class DeclaresNames(_Engine):
    """Names of capabilities in place of the members."""

    capabilities = frozenset({"GENERATE", "TRACE"})  # type: ignore[assignment]


def declares_names() -> Any:
    return DeclaresNames()


class KnowsEightTokens:
    """A small vocabulary that it tells nobody of."""

    name = "broken engine"
    capabilities = frozenset({Capability.GENERATE})
    successors = (1, 2, 3, 4, 5, 6, 7, 0)

    def generate(self, requests: Any, *, speculate: bool) -> Any:
        for request in requests:
            for token in request.prompt_token_ids:
                self.successors[token]
        return [Trace(request, (5,) * request.max_new_tokens) for request in requests]


class SaysEightTokens(KnowsEightTokens):
    vocab_size = 8


def knows_eight_tokens() -> Any:
    return KnowsEightTokens()


def says_eight_tokens() -> Any:
    return SaysEightTokens()


class RecordsNothingSound(_Engine):
    """Log-probabilities where laws are wanted."""

    capabilities = ENGINE_CAPABILITIES | {Capability.DRAFT_PROBS, Capability.TARGET_PROBS}

    def generate(self, requests: Any, *, speculate: bool) -> Any:
        logs = np.log(np.full((2, 32), 1 / 32))
        step = Step(0, 4, (5,), (5, 5), 1, draft_probs=logs[:1], target_probs=logs)
        return [Trace(request, (5, 5, 5), (step,)) for request in requests]


def records_nothing_sound() -> Any:
    return RecordsNothingSound()


def wants_a_model(model: Any) -> Any:
    """A factory whose parameter is not called probe."""
    return Raises()


def verify(draft_token_ids: Any, draft_probs: Any, target_probs: Any, rng: Any) -> list[int]:
    """A verify function like any other."""
    return [0]


def ambiguous(first: Any, second: Any, third: Any) -> list[int]:
    """A verify function whose parameters say nothing."""
    return [0]


def no_parameters_that_fit(temperature: float, name: str) -> list[int]:
    """Not a verify function at all."""
    return [0]
