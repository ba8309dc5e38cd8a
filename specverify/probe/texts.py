"""Texts drawn from a probe's own law: prompts, and the scenes on which its sensitivity is measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from specverify.laws.sampling import softmax
from specverify.probe.oracle import Oracle
from specverify.probe.weights import BOS, FIRST_WORD, VOCAB_SIZE


def draw_texts(oracle: Oracle, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Texts [texts, 1 + n]: the begin token, then words drawn with the given uniforms [texts, n].

    Special tokens are never drawn: a prompt holds words.
    """
    texts = np.full((len(uniforms), 1), BOS, dtype=np.int64)
    for column in uniforms.T:
        laws = softmax(oracle.logits(texts)[:, -1, FIRST_WORD:])
        drawn = (laws.cumsum(axis=-1) < column[:, None]).sum(axis=-1)
        words = np.minimum(drawn, VOCAB_SIZE - FIRST_WORD - 1) + FIRST_WORD
        texts = np.concatenate([texts, words[:, None]], axis=1)
    return texts


def rejected_alternatives(draft: Oracle, texts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The draft model's favourite at every place of every text that is not the text's own token; [texts, n]."""
    logits = draft.logits(texts).copy()
    alternatives = np.zeros_like(texts)
    for row, text in enumerate(texts):
        for place in range(1, len(text)):
            before = logits[row, place - 1].copy()
            before[text[place]] = -np.inf
            alternatives[row, place] = int(before.argmax())
    return alternatives


def lookup_acceptance(oracle: Oracle, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]) -> float:
    """Mean probability of the first token that prompt lookup drafts, with texts going on after the prompts.

    Lookup drafts what followed the first earlier occurrence of the last token.
    """
    joined = [[*prompt, *text[1:]] for prompt in prompts for text in texts]
    hits: list[float] = []
    for text, logits in zip(joined, oracle.batch_logits(joined), strict=True):
        laws = softmax(logits)
        for end in range(len(prompts[0]), len(text)):
            drafted = text[text.index(text[end]) + 1] if text.index(text[end]) < end else None
            if drafted is not None:
                hits.append(float(laws[end, drafted]))
    return float(np.mean(hits)) if hits else 0.0
