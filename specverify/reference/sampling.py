"""From a batch of logits to the laws that tokens are drawn from. Same rules as specverify.laws.sampling, on tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from specverify.core.types import SamplingParams


@dataclass(frozen=True)
class TokenCounts:
    """What penalties look at. in_prompt: [rows, vocab], bool. in_output: [rows, vocab], how often; float."""

    in_prompt: Tensor
    in_output: Tensor

    @staticmethod
    def of(texts: Sequence[tuple[Sequence[int], Sequence[int]]], vocab_size: int, device: torch.device) -> TokenCounts:
        """Counts of (prompt, output) token ids, a pair per row."""

        def count(token_ids: Sequence[int]) -> Tensor:
            return torch.bincount(torch.tensor(token_ids, dtype=torch.int64, device=device), minlength=vocab_size)

        return TokenCounts(
            in_prompt=torch.stack([count(prompt) for prompt, _ in texts]) > 0,
            in_output=torch.stack([count(output) for _, output in texts]).to(torch.float32),
        )

    def after(self, token_ids: Tensor) -> TokenCounts:
        """The counts once each row has one token more; token_ids: [rows]."""
        return TokenCounts(self.in_prompt, self.in_output + one_hot(token_ids, self.in_output.shape[-1]))

    def along(self, token_ids: Tensor, is_ancestor: Tensor | None = None) -> Tensor:
        """Output counts before any token of a block and after each, [rows, k + 1, vocab]; token_ids: [rows, k].

        is_ancestor: for a tree, [rows, k, k]: the second token is an ancestor of the first, or itself.
        """
        steps = one_hot(token_ids, self.in_output.shape[-1])
        steps = steps.cumsum(dim=1) if is_ancestor is None else (is_ancestor[..., None] * steps[:, None]).sum(dim=2)
        return self.in_output[:, None] + torch.nn.functional.pad(steps, (0, 0, 1, 0))


class SamplingRows:
    """The sampling parameters of every batch row, as tensors, with the parts that no row uses left out."""

    def __init__(self, params: Sequence[SamplingParams], device: torch.device) -> None:
        self.params = list(params)
        self.device = device
        self.is_greedy = all(p.is_greedy for p in params)
        self.has_greedy = any(p.is_greedy for p in params)
        self.has_penalties = any(p.has_penalties for p in params)
        self._has_temperature = any(p.temperature != 1.0 for p in params)
        self._has_top_k = any(p.top_k > 0 for p in params)
        self._has_top_p = any(p.top_p < 1.0 for p in params)
        self._has_min_p = any(p.min_p > 0.0 for p in params)
        self._columns: dict[str, Tensor] = {}

    def law(
        self,
        logits: Tensor,
        counts: TokenCounts | None = None,
        in_output: Tensor | None = None,
        is_allowed: Tensor | None = None,
    ) -> Tensor:
        """Laws [rows, n, vocab] for logits [rows, n, vocab], in float64 for float64 logits and else in float32.

        counts: needed where a row has penalties. in_output: output counts per position [rows, n, vocab], where the
        positions do not share one history. is_allowed: [rows, n, vocab], False for what a constraint forbids. Order:
        constraints, then as in transformers penalties, temperature, top-k, top-p, min-p.
        """
        values = logits.to(torch.float64 if logits.dtype == torch.float64 else torch.float32)
        if is_allowed is not None:
            values = values.masked_fill(~is_allowed, -torch.inf)
        if counts is not None and self.has_penalties:
            values = self._penalised(values, counts, counts.in_output[:, None] if in_output is None else in_output)
        if self.is_greedy:
            return _best_token(values)
        law = self._sampled_law(values)
        if self.has_greedy:
            law = torch.where(self._column("temperature", values) == 0.0, _best_token(values), law)
        return law

    def _sampled_law(self, values: Tensor) -> Tensor:
        if self._has_temperature:
            temperature = self._column("temperature", values)
            values = values / torch.where(temperature == 0.0, 1.0, temperature)
        if self._has_top_k:
            values = self._keep_top_k(values)
        if self._has_top_p:
            values = self._keep_top_p(values)
        if self._has_min_p:
            probs = values.softmax(dim=-1)
            floor = self._column("min_p", values) * probs.amax(dim=-1, keepdim=True)
            values = values.masked_fill(probs < floor, -torch.inf)
        return values.softmax(dim=-1)

    def _penalised(self, values: Tensor, counts: TokenCounts, in_output: Tensor) -> Tensor:
        repetition = self._column("repetition_penalty", values)
        is_seen = counts.in_prompt[:, None] | (in_output > 0)
        scaled = torch.where(values > 0.0, values / repetition, values * repetition)
        values = torch.where(is_seen, scaled, values)
        values = values - self._column("frequency_penalty", values) * in_output
        return values - self._column("presence_penalty", values) * (in_output > 0)

    def _keep_top_k(self, values: Tensor) -> Tensor:
        # Tokens tied with the last one kept stay too. A row without top-k keeps the whole vocabulary.
        vocab_size = values.shape[-1]
        kept = [min(p.top_k, vocab_size) if p.top_k > 0 else vocab_size for p in self.params]
        largest = values.topk(max(kept), dim=-1).values
        last = torch.tensor(kept, device=self.device)[:, None, None].expand(-1, values.shape[1], 1) - 1
        return values.masked_fill(values < largest.gather(-1, last), -torch.inf)

    def _keep_top_p(self, values: Tensor) -> Tensor:
        # Ascending, so that what is cut is the longest tail with at most 1 - top_p; the best token always stays.
        ascending, order = values.sort(dim=-1, stable=True)
        tail = ascending.softmax(dim=-1).cumsum(dim=-1)
        top_p = self._column("top_p", values)
        is_cut = (tail <= 1.0 - top_p) & (top_p < 1.0)
        is_cut[..., -1] = False
        return values.masked_fill(is_cut.scatter(-1, order, is_cut), -torch.inf)

    def _column(self, name: str, like: Tensor) -> Tensor:
        """One parameter of every row, [rows, 1, 1]."""
        if name not in self._columns:
            values = [float(getattr(p, name)) for p in self.params]
            self._columns[name] = torch.tensor(values, dtype=like.dtype, device=self.device)[:, None, None]
        return self._columns[name]


def _best_token(values: Tensor) -> Tensor:
    """A law that is 1 at the largest value, at the lowest id of a tie."""
    return torch.zeros_like(values).scatter_(-1, values.argmax(dim=-1, keepdim=True), 1.0)
