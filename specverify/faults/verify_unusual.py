"""Bugs of verify functions that only some sizes, shapes or parameters bring out, and correct ones of such kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from specverify.faults.fault import CorrectSubject, Fault
from specverify.faults.verify_correct import Law, Rows, TokenwiseVerifier
from specverify.faults.verify_torch import BatchedVerifier, race

_DEFAULT_TOP_K = 20
_BUFFER_SIZE = 4


class _TopKByDefault(TokenwiseVerifier):
    def laws(self, draft_probs: Rows, target_probs: Rows) -> tuple[Rows, Rows]:
        if target_probs.shape[1] <= _DEFAULT_TOP_K:
            return draft_probs, target_probs
        least = np.sort(target_probs, axis=1)[:, -_DEFAULT_TOP_K, None]
        kept = np.where(target_probs >= least, target_probs, 0.0)
        return draft_probs, kept / kept.sum(axis=1, keepdims=True)


class _BufferOfFour(TokenwiseVerifier):
    def uniform(self, rng: np.random.Generator, position: int) -> float:
        if position == 0:
            self.buffer = rng.random(_BUFFER_SIZE)
        return float(self.buffer[position % _BUFFER_SIZE])


class _GreedyWithoutDrafts(TokenwiseVerifier):
    def __call__(
        self, draft_token_ids: NDArray[np.int64], draft_probs: Rows, target_probs: Rows, rng: np.random.Generator
    ) -> Any:
        if len(draft_token_ids) == 0:
            return [int(target_probs[0].argmax())], 0
        return super().__call__(draft_token_ids, draft_probs, target_probs, rng)


class _EpsilonInRatio(TokenwiseVerifier):
    def accept_ratio(self, draft: Rows, target: Rows, position: int, token: int) -> float:
        return float(target[position, token] / (draft[position, token] + 1e-6))

    def residual_mass(self, draft: Rows, target: Rows, position: int, token: int) -> Law:
        mass: Law = np.maximum(target[position] - draft[position], 0.0)
        return mass if mass.any() else target[position]


class _BonusAfterHole(TokenwiseVerifier):
    def answer(self, draft_token_ids: NDArray[np.int64], tokens: list[int], accepted: int) -> Any:
        row = np.full(len(draft_token_ids) + 2, -1)
        row[: len(tokens)] = tokens
        if accepted == len(draft_token_ids):
            row[accepted : accepted + 2] = -1, tokens[-1]
        return row


class _IdsInBytes(BatchedVerifier):
    def __call__(
        self, draft_token_ids: Tensor, draft_probs: Tensor, target_probs: Tensor, generator: Generator | None = None
    ) -> Tensor:
        output = super().__call__(draft_token_ids, draft_probs, target_probs, generator)
        return torch.where(output >= 0, output.to(torch.uint8).long(), output)


class _GeneratorIgnored(BatchedVerifier):
    def draw(self, mass: Tensor, generator: Generator | None) -> Tensor:
        return super().draw(mass, None)


class FlatVerifier:
    """Token-wise rejection of rows laid end to end, bonus tokens drawn outside, in the style of vLLM."""

    def __call__(
        self, draft_token_ids: Tensor, num_draft_tokens: list[int], max_spec_len: int, cu_num_draft_tokens: Tensor,
        draft_probs: Tensor, target_probs: Tensor, bonus_token_ids: Tensor,
    ) -> Tensor:  # fmt: skip
        batch = len(num_draft_tokens)
        output = torch.full((batch, max_spec_len + 1), -1, dtype=torch.long)
        uniforms = torch.rand(len(draft_token_ids), dtype=target_probs.dtype)
        noise = torch.empty((batch, target_probs.shape[-1]), dtype=target_probs.dtype).exponential_()
        for row, length in enumerate(num_draft_tokens):
            first = self.first(row, length, max_spec_len, cu_num_draft_tokens)
            for position in range(length):
                place = min(first + position, len(draft_token_ids) - 1)
                token = draft_token_ids[place]
                if not uniforms[place] * draft_probs[place, token] < target_probs[place, token]:
                    mass = (target_probs[place] - draft_probs[place]).clamp(min=0.0)
                    output[row, position] = race(noise[row], mass)
                    break
                output[row, position] = token
            else:
                output[row, length] = bonus_token_ids[row, 0]
        return output

    def first(self, row: int, length: int, max_spec_len: int, ends: Tensor) -> int:
        return int(ends[row]) - length


class _RowsOfOneLength(FlatVerifier):
    def first(self, row: int, length: int, max_spec_len: int, ends: Tensor) -> int:
        return row * max_spec_len


def _softmax(logits: Rows) -> Rows:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    law: Rows = powers / powers.sum(axis=-1, keepdims=True)
    return law


class _AtTemperature:
    """The token-wise rule on logits, divided by a temperature."""

    def __call__(
        self, draft_token_ids: NDArray[np.int64], draft_logits: Rows, target_logits: Rows, rng: np.random.Generator,
        temperature: float = 1.0,
    ) -> Any:  # fmt: skip
        draft, target = _softmax(draft_logits / temperature), _softmax(self.target(target_logits, temperature))
        return TokenwiseVerifier()(draft_token_ids, draft, target, rng)

    def target(self, logits: Rows, temperature: float) -> Rows:
        return logits / temperature


class _TemperatureTwice(_AtTemperature):
    def target(self, logits: Rows, temperature: float) -> Rows:
        return logits / temperature**2


def _logits_as_log_probs(
    draft_token_ids: NDArray[np.int64], draft_logits: Rows, target_logits: Rows, rng: np.random.Generator
) -> Any:
    for position, token in enumerate(draft_token_ids.tolist()):
        if np.log(rng.random()) >= target_logits[position, token] - draft_logits[position, token]:
            mass = np.maximum(_softmax(target_logits)[position] - _softmax(draft_logits)[position], 0.0)
            law = mass / mass.sum() if mass.any() else _softmax(target_logits)[position]
            return [*draft_token_ids[:position].tolist(), int(rng.choice(len(law), p=law))], position
    law = _softmax(target_logits)[-1]
    return [*draft_token_ids.tolist(), int(rng.choice(len(law), p=law))], len(draft_token_ids)


FAULTS = (
    Fault("verify-top-k-by-default", "keeps the 20 likeliest tokens of the target, whatever was asked for",
          "huggingface/transformers#47932 (a default top-k)", _TopKByDefault),
    Fault("verify-uniform-buffer-of-four", "draws four uniforms and uses them again from the fifth draft token on",
          "antirez/ds4#358 (wrong beyond a depth of two)", _BufferOfFour),
    Fault("verify-greedy-without-drafts", "takes the likeliest token where no token was drafted",
          "vllm-project/vllm#41044 (rows without a draft)", _GreedyWithoutDrafts),
    Fault("verify-epsilon-in-ratio", "adds 1e-6 to the draft probability that it divides by",
          "arXiv 2211.17192, section 2.3, guarded against division by zero", _EpsilonInRatio),
    Fault("verify-bonus-behind-a-hole", "writes the bonus token one place late",
          "vllm-project/vllm#46533 (placeholders between tokens)", _BonusAfterHole, {"returns": "token_ids"}),
    Fault("verify-ids-in-bytes", "passes token ids through a type of one byte",
          "vllm-project/vllm#13849 (token ids out of the draft's range)", _IdsInBytes),
    Fault("verify-generator-ignored", "draws the final token from the global generator, not the one it is given",
          "vllm-project/vllm#6038", _GeneratorIgnored),
    Fault("verify-rows-of-one-length", "takes every row to be as long as the longest", "vllm-project/vllm#35398",
          _RowsOfOneLength),
    Fault("verify-temperature-twice", "divides the target logits by the temperature twice",
          "ohdearquant/lattice#388 (temperature of the target)", _TemperatureTwice),
    Fault("verify-logits-as-log-probs", "compares logits of target and draft as if both were normalised",
          "a slip in the formula of arXiv 2211.17192, section 2.3, in logarithms", lambda: _logits_as_log_probs),
)  # fmt: skip
CORRECT = (
    CorrectSubject("tokenwise-at-temperature", "divides its logits by a temperature of its own", _AtTemperature),
)  # fmt: skip
