"""Things that people might name by mistake, and engines that misbehave."""

from __future__ import annotations

from typing import Any

from specverify.core.capabilities import Capability

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
