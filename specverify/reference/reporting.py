"""The log-probabilities that are reported of committed tokens: raw ones, under the target's logits as they are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specverify.reference.batch import Batch, padded
from specverify.reference.proposers import Drafts


class Reporting:
    """The part of the engine that says how likely its tokens were. It holds no state."""

    def report_verified(
        self, batch: Batch, drafts: Drafts, logits: Tensor, accepted: Sequence[Sequence[int]], kept: Sequence[list[int]]
    ) -> None:
        """Reports what a verify pass committed: a token behind draft token n by row n + 1, the first one by row 0.

        logits: [rows, k + 1, vocab] of the verify pass. accepted: draft tokens by number. kept: committed tokens.
        """
        self.report(batch, logits, [[0, *(node + 1 for node in path)] for path in accepted], kept)

    def report(
        self, batch: Batch, logits: Tensor, rows: Sequence[Sequence[int]], token_ids: Sequence[Sequence[int]]
    ) -> None:
        """Appends to each request the log-probabilities of these tokens, each by its row of logits [rows, n, vocab].

        Before temperature, filters and penalties. Rows behind the last token are left over where an output was cut.
        """
        pairs = [list(zip(*both, strict=False)) for both in zip(rows, token_ids, strict=True)]
        if not any(pairs):
            return
        index = padded([[row for row, _ in pair] for pair in pairs], logits.device)
        tokens = padded([[token for _, token in pair] for pair in pairs], logits.device)
        chosen = logits[torch.arange(len(pairs), device=logits.device)[:, None], index]  # [rows, tokens, vocab]
        wide = chosen.to(torch.float64 if logits.dtype == torch.float64 else torch.float32)
        log_probs = wide.log_softmax(dim=-1).gather(-1, tokens[:, :, None])[:, :, 0].tolist()
        for running, pair, numbers in zip(batch.running, pairs, log_probs, strict=True):
            if running.log_probs is None:
                running.log_probs = []
            running.log_probs.extend(numbers[: len(pair)])
