"""What a model and the sampler can take of a request."""

from __future__ import annotations

from specverify.core.errors import UsageError
from specverify.core.types import Request
from specverify.laws.sampling import processed_logits
from specverify.reference.config import ModelConfig


def check_request(config: ModelConfig, request: Request) -> None:
    """Raises UsageError for what the model or the sampler can't take."""
    name = f"request {request.request_id!r}"
    length = len(request.prompt_token_ids)
    if not length:
        raise UsageError(f"{name} has an empty prompt; give at least one token id")
    strangers = [token for token in request.prompt_token_ids if not 0 <= token < config.vocab_size]
    if strangers:
        raise UsageError(f"{name} has prompt token {strangers[0]}; the model has tokens 0 to {config.vocab_size - 1}")
    if request.constraint is not None:
        _check_constraint(config, request, name)
    if request.max_new_tokens < 1:
        raise UsageError(f"{name} asks for {request.max_new_tokens} new tokens; ask for at least 1")
    # Also where "dynamic" rope scaling would begin: there the law depends on how tokens share passes.
    if length + request.max_new_tokens > config.max_positions:
        raise UsageError(
            f"{name} may reach {length + request.max_new_tokens} tokens; the model takes {config.max_positions}: "
            "shorten the prompt or max_new_tokens"
        )
    processed_logits([0.0], request.sampling)


def _check_constraint(config: ModelConfig, request: Request, name: str) -> None:
    allowed = (request.constraint.token_ids if request.constraint is not None else frozenset()).union(
        request.eos_token_ids
    )
    if max(allowed, default=0) >= config.vocab_size:
        raise UsageError(
            f"the constraint of {name} allows token {max(allowed)}; the model has tokens 0 to {config.vocab_size - 1}"
        )
    if request.allowed_after(()) == frozenset():
        raise UsageError(f"the constraint of {name} is complete before its first token; give it eos_token_ids")
