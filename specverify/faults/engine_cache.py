"""Engine faults in the caches of target and draft model, and in the positions of tokens."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from specverify.faults.engine_parts import Planted, with_cache
from specverify.reference.batch import Batch, RunningRequest
from specverify.reference.cached_model import CachedModel
from specverify.reference.engine import ReferenceEngine
from specverify.reference.kv_cache import KVCache
from specverify.reference.proposers import Drafts

plant = Planted()


@plant("kv-rollback-one-short", "ml-explore/mlx-lm#1914")
class _RollbackOneShort(ReferenceEngine):
    """After a rejection one rejected row stays in the target's cache."""

    def rows_to_keep(self, row: int, running: RunningRequest) -> int:
        return min(running.newest_position + 1, self.cached.cache.lengths[row])


@plant("kv-not-rolled-back", "ml-explore/mlx-lm#1109")
class _NoRollback(ReferenceEngine):
    """Rejected rows are never dropped from the target's cache."""

    def rows_to_keep(self, row: int, running: RunningRequest) -> int:
        return self.cached.cache.lengths[row]


@plant("kv-rollback-one-too-many", "paiml/aprender#2014")
class _RollbackOneTooMany(ReferenceEngine):
    """After a rejection one committed row is dropped from the target's cache as well."""

    def rows_to_keep(self, row: int, running: RunningRequest) -> int:
        was_cut = running.newest_position < self.cached.cache.lengths[row]
        return running.newest_position - 1 if was_cut else running.newest_position


@plant("kv-row-stale", "vllm-project/vllm#16370")
class _WritesOnlyFreshRows(KVCache):
    """A cache row that a rejected draft token has used is not overwritten by the token that takes its place."""

    def write(self, layer: int, slots: Tensor, *, keys: Tensor, values: Tensor) -> None:
        lanes, index = self.buffer[layer], self._row_index
        is_used = lanes[1, index, :, slots].abs().sum(dim=(2, 3), keepdim=True) > 0
        keys = lanes[0, index, :, slots].where(is_used, keys)
        values = lanes[1, index, :, slots].where(is_used, values)
        super().write(layer, slots, keys=keys, values=values)


@plant("kv-values-misplaced", "alibaba/MNN#4600")
class _RollsValuesOfBlocks(KVCache):
    """With several tokens on top of a cache, values go to the wrong rows; keys are right."""

    def write(self, layer: int, slots: Tensor, *, keys: Tensor, values: Tensor) -> None:
        if slots.shape[1] > 1 and int(slots.min()) > 0:
            values = values.roll(1, dims=1)
        super().write(layer, slots, keys=keys, values=values)


@plant("draft-kv-not-rolled-back", "mlc-ai/mlc-llm#2939")
class _DraftNotRolledBack:
    """Rejected rows are dropped from the target's cache but not from the draft model's."""

    cached: CachedModel

    def rows_to_keep(self, row: int, running: RunningRequest) -> int:
        return self.cached.cache.lengths[row]


@plant("draft-kv-rollback-one-short", "openvinotoolkit/openvino#33061")
class _DraftRollbackOneShort:
    """After a rejection one rejected row stays in the draft model's cache."""

    cached: CachedModel
    num_ingested: list[int]

    def rows_to_keep(self, row: int, running: RunningRequest) -> int:
        return min(self.num_ingested[row] + 1, self.cached.cache.lengths[row])


@plant("draft-kv-missing-last-accepted", "xLLM-AI/xllm#960")
class _DraftMissesLastAccepted:
    """After a full accept the last draft token never gets a row in the draft model's cache."""

    def tokens_to_keep(self, row: int, running: RunningRequest) -> int:
        return running.newest_position


@plant("draft-kv-row-stale", "vllm-project/vllm#5412")
class _DraftCacheStale:
    """A row of the draft model's cache that a rejected token has used is not overwritten."""

    cached_model_class = with_cache(_WritesOnlyFreshRows)


@plant("draft-state-gap", "vllm-project/vllm-metal#716")
class _DraftStateGap:
    """A step that drafts nothing does not show the draft model what was committed."""

    cached: CachedModel
    num_ingested: list[int]

    def start(self, batch: Batch, capacity: int) -> None:
        super().start(batch, capacity)  # type: ignore[misc]
        self.lost = [0] * batch.num_rows

    def propose(self, batch: Batch, num_draft_tokens: Sequence[int]) -> Drafts:
        before = list(self.cached.cache.lengths)
        drafts: Drafts = super().propose(batch, num_draft_tokens)  # type: ignore[misc]
        for row, num in enumerate(drafts.num_tokens):
            if num == 0 and before[row] > 0:
                self.lost[row] += self.cached.cache.lengths[row] - before[row]
        return drafts

    def rows_to_keep(self, row: int, running: RunningRequest) -> int:
        return self.num_ingested[row] - self.lost[row]

    def select(self, rows: Sequence[int]) -> None:
        super().select(rows)  # type: ignore[misc]
        self.lost = [self.lost[row] for row in rows]


@plant("position-target-off-by-one", "ggml-org/llama.cpp#26478")
class _DraftsOneTooFar(CachedModel):
    """The target computes drafted tokens one position too far."""

    def token_positions(self, first_positions: Sequence[int], width: int) -> Tensor:
        positions = super().token_positions(first_positions, width)
        if min(first_positions) > 0:
            positions[:, 1:] += 1
        return positions


@plant("position-target-drift", "huggingface/transformers#30068")
class _PositionDrift(ReferenceEngine):
    """The target's positions advance by one a step, however many tokens were committed."""

    def newest_positions(self, batch: Batch) -> list[int]:
        drifts = [sum(len(step.token_ids) - 1 for step in running.steps) for running in batch.running]
        return [right - drift for right, drift in zip(super().newest_positions(batch), drifts, strict=True)]


@plant("position-draft-ahead", "sgl-project/sglang#25015")
class _DraftPositionsAhead:
    """The draft model computes every drafted token one position too far."""

    def draft_positions(self, batch: Batch, index: int) -> list[int]:
        positions: list[int] = super().draft_positions(batch, index)  # type: ignore[misc]
        return [position + 1 for position in positions]


@plant("position-draft-stays", "vllm-project/vllm#26498", num_draft_tokens=3)
class _DraftPositionsStay:
    """The draft model computes every drafted token at the position of the first."""

    def draft_positions(self, batch: Batch, index: int) -> list[int]:
        positions: list[int] = super().draft_positions(batch, 0)  # type: ignore[misc]
        return positions


FAULTS = plant.faults
