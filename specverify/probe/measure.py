"""What the manifest says of a probe pair's laws: prompts, entropy, acceptance, sensitivity. All exact forwards."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.core.randomness import Streams
from specverify.laws.sampling import softmax
from specverify.probe.oracle import Oracle
from specverify.probe.sensitivity import draft_sensitivity, scenes, target_sensitivity
from specverify.probe.texts import draw_texts, lookup_acceptance, rejected_alternatives
from specverify.probe.weights import BOS, EOS, word_cycle

# Short, odd, even and past a cache block of 16; all different, so that a batch of them is ragged.
PROMPT_LENGTHS = (2, 5, 8, 11, 17, 24)
_NUM_TEXTS, _TEXT_LENGTH = 6, 36


def measurements(target: Oracle, draft: Oracle, *, seed: int) -> dict[str, Any]:
    """The manifest's entries prompts, lookup_prompts, laws and sensitivity, rounded for reading."""
    streams = Streams(seed)
    words = draw_texts(target, _uniforms(streams, "prompts", len(PROMPT_LENGTHS), max(PROMPT_LENGTHS) - 1))
    prompts = [text[:length].tolist() for text, length in zip(words, PROMPT_LENGTHS, strict=True)]
    # The whole cycle and one word more, from two starting points.
    cycle = word_cycle(seed).tolist()
    lookup_prompts = [[BOS, *cycle, cycle[0]], [BOS, *cycle[9:], *cycle[:10]]]
    texts = draw_texts(target, _uniforms(streams, "sensitivity", _NUM_TEXTS, _TEXT_LENGTH))
    places = scenes(texts, rejected_alternatives(draft, texts))

    target_laws, draft_laws = softmax(target.logits(texts)), softmax(draft.logits(texts))
    early_exit_laws = softmax(target.early_exit(1).logits(texts))
    sensitivity = target_sensitivity(target, places) | draft_sensitivity(target, draft, places)
    return {
        "prompts": prompts,
        "lookup_prompts": lookup_prompts,
        "laws": _rounded(
            {
                "target_entropy": _entropy(target_laws),
                "draft_entropy": _entropy(draft_laws),
                "largest_probability": float(target_laws.max(axis=-1).mean()),
                "eos_probability": float(target_laws[..., EOS].mean()),
                "draft_acceptance": _overlap(target_laws, draft_laws),
                "early_exit_acceptance": _overlap(target_laws, early_exit_laws),
                "lookup_acceptance": lookup_acceptance(target, lookup_prompts, texts.tolist()),
            }
        ),
        "sensitivity": {name: _rounded(figures) for name, figures in sensitivity.items()},
    }


def _uniforms(streams: Streams, name: str, *shape: int) -> NDArray[np.float64]:
    return streams.generator("probe", name).random(shape)


def _entropy(laws: NDArray[np.float64]) -> float:
    """Mean entropy in nats; a uniform law over 32 tokens has 3.47."""
    return float(-(laws * np.log(laws)).sum(axis=-1).mean())


def _overlap(laws: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    return float(np.minimum(laws, others).sum(axis=-1).mean())


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    # Four digits: matrix products differ in the last bits between machines.
    return {name: round(value, 4) for name, value in figures.items()}
