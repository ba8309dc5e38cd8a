"""Records what transformers' assisted generation does, round by round, through hooks on the two model instances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from specverify.core.types import Array, Step
from specverify.trace.pipeline import common_length


@dataclass
class _Round:
    """One verify round as tensors; they are read only after the call has ended."""

    start_position: int
    candidate_ids: torch.Tensor  # [1, start_position + k]
    draft_logits: torch.Tensor | None  # [1, k, vocab], processed
    committed_ids: torch.Tensor | None = None  # [1, start_position + committed]
    target_logits: torch.Tensor | None = None  # [1, k + 1, vocab], processed
    target_kv_length: int | None = None
    draft_kv_length: int | None = None
    target_positions: list[torch.Tensor] = field(default_factory=list)
    draft_positions: list[torch.Tensor] = field(default_factory=list)
    target_kv_rows: Array | None = None
    draft_kv_rows: Array | None = None


class StepRecorder:
    """Watches one generate() call.

    The candidate generator that the target builds for the call is watched as an instance: its get_candidates is
    where a round begins, its update_candidate_strategy is where it ends, after the caches were rolled back.
    Nothing is changed on any class. counts_only: note how many tokens were proposed and accepted, and look at no token.
    """

    def __init__(self, *, counts_only: bool = False, laws: bool = True, kv_rows: bool = False) -> None:
        self._counts_only = counts_only
        self._laws = laws and not counts_only
        self._kv_rows = kv_rows
        self._rounds: list[_Round] = []
        self._target_cache: Any = None
        self._generator: Any = None
        self._is_drafting = False
        self._drafting_positions: list[torch.Tensor] = []

    @contextmanager
    def watching(self, target: Any, draft: Any | None) -> Iterator[StepRecorder]:
        """Records the calls made inside. draft: None where the drafter is no model of its own."""
        build = target._get_candidate_generator

        def build_watched(*args: Any, **kwargs: Any) -> Any:
            generator = build(*args, **kwargs)
            self._target_cache = kwargs["model_kwargs"].get("cache")
            self._watch(generator)
            return generator

        hooks = [
            model.register_forward_pre_hook(self._note_positions, with_kwargs=True)
            for model in (target, draft)
            if model is not None and not self._counts_only
        ]
        target._get_candidate_generator = build_watched
        try:
            yield self
        finally:
            del target._get_candidate_generator  # the method of the class shows again
            for hook in hooks:
                hook.remove()

    def _watch(self, generator: Any) -> None:
        self._generator = generator
        draft_tokens, finish_round = generator.get_candidates, generator.update_candidate_strategy

        def get_candidates(input_ids: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            self._is_drafting, self._drafting_positions = True, []
            try:
                candidate_ids, logits = draft_tokens(input_ids, *args, **kwargs)
            finally:
                self._is_drafting = False
            kept = logits if self._laws else None
            positions = self._drafting_positions
            self._rounds.append(_Round(input_ids.shape[1], candidate_ids, kept, draft_positions=positions))
            return candidate_ids, logits

        def update_candidate_strategy(input_ids: torch.Tensor, scores: torch.Tensor, num_matches: Any) -> None:
            finish_round(input_ids, scores, num_matches)
            self._end_round(input_ids, scores)

        generator.get_candidates = get_candidates
        generator.update_candidate_strategy = update_candidate_strategy
        roll_back = getattr(generator, "_update_past_and_masks", None)
        if roll_back is not None:

            def update_past_and_masks(*args: Any, **kwargs: Any) -> Any:
                result = roll_back(*args, **kwargs)
                self._note_draft_cache()
                return result

            generator._update_past_and_masks = update_past_and_masks

    def _end_round(self, input_ids: torch.Tensor, scores: torch.Tensor) -> None:
        current = self._rounds[-1]
        current.committed_ids = input_ids
        current.target_logits = scores if self._laws else None
        if self._target_cache is not None:
            current.target_kv_length = int(self._target_cache.get_seq_length())
            current.target_kv_rows = cache_rows(self._target_cache) if self._kv_rows else None

    def _note_draft_cache(self) -> None:
        """The drafter rolls its cache back when the next round begins: only then are the rows of a step settled."""
        cache = self._generator.assistant_kwargs.get("cache")
        if cache is not None and self._rounds:
            self._rounds[-1].draft_kv_length = int(cache.get_seq_length())
            self._rounds[-1].draft_kv_rows = cache_rows(cache) if self._kv_rows else None

    def _note_positions(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        positions = kwargs.get("position_ids")
        if positions is None:
            return
        if self._is_drafting:
            self._drafting_positions.append(positions)
        elif self._rounds:
            self._rounds[-1].target_positions.append(positions)

    @property
    def num_proposed(self) -> int:
        return sum(done.candidate_ids.shape[1] - done.start_position for done in self._rounds)

    @property
    def num_accepted(self) -> int:
        """As generate() counts itself: all committed tokens of a round but the last, known from shapes alone."""
        return sum(
            done.committed_ids.shape[1] - done.start_position - 1
            for done in self._rounds
            if done.committed_ids is not None
        )

    def steps(self, *, is_greedy: bool) -> tuple[Step, ...]:
        """The recorded rounds, read out. A greedy law is a point mass on the best token."""
        return tuple(_step(index, done, is_greedy) for index, done in enumerate(self._rounds))


def _step(index: int, done: _Round, is_greedy: bool) -> Step:
    start = done.start_position
    draft_token_ids = tuple(done.candidate_ids[0, start:].tolist())
    token_ids = () if done.committed_ids is None else tuple(done.committed_ids[0, start:].tolist())
    # The call reports the number of matches only after it has cut at the end token. But the token that replaces a
    # rejected draft token always differs from it, in every rule that generate() has: equality is acceptance.
    num_accepted = common_length(draft_token_ids, token_ids)
    return Step(
        index=index,
        start_position=start,
        draft_token_ids=draft_token_ids,
        token_ids=token_ids,
        num_accepted=num_accepted,
        is_truncated=num_accepted == len(token_ids),
        draft_probs=_laws(done.draft_logits, is_greedy),
        target_probs=_laws(done.target_logits, is_greedy),
        target_kv_length_after=done.target_kv_length,
        draft_kv_length_after=done.draft_kv_length,
        target_positions=_flat(done.target_positions),
        draft_positions=_flat(done.draft_positions),
        target_kv_rows=done.target_kv_rows,
        draft_kv_rows=done.draft_kv_rows,
    )


def _laws(logits: torch.Tensor | None, is_greedy: bool) -> Array | None:
    """[1, rows, vocab] processed logits -> [rows, vocab] laws, by the same softmax as the verifier's."""
    if logits is None:
        return None
    one_hot = torch.nn.functional.one_hot
    rows = one_hot(logits[0].argmax(dim=-1), logits.shape[-1]) if is_greedy else logits[0].softmax(dim=-1)
    laws: Array = rows.double().cpu().numpy()
    return laws


