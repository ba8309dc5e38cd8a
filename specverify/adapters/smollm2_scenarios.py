"""What a real model is asked: prompts in English, code and repetitive text, in amounts that a small machine bears.

Measured with transformers 5.24 in float32 on one core: 14 tokens a second plain, 13 with prompt lookup, 5 with the
12-layer draft, of whose tokens few are accepted. The amounts below keep a whole run under five minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specverify.adapters.smollm2 import EOS_TOKEN_ID, Progress, smollm2_paths
from specverify.adapters.transformers import TransformersEngine
from specverify.adapters.transformers_loading import load_tokenizer
from specverify.core.scenario import Purpose, Scenario
from specverify.core.types import SamplingParams

# Through the chat template.
QUESTIONS = (
    "What is the capital of France?",
    "Summarise in one sentence: The ferry to the island leaves at nine. The ferry to the island takes two hours. "
    "The ferry to the island is small, and on Sundays the ferry to the island does not run.",
    "Explain in two sentences why the sky is blue.",
)
# As raw text, to be continued.
BEGINNINGS = (
    'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n    if n < 2:\n        return n\n',
    "one two three four, one two three four, one two three four, one two",
    "The lighthouse keeper wrote in his log that the storm had come from the west and that",
)
# With the draft model long enough for its accept tests to decide something.
_GREEDY_TOKENS = {"assistant": 32}
_FEW_TOKENS = 20
_STREAM_TOKENS = 40
_STREAM_REQUESTS = {"assistant": 8, "prompt-lookup": 20}
_TOO_SLOW = "minutes on a real model; the probe pair runs the same code"
_LEFT_OUT = dict.fromkeys(
    ("lossless.on-equals-off", "seed.repeats", "tokens.at-most-max-tokens", "tokens.eos-ends-output"), _TOO_SLOW
)
_TOO_FEW_DRAFTS = "these prompts give some forty steps with a draft, which decide nothing; the probe pair gives more"
_LEFT_OUT_BY_MODE = {"prompt-lookup": _LEFT_OUT | {"acceptance.matches-laws": _TOO_FEW_DRAFTS}}
_DRAFT_TOKENS = {"assistant": 2, "prompt-lookup": 3}


def smollm2_engines(
    modes: Sequence[str],
    ensemble_weight: float | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> list[TransformersEngine]:
    """SmolLM2-135M with its 12-layer draft, with prompt lookup, or leaving after its 12th layer."""
    paths = smollm2_paths(progress=progress)
    scenarios = {mode: smollm2_scenarios(load_tokenizer(paths.target_dir), mode) for mode in modes}
    return [
        TransformersEngine(
            paths.target_dir,
            paths.draft_dir,
            mode=mode,
            num_draft_tokens=_DRAFT_TOKENS.get(mode, 2),
            dtype="float32",
            device=device,
            early_exit_layer=12 if mode == "early-exit" else None,
            ensemble_weight=ensemble_weight,
            scenarios=scenarios[mode],
            name=f"transformers {mode} SmolLM2-135M",
            max_new_tokens=_GREEDY_TOKENS.get(mode, _FEW_TOKENS),
            is_slow=True,
            left_out=_LEFT_OUT_BY_MODE.get(mode, _LEFT_OUT),
        )
        for mode in modes
    ]


def smollm2_scenarios(tokenizer: Any, mode: str) -> tuple[Scenario, ...]:
    """Greedy and sampled runs on every prompt; no exact ones, because the law of a real model is not known."""
    prompts = smollm2_prompts(tokenizer)
    greedy = SamplingParams(temperature=0.0)
    num_requests, num_greedy = _STREAM_REQUESTS.get(mode, 8), _GREEDY_TOKENS.get(mode, _FEW_TOKENS)
    return (
        Scenario("greedy", Purpose.GREEDY, greedy, prompts, num_greedy, (EOS_TOKEN_ID,)),
        Scenario("plain", Purpose.STREAM, SamplingParams(), prompts, _STREAM_TOKENS, num_requests=num_requests),
    )


def smollm2_prompts(tokenizer: Any) -> tuple[tuple[int, ...], ...]:
    """Token ids of every question and every beginning."""
    chats = [[{"role": "user", "content": question}] for question in QUESTIONS]
    asked = [tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"] for chat in chats]
    begun = [tokenizer(text)["input_ids"] for text in BEGINNINGS]
    return tuple(tuple(int(token) for token in ids) for ids in (*asked, *begun))
