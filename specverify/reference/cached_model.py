"""A model together with its KV cache: what it computes, at which positions, into which rows, seeing which rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specverify.reference.kv_cache import KVCache
from specverify.reference.model import Model
from specverify.reference.tree import Branches

# Buffers start a little larger than asked for, so that short runs never grow them.
SPARE_ROWS = 16


class CachedModel:
    """One model with one cache lane per batch row. Target and draft model are both run through it.

    A pass computes a ragged block: row r gets num_new[r] tokens, padded on the right to the widest row. Padding is
    computed and written too, but behind the rows in use, where nothing sees it and the next pass overwrites it.
    """

    cache_class: type[KVCache] = KVCache

    def __init__(self, model: Model, *, num_rows: int, capacity: int, taps: Sequence[int] = ()) -> None:
        self.model = model
        # Layers in front of which the residual stream is kept.
        self.taps = tuple(taps)
        self.cache = self.cache_class(
            model.config, num_rows, capacity + SPARE_ROWS, dtype=model.dtype, device=model.device
        )
        self._zero = torch.zeros((), dtype=model.dtype, device=model.device)
        self._minus_infinity = torch.full_like(self._zero, -torch.inf)
        # Positions that the last pass computed, per row, padding left out: [rows][num_new].
        self.last_positions: list[list[int]] = [[] for _ in range(num_rows)]
        # What the last pass gave, its rows as they were then: [rows, width, hidden] and [rows, width, taps, hidden].
        self.last_hidden = torch.empty(0)
        self.last_taps: Tensor | None = None

    def compute(
        self,
        token_ids: Tensor,
        *,
        first_positions: Sequence[int],
        num_new: Sequence[int],
        layers: Sequence[int] | None = None,
        branches: Branches | None = None,
        inputs: Tensor | None = None,
    ) -> Tensor:
        """Hidden states [rows, width, hidden] of a block of tokens [rows, width]; their KV rows are pending.

        first_positions: position in the text of each row's first token. num_new: tokens per row, at most width.
        layers: as in Model.forward; the cache rows of the other layers stay as they are.
        branches: the block is a part of a tree; otherwise its tokens follow each other. inputs: as in Model.forward.
        """
        width = token_ids.shape[1]
        if branches is None:
            positions = self.token_positions(first_positions, width)
        else:
            positions = self.tree_positions(first_positions, branches)
        slots = self.slots(width)
        num_slots = max(self.cache.lengths) + width
        self.cache.reserve(num_slots)
        self.model.rope.reserve(max(first_positions) + width + SPARE_ROWS, self.model.dtype)
        mask = self.mask(slots, num_slots) if branches is None else self.tree_mask(num_slots, branches)
        tapped = dict.fromkeys(self.taps, token_ids) if self.taps else None
        self.last_hidden = self.model.forward(
            token_ids,
            positions=positions,
            slots=slots,
            mask=mask,
            num_slots=num_slots,
            cache=self.cache,
            layers=layers,
            tapped=tapped,
            inputs=inputs,
        )
        self.last_taps = torch.stack([tapped[tap] for tap in self.taps], dim=2) if tapped else None
        computed = positions.expand(len(num_new), width).tolist()
        if min(num_new) < width:
            computed = [row[:new] for row, new in zip(computed, num_new, strict=True)]
        self.last_positions = computed
        self.cache.lengths = [length + new for length, new in zip(self.cache.lengths, num_new, strict=True)]
        return self.last_hidden

    def token_positions(self, first_positions: Sequence[int], width: int) -> Tensor:
        """Position of every token of the block, [rows, width]: consecutive, from the row's first one on.

        [1, width] where all rows agree; so are the slots.
        """
        return self._offsets(first_positions, width)

    def slots(self, width: int) -> Tensor:
        """Cache row that every token of the block is written to, [rows, width]: right behind the rows in use."""
        return self._offsets(self.cache.lengths, width)

    def mask(self, slots: Tensor, num_slots: int) -> Tensor | None:
        """0 where a token may see a cache row and -inf where not, [rows, width, num_slots].

        A token sees its own row and all before it. Hence neither rejected rows, nor padding, nor later tokens.
        None where everything may be seen: one token a row, and rows of one length.
        """
        if slots.shape == (1, 1):
            return None
        return self._additive(torch.arange(num_slots, device=slots.device) > slots[:, :, None])

    def tree_positions(self, first_positions: Sequence[int], branches: Branches) -> Tensor:
        """Position of every token of a tree block, [rows, width]: siblings share one, however many there are."""
        return torch.tensor(first_positions, device=self.model.device)[:, None] + branches.depths

    def tree_mask(self, num_slots: int, branches: Branches) -> Tensor:
        """As mask, for a tree block: a token sees the committed text, its ancestors and itself; no sibling."""
        device = self.model.device
        rows, width, span = branches.visible.shape
        first_slots = torch.tensor(branches.first_slots, device=device)
        place = torch.arange(num_slots, device=device) - first_slots[:, None]  # [rows, num_slots]
        in_tree = branches.visible.gather(2, place.clamp(0, span - 1)[:, None].expand(rows, width, num_slots))
        is_seen = torch.where((place < 0)[:, None], True, in_tree & (place < span)[:, None])
        return self._additive(~is_seen)

    def _additive(self, is_hidden: Tensor) -> Tensor:
        return torch.where(is_hidden, self._minus_infinity, self._zero)

    def select(self, rows: Sequence[int]) -> None:
        """Goes on with these batch rows only, in this order."""
        self.cache.select(rows)
        self.last_positions = [self.last_positions[row] for row in rows]

    def _offsets(self, starts: Sequence[int], width: int) -> Tensor:
        device, first = self.model.device, starts[0]
        if list(starts).count(first) == len(starts):
            return torch.arange(first, first + width, device=device)[None]
        return torch.tensor(starts, device=device)[:, None] + torch.arange(width, device=device)


def prefill_rows(model: Model, token_ids: Sequence[int]) -> Tensor:
    """KV rows of a fresh pass over the tokens, [layers, 2, tokens, kv_heads, head_dim]: what any cache must hold."""
    cached = CachedModel(model, num_rows=1, capacity=len(token_ids))
    tokens = torch.tensor([list(token_ids)], device=model.device)
    cached.compute(tokens, first_positions=[0], num_new=[len(token_ids)])
    return cached.cache.rows(0)


def score(model: Model, prompt_token_ids: Sequence[int], token_ids: Sequence[int]) -> Tensor:
    """Log-probabilities [tokens, vocab] before each of the given tokens, teacher-forced, at temperature 1."""
    text = [*prompt_token_ids, *token_ids][:-1]
    cached = CachedModel(model, num_rows=1, capacity=len(text))
    tokens = torch.tensor([text], device=model.device)
    hidden = cached.compute(tokens, first_positions=[0], num_new=[len(text)])
    wanted = hidden[0, len(prompt_token_ids) - 1 :]
    return torch.log_softmax(model.logits(wanted).to(model.wide_dtype), dim=-1)
