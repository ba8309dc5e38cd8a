"""What the transformers adapter may be asked, and how that reads as options of generate()."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from specverify.core.errors import UsageError
from specverify.core.types import Request, SamplingParams

MODES = ("assistant", "prompt-lookup", "early-exit")
# Penalties of the servers that generate() has no option for.
_UNKNOWN_TO_GENERATE = ("presence_penalty", "frequency_penalty")


def refuse_contradictions(mode: str, draft: Any | None, num_draft_tokens: int, ensemble_weight: float | None) -> None:
    """Raises UsageError for arguments that do not go together."""
    if mode not in MODES:
        raise UsageError(f"mode {mode!r} is unknown; choose from {', '.join(MODES)}")
    if mode == "assistant" and draft is None:
        raise UsageError("mode 'assistant' needs a draft model; give draft=DIRECTORY, or choose another mode")
    if num_draft_tokens < 1:
        raise UsageError(f"num_draft_tokens is {num_draft_tokens}; give at least 1")
    if ensemble_weight is not None and not 0.0 < ensemble_weight <= 1.0:
        raise UsageError(f"ensemble_weight is {ensemble_weight}; give the target's share, above 0 and at most 1")
    if ensemble_weight is not None and mode == "prompt-lookup":
        raise UsageError("prompt lookup has no draft law to mix in; give ensemble_weight with another mode")


def checked_exit_layer(target: Any, layer: int | None) -> int:
    """The layer after which an early exit leaves: half of them, unless named."""
    num_layers = int(target.config.num_hidden_layers)
    chosen = max(1, num_layers // 2) if layer is None else layer
    if not 1 <= chosen < max(num_layers, 2):
        raise UsageError(f"early_exit_layer is {chosen}, of {num_layers} layers; leave at least one to verify with")
    return chosen


def sampling_options(sampling: SamplingParams) -> dict[str, Any]:
    """Options of generate() for sampling parameters, all of them explicit: its own default is top_k=50."""
    for name in _UNKNOWN_TO_GENERATE:
        if getattr(sampling, name):
            raise UsageError(f"{name} is {getattr(sampling, name)}, but transformers' generate() has no such option")
    options: dict[str, Any] = {"repetition_penalty": sampling.repetition_penalty}
    if sampling.is_greedy:
        return options | {"do_sample": False}
    return options | {
        "do_sample": True,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p or None,
    }


def allowed_tokens(request: Request, vocab_size: int) -> Callable[[int, Any], Sequence[int]]:
    """The request's constraint as prefix_allowed_tokens_fn of generate(): a function of prompt and output so far.

    Behind a draft token that was not allowed every token is: generate() wants some, and drops what is there.
    Raises UsageError where the output may be complete without an end token, which generate() cannot end then.
    """
    constraint = request.constraint
    assert constraint is not None
    if not request.eos_token_ids and not all(constraint.transitions):
        raise UsageError(
            f"request {request.request_id!r} has a constraint that can be complete, and no eos_token_ids; give one, "
            "since transformers' generate() ends outputs by end tokens"
        )
    prompt_length = len(request.prompt_token_ids)
    lists = [sorted(request.allowed_in(state)) for state in range(len(constraint.transitions))]
    everything = range(vocab_size)

    def allowed(batch_id: int, token_ids: Any) -> Sequence[int]:
        state = constraint.state_after(token_ids[prompt_length:].tolist())
        return list(everything) if state is None else lists[state]

    return allowed


def drafting_options(mode: str, num_draft_tokens: int, exit_layer: int | None, weight: float | None) -> dict[str, Any]:
    """Options of generate() that switch speculation on; a draft model is an argument of its own."""
    options: dict[str, Any] = {}
    if mode == "prompt-lookup":
        options["prompt_lookup_num_tokens"] = num_draft_tokens
    if mode == "early-exit":
        options["assistant_early_exit"] = exit_layer
    if weight is not None:
        options["assistant_ensemble_weight"] = weight
    return options


def fix_draft_length(drafting: Any, num_draft_tokens: int) -> None:
    """Fixes the number of draft tokens, before every call: generate() adapts it, and that would be a memory."""
    config = drafting.generation_config
    config.num_assistant_tokens = num_draft_tokens
    config.num_assistant_tokens_schedule = "constant"
    config.assistant_confidence_threshold = 0.0
