"""One generate call of an engine, and what its author is told where it raises on prompts that we made up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specverify.core.crashes import crash_sentence
from specverify.core.errors import SpecverifyError, SubjectCrashed
from specverify.core.types import Request


def answer(subject: Any, requests: Sequence[Request], *, speculate: bool) -> Any:
    """What generate returned. Raises SubjectCrashed where it raised and does not say what its vocabulary is."""
    try:
        return subject.generate(list(requests), speculate=speculate)
    except SpecverifyError:
        raise
    except Exception as error:
        if not requests or knows_its_tokens(subject):
            raise
        prompt = max((request.prompt_token_ids for request in requests), key=max)
        raise SubjectCrashed(
            f"{crash_sentence(error)}. One of the prompts was {list(prompt)}, made up, since the adapter brings none: "
            "if the engine knows no such tokens, set `prompts` (and `vocab_size`) on the adapter"
        ) from error


def knows_its_tokens(subject: Any) -> bool:
    """Whether the adapter says which token ids the engine takes: then no prompt is a guess."""
    return any(getattr(subject, name, None) for name in ("checkpoint", "prompts", "scenarios", "vocab_size"))
