"""A small engine in numpy, as somebody outside would write it: laws follow from the last token, drafts are chains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.core.capabilities import Capability
from specverify.core.types import Request, SamplingParams, Step, Trace
from specverify.laws.residual import residual
from specverify.laws.sampling import law_from_logits

Array = NDArray[np.float64]

VOCAB = 16
NUM_DRAFT_TOKENS = 3
PROMPTS = ((1, 5, 6, 5, 6), (2, 7, 8), (3, 9, 9, 4), (1, 12, 10, 12))


class NumpyEngine:
    """Bigram laws. wrong: "" for a lossless engine, "residual" for rejected tokens replaced by a draw from the target,
    "mixture" for drafts verified against seven tenths of the target and three of the draft.
    """

    def __init__(
        self, *capabilities: Capability, wrong: str = "", records: bool = True, sharpness: float = 1.0,
        **attributes: Any,
    ) -> None:  # fmt: skip
        self.name = f"numpy engine {wrong}".strip()
        self.capabilities = frozenset({Capability.GENERATE, *capabilities})
        self.num_draft_tokens = NUM_DRAFT_TOKENS
        self.vocab_size = VOCAB
        self.prompts = PROMPTS
        self.dtype = "float64"
        self.wrong, self.records = wrong, records
        rng = np.random.default_rng(5)
        self.target_logits = sharpness * rng.normal(size=(VOCAB, VOCAB))
        self.draft_logits = self.target_logits + sharpness * rng.normal(size=(VOCAB, VOCAB))
        self._own = np.random.default_rng(6)
        for name, value in attributes.items():
            setattr(self, name, value)

    def score(self, prompt: Sequence[int], tokens: Sequence[int]) -> Array:
        text = (*prompt, *tokens)
        rows = self.target_logits[[text[len(prompt) - 1 + index] for index in range(len(tokens))]]
        return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))

    def generate(self, requests: Iterable[Request], *, speculate: bool) -> list[Trace]:
        return [self._one(request, speculate) for request in requests]

    def _law(self, logits: Array, last: int, sampling: SamplingParams) -> Array:
        return law_from_logits(logits[last], sampling)

    def _one(self, request: Request, speculate: bool) -> Trace:
        sampling, prompt = request.sampling, request.prompt_token_ids
        rng = self._own if request.seed is None else np.random.default_rng(request.seed)
        tokens = [self._draw(self._law(self.target_logits, prompt[-1], sampling), rng)]
        steps: list[Step] = []
        ended = tokens[-1] in request.eos_token_ids
        while len(tokens) < request.max_new_tokens and not ended:
            step = self._step(len(steps), (*prompt, *tokens), sampling, rng, NUM_DRAFT_TOKENS if speculate else 0)
            emitted = list(step.token_ids[: request.max_new_tokens - len(tokens)])
            ends = [index for index, token in enumerate(emitted) if token in request.eos_token_ids]
            ended, emitted = bool(ends), emitted[: ends[0] + 1] if ends else emitted
            cut = len(emitted) < len(step.token_ids)
            steps.append(step if not cut else _cut(step, emitted))
            tokens += emitted
        return Trace(request, tuple(tokens), tuple(steps) if self.records else (), speculated=speculate)

    def _step(
        self, index: int, text: Sequence[int], sampling: SamplingParams, rng: np.random.Generator, num: int
    ) -> Step:
        drafts: list[int] = []
        rows: list[Array] = []
        for _ in range(num):
            rows.append(self._law(self.draft_logits, drafts[-1] if drafts else text[-1], sampling))
            drafts.append(self._draw(rows[-1], rng))
        targets = [self._law(self.target_logits, last, sampling) for last in (text[-1], *drafts)]
        accepted, final = 0, targets[-1]
        for token, draft, target in zip(drafts, rows, targets, strict=False):
            goal = 0.7 * target + 0.3 * draft if self.wrong == "mixture" else target
            if rng.random() * draft[token] >= goal[token]:
                final = target if self.wrong == "residual" else residual(draft, goal)
                break
            accepted += 1
        return Step(
            index=index,
            start_position=len(text),
            draft_token_ids=tuple(drafts),
            token_ids=(*drafts[:accepted], self._draw(final, rng)),
            num_accepted=accepted,
            draft_probs=np.array(rows) if rows and Capability.DRAFT_PROBS in self.capabilities else None,
            target_probs=np.array(targets) if Capability.TARGET_PROBS in self.capabilities else None,
        )

    def _draw(self, law: Array, rng: np.random.Generator) -> int:
        return int(min(np.searchsorted(np.cumsum(law), rng.random(), side="right"), VOCAB - 1))


def _cut(step: Step, emitted: Sequence[int]) -> Step:
    return Step(
        step.index, step.start_position, step.draft_token_ids, tuple(emitted), step.num_accepted, True,
        step.draft_probs, step.target_probs,
    )  # fmt: skip