def raw_log_probs(logits: Sequence[torch.Tensor], token_ids: torch.Tensor) -> tuple[float, ...]:
    """Log-probabilities by the logits that generate() returned, before temperature and filters: an entry for each row.

    logits: a tensor [1, vocab] for each new token, as generate() promises. Rows beyond the last token count as entries
    of 0, so that the wrong number is seen.
    """
    if not logits:
        return ()
    rows = torch.cat(tuple(logits)).double().log_softmax(dim=-1)
    picked = rows[: len(token_ids)].gather(-1, token_ids[: len(rows), None].to(rows.device))[:, 0]
    numbers: list[float] = picked.tolist()
    return (*numbers, *[0.0] * (len(rows) - len(numbers)))


def _flat(positions: list[torch.Tensor]) -> tuple[int, ...] | None:
    return tuple(int(p) for part in positions for p in part[0].tolist()) if positions else None


def cache_rows(cache: Any) -> Array:
    """The rows of a dynamic cache with one sequence -> [layers, 2, rows, heads, head_dim], float64.

    Layers that were never written (an early exit leaves them empty) are left out.
    """
    layers = [layer for layer in cache.layers if layer.is_initialized]
    stacked = torch.stack([torch.stack([layer.keys[0], layer.values[0]]) for layer in layers])  # [L, 2, heads, rows, d]
    rows: Array = stacked.transpose(2, 3).double().cpu().numpy()
    return rows
