"""Prompt lookup: the text itself says what followed last time."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from specverify.reference.batch import Batch, padded
from specverify.reference.proposers.base import Drafts


class NgramProposer:
    """Copies what followed the latest earlier occurrence of the longest matching suffix. No model, no law.

    longest, shortest: tokens of the suffix. Matches of more than 10 are as good as one of 10 (measured on edits).

    Source: Saxena 2023, "Prompt lookup decoding"; the same as transformers' prompt_lookup_num_tokens in kind.
    """

    name = "n-gram"

    def __init__(self, *, longest: int = 10, shortest: int = 1) -> None:
        self.longest = longest
        self.shortest = shortest

    def start(self, batch: Batch, capacity: int) -> None:
        pass

    def propose(self, batch: Batch, num_draft_tokens: Sequence[int]) -> Drafts:
        found = [
            self.continuation(running.token_ids, wanted)
            for running, wanted in zip(batch.running, num_draft_tokens, strict=True)
        ]
        return Drafts(token_ids=padded(found, batch.device), num_tokens=[len(tokens) for tokens in found])

    def continuation(self, token_ids: list[int], num_tokens: int) -> list[int]:
        """Up to num_tokens tokens that followed the suffix earlier in the text; empty where nothing matches."""
        length, best_size, best_end = len(token_ids), self.shortest - 1, 0
        for end in range(length - 1, 0, -1):
            # The last token first: it differs almost everywhere.
            if token_ids[end - 1] != token_ids[-1]:
                continue
            size, most = 1, min(self.longest, end)
            while size < most and token_ids[end - 1 - size] == token_ids[length - 1 - size]:
                size += 1
            if size > best_size:
                best_size, best_end = size, end
            if size == self.longest:
                break
        return token_ids[best_end : best_end + num_tokens] if best_end else []

    def commit(self, batch: Batch, accepted: Sequence[Sequence[int]]) -> None:
        pass

    def select(self, rows: Sequence[int]) -> None:
        pass

    def kv_lengths(self) -> None:
        return None

    def kv_rows(self, row: int) -> Tensor | None:
        return None
