"""The classic proposer: a small model with a KV cache of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specverify.reference.batch import Batch, RunningRequest, padded
from specverify.reference.cached_model import CachedModel
from specverify.reference.draws import DRAFT
from specverify.reference.model import Model
from specverify.reference.proposers.base import Drafts
from specverify.reference.sampling import TokenCounts


class DraftModelProposer:
    """Samples each draft token from the draft model's law under the request's own sampling parameters.

    Its cache lags behind the text: by 1 token as a rule, by 2 after a step that accepted everything, because the
    last draft token was drawn but never computed. So every step first ingests what is pending, also where nothing
    is to be proposed.
    """

    name = "draft-model"
    cached_model_class: type[CachedModel] = CachedModel

    def __init__(self, model: Model) -> None:
        self.model = model

    def start(self, batch: Batch, capacity: int) -> None:
        self.cached = self.cached_model_class(self.model, num_rows=batch.num_rows, capacity=capacity)
        # Tokens of the text, from its start, that the draft model has computed; those after them are pending.
        self.num_ingested = [0] * batch.num_rows

    def propose(self, batch: Batch, num_draft_tokens: Sequence[int]) -> Drafts:
        logits = self.ingest(batch)  # [rows, vocab]
        positions = [list(row) for row in self.cached.last_positions]
        counts = batch.token_counts()
        token_ids, laws = [], []
        width = max(num_draft_tokens)
        for index in range(width):
            law = self.draft_law(batch, logits, counts, index, num_draft_tokens)
            drawn = self.draw(batch, law, [index < wanted for wanted in num_draft_tokens])
            token_ids.append(drawn)
            laws.append(self.declared_law(batch, law, logits))
            if index + 1 < width:  # the last draft token is not computed: its law is not needed
                counts = None if counts is None else counts.after(drawn)
                logits = self.extend(batch, drawn, index, [index + 1 < wanted for wanted in num_draft_tokens])
                for row, computed in zip(positions, self.cached.last_positions, strict=True):
                    row.extend(computed)
        return Drafts(
            token_ids=torch.stack(token_ids, dim=1) if token_ids else padded([[]] * batch.num_rows, batch.device),
            num_tokens=list(num_draft_tokens),
            probs=torch.stack(laws, dim=1) if laws else None,
            positions=positions,
        )

    def ingest(self, batch: Batch) -> Tensor:
        """Computes the pending tokens; logits [rows, vocab] after each row's newest token."""
        pending = [self.pending_tokens(row, running) for row, running in enumerate(batch.running)]
        num_new, first_positions = [len(tokens) for tokens in pending], self.pending_positions(batch)
        if any(self.cached.cache.lengths):
            hidden = self.cached.compute(
                padded(pending, batch.device), first_positions=first_positions, num_new=num_new
            )
        else:
            hidden = self.ingest_texts(batch, pending, first_positions)
        self.num_ingested = [done + new for done, new in zip(self.num_ingested, num_new, strict=True)]
        newest = torch.tensor(num_new, device=batch.device) - 1
        return self.model.logits(hidden[torch.arange(batch.num_rows, device=batch.device), newest])

    def ingest_texts(self, batch: Batch, texts: Sequence[Sequence[int]], first_positions: Sequence[int]) -> Tensor:
        """Computes the first tokens of all rows; hidden states [rows, width, hidden]. Equal texts are computed once."""
        row_of: dict[tuple[tuple[int, ...], int], int] = {}
        keys = [(tuple(text), first) for text, first in zip(texts, first_positions, strict=True)]
        rows = [row_of.setdefault(key, len(row_of)) for key in keys]
        self.cached.select(range(len(row_of)))
        hidden = self.cached.compute(
            padded([text for text, _ in row_of], batch.device),
            first_positions=[first for _, first in row_of],
            num_new=[len(text) for text, _ in row_of],
        )
        self.cached.select(rows)
        return hidden[rows]

    def pending_tokens(self, row: int, running: RunningRequest) -> list[int]:
        """Committed tokens that the draft model has not computed yet; at least the newest one."""
        return running.token_ids[self.num_ingested[row] :]

    def pending_positions(self, batch: Batch) -> list[int]:
        """Position of each row's first pending token."""
        return list(self.num_ingested)

    def extend(self, batch: Batch, token_ids: Tensor, index: int, is_wanted: Sequence[bool]) -> Tensor:
        """Computes draft token number index of every row; logits [rows, vocab] after it."""
        num_new = [int(wanted) for wanted in is_wanted]
        hidden = self.cached.compute(
            token_ids[:, None], first_positions=self.draft_positions(batch, index), num_new=num_new
        )
        self.num_ingested = [done + new for done, new in zip(self.num_ingested, num_new, strict=True)]
        return self.model.logits(hidden[:, 0])

    def draft_positions(self, batch: Batch, index: int) -> list[int]:
        """Position of each row's draft token number index: they follow the committed text."""
        return [len(running.token_ids) + index for running in batch.running]

    def draft_law(
        self,
        batch: Batch,
        logits: Tensor,
        counts: TokenCounts | None,
        index: int,
        num_draft_tokens: Sequence[int],
    ) -> Tensor:
        """Law [rows, vocab] of draft token number index; counts: what penalties see, earlier draft tokens included."""
        return batch.sampling.law(logits[:, None], counts)[:, 0]

    def draw(self, batch: Batch, law: Tensor, is_wanted: Sequence[bool]) -> Tensor:
        """Draft tokens [rows], drawn from the laws [rows, vocab]."""
        return batch.draw(law, DRAFT, is_wanted)

    def declared_law(self, batch: Batch, law: Tensor, logits: Tensor) -> Tensor:
        """What is handed to the verifier as draft_probs: the law that the token was drawn from, and no other."""
        return law

    def commit(self, batch: Batch, accepted: Sequence[Sequence[int]]) -> None:
        for row, running in enumerate(batch.running):
            self.num_ingested[row] = self.tokens_to_keep(row, running)
            self.cached.cache.keep(row, self.rows_to_keep(row, running))

    def tokens_to_keep(self, row: int, running: RunningRequest) -> int:
        """How many tokens of the text have been computed: accepted drafts count, the final token does not.

        The last draft token was never computed. If it was accepted, this is 2 less than the text's length.
        """
        return min(self.num_ingested[row], running.newest_position)

    def rows_to_keep(self, row: int, running: RunningRequest) -> int:
        """Cache rows that stay: one per computed token of the text. Rejected drafts lie behind them."""
        return self.num_ingested[row]

    def select(self, rows: Sequence[int]) -> None:
        self.cached.select(rows)
        self.num_ingested = [self.num_ingested[row] for row in rows]

    def kv_lengths(self) -> Sequence[int]:
        return self.cached.cache.lengths

    def kv_rows(self, row: int) -> Tensor:
        return self.cached.cache.rows(row)
