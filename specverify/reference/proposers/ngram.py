"""Prompt lookup: the text itself says what followed last time."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from specverify.reference.batch import Batch, padded
from specverify.reference.proposers.base import Drafts


class NgramProposer:
    """Copies what followed the latest earlier occurrence of the longest matching suffix. No model, no law.

    Source: Saxena 2023, "Prompt lookup decoding"; the same as transformers' prompt_lookup_num_tokens in kind.
    """

    name = "n-gram"

    def __init__(self, *, longest: int = 3, shortest: int = 1) -> None:
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
        length = len(token_ids)
        for size in range(min(self.longest, length - 1), self.shortest - 1, -1):
            suffix = token_ids[length - size :]
            for end in range(length - 1, size - 1, -1):
                # The last token first: it differs almost everywhere, and then no slice is made.
                if token_ids[end - 1] == suffix[-1] and token_ids[end - size : end] == suffix:
                    return token_ids[end : end + num_tokens]
        return []

    def commit(self, batch: Batch, accepted: Sequence[Sequence[int]]) -> None:
        pass

    def select(self, rows: Sequence[int]) -> None:
        pass

    def kv_lengths(self) -> None:
        return None

    def kv_rows(self, row: int) -> Tensor | None:
        return None
