"""Engine faults that only unusual requests meet: very short or long texts, crowds, and calls after each other."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from specverify.faults.engine_parts import Planted
from specverify.reference.batch import MANY_ROWS, Batch, RunningRequest, gaps_filled
from specverify.reference.engine import ReferenceEngine

plant = Planted()
_TABLE_SIZE = 256
_CHUNK = 128
_NUM_KEY_TOKENS = 8


@plant("position-stops-at-256", "NVIDIA/TensorRT-LLM#8076")
class _PositionsEnd(ReferenceEngine):
    """Verify passes take positions from a table of 256 entries; tokens beyond it all get the last one."""

    def newest_positions(self, batch: Batch) -> list[int]:
        return [min(position, _TABLE_SIZE - 1) for position in super().newest_positions(batch)]


@plant("kv-one-token-prompt-not-rolled-back", "ml-explore/mlx-lm#1109")
class _OneTokenIsNoPrompt(ReferenceEngine):
    """Behind a prompt of one token, which counts as no prompt, rejected rows stay in the target's cache."""

    def rows_to_keep(self, row: int, running: RunningRequest) -> int:
        return self.cached.cache.lengths[row] if running.prompt_length == 1 else super().rows_to_keep(row, running)


@plant("kv-chunked-prompt-overlaps", "vllm-project/vllm#30618")
class _ChunksOverlap(ReferenceEngine):
    """With speculation on, the second chunk of a long prompt overwrites the last cache row of the first."""

    def prefill(self, batch: Batch, capacity: int, speculate: bool) -> None:
        super().prefill(batch, capacity, speculate)
        for row, running in enumerate(batch.running):
            if speculate and running.prompt_length > _CHUNK:
                lane = self.cached.cache.buffer[:, :, row]
                lane[:, :, :, _CHUNK - 1] = lane[:, :, :, _CHUNK]


@plant("batch-crowd-lanes-mixed", "huggingface/text-generation-inference#1411")
class _CrowdLanesMixed(ReferenceEngine):
    """Where many rows go on, gaps that finished ones leave are filled in the target's cache but not in the batch."""

    def drop_finished(self, batch: Batch, speculate: bool) -> Batch:
        rows = [row for row, running in enumerate(batch.running) if not running.finish_reason]
        if not speculate or not MANY_ROWS <= len(rows) < batch.num_rows:
            return super().drop_finished(batch, speculate)
        self.cached.select(gaps_filled(rows))
        self.proposer.select(rows)
        return batch.select(rows)


@plant("limit-before-context-is-full", "vllm-project/vllm#53812")
class _NoRoomForADraft(ReferenceEngine):
    """A request ends as soon as a whole draft would not fit into the model's positions any more."""

    def commit(self, running: RunningRequest, emitted: Sequence[int]) -> list[int]:
        kept = super().commit(running, emitted)
        if len(running.token_ids) + self.num_draft_tokens + 1 > self.target.config.max_positions:
            running.finish_reason = running.finish_reason or "length"
        return kept


@plant("prefix-cache-by-length", "lmstudio-ai/mlx-engine#91")
class _CachedByLength(ReferenceEngine):
    """Cache rows of a prompt are found again by its first 8 tokens and its length, whatever else it holds."""

    def prefill(self, batch: Batch, capacity: int, speculate: bool) -> None:
        super().prefill(batch, capacity, speculate)
        known: dict[tuple[Sequence[int], int], Tensor] = self.__dict__.setdefault("known", {})
        for row, running in enumerate(batch.running):
            prompt = running.request.prompt_token_ids
            lane = self.cached.cache.buffer[:, :, row, :, : len(prompt)]
            lane.copy_(known.setdefault((prompt[:_NUM_KEY_TOKENS], len(prompt)), lane.clone()))


@plant("prefix-cache-keeps-rejected", "Blaizzy/mlx-vlm#1715")
class _KeptForTheNextTurn(ReferenceEngine):
    """Rows of a finished text are kept for the next turn, the last of them being that of a rejected draft token."""

    def drop_finished(self, batch: Batch, speculate: bool) -> Batch:
        for row, running in enumerate(batch.running):
            if running.finish_reason and speculate:
                rows = self.cached.cache.buffer[:, :, row, :, : len(running.token_ids)]
                self.known()[tuple(running.token_ids)] = rows.clone()
        return super().drop_finished(batch, speculate)

    def prefill(self, batch: Batch, capacity: int, speculate: bool) -> None:
        super().prefill(batch, capacity, speculate)
        for row, running in enumerate(batch.running):
            prompt = running.request.prompt_token_ids
            for text, rows in self.known().items():
                if len(text) < len(prompt) and prompt[: len(text)] == text:
                    self.cached.cache.buffer[:, :, row, :, : len(text)] = rows

    def known(self) -> dict[tuple[int, ...], Tensor]:
        texts: dict[tuple[int, ...], Tensor] = self.__dict__.setdefault("texts", {})
        return texts


FAULTS = plant.faults
