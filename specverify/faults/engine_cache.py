"""Engine faults in the caches of target and draft model, and in the positions of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from specverify.faults.engine_parts import engine_fault
from specverify.faults.fault import Fault
from specverify.reference.batch import Batch, RunningRequest
from specverify.reference.cached_model import CachedModel
from specverify.reference.engine import ReferenceEngine
from specverify.reference.kv_cache import KVCache
from specverify.reference.proposers import Drafts


def _rows_in_use(engine: ReferenceEngine, row: int) -> int:
    return engine.cached.cache.lengths[row]


class _RollbackOneShort(ReferenceEngine):
    def rows_to_keep(self, row: int, running: RunningRequest) -> int:
        return min(running.newest_position + 1, _rows_in_use(self, row))


class _NoRollback(ReferenceEngine):
    def rows_to_keep(self, row: int, running: RunningRequest) -> int:
        return _rows_in_use(self, row)


class _RollbackOneTooMany(ReferenceEngine):
    def rows_to_keep(self, row: int, running: RunningRequest) -> int:
        was_cut = running.newest_position < _rows_in_use(self, row)
        return running.newest_position - 1 if was_cut else running.newest_position


class _WritesOnlyFreshRows(KVCache):
    """A slot that was ever written keeps what it has."""

    def write(self, layer: int, slots: Tensor, *, keys: Tensor, values: Tensor) -> None:
        lanes, index = self.buffer[layer], self._row_index
        is_used = lanes[1, index, :, slots].abs().sum(dim=(2, 3), keepdim=True) > 0
        keys = lanes[0, index, :, slots].where(is_used, keys)
        values = lanes[1, index, :, slots].where(is_used, values)
        super().write(layer, slots, keys=keys, values=values)


class _RollsValuesOfBlocks(KVCache):
    """Values of a block on top of a cache go one slot too far; the last one wraps around."""

    def write(self, layer: int, slots: Tensor, *, keys: Tensor, values: Tensor) -> None:
        if slots.shape[1] > 1 and int(slots.min()) > 0:
            values = values.roll(1, dims=1)
        super().write(layer, slots, keys=keys, values=values)


class _ModelWithStaleRows(CachedModel):
    cache_class = _WritesOnlyFreshRows


class _ModelWithRolledValues(CachedModel):
    cache_class = _RollsValuesOfBlocks


class _StaleRow(ReferenceEngine):
    cached_model_class = _ModelWithStaleRows


class _RolledValues(ReferenceEngine):
    cached_model_class = _ModelWithRolledValues


class _DraftsOneTooFar(CachedModel):
    """In a block on top of a cache, everything behind the first token is placed one position too far."""

    def token_positions(self, first_positions: Sequence[int], width: int) -> Tensor:
        positions = super().token_positions(first_positions, width)
        if min(first_positions) > 0:
            positions[:, 1:] += 1
        return positions


class _PositionOffByOne(ReferenceEngine):
    cached_model_class = _DraftsOneTooFar


class _PositionDrift(ReferenceEngine):
    """Positions advance by one a step, however many tokens the step committed."""

    def newest_positions(self, batch: Batch) -> list[int]:
        drifts = [sum(len(step.token_ids) - 1 for step in running.steps) for running in batch.running]
        return [right - drift for right, drift in zip(super().newest_positions(batch), drifts, strict=True)]


class _DraftNotRolledBack:
    cached: CachedModel

    def rows_to_keep(self, row: int, running: RunningRequest) -> int:
        return self.cached.cache.lengths[row]


class _DraftRollbackOneShort:
    cached: CachedModel
    num_ingested: list[int]

    def rows_to_keep(self, row: int, running: RunningRequest) -> int:
        return min(self.num_ingested[row] + 1, self.cached.cache.lengths[row])


class _DraftMissesLastAccepted:
    """Believes that every committed token but the newest was computed; after a full accept the last draft was not."""

    def tokens_to_keep(self, row: int, running: RunningRequest) -> int:
        return running.newest_position


class _DraftStateGap:
    """In a step that drafts nothing, committed tokens are marked as computed and are not."""

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


class _DraftPositionsAhead:
    def draft_positions(self, batch: Batch, index: int) -> list[int]:
        positions: list[int] = super().draft_positions(batch, index)  # type: ignore[misc]
        return [position + 1 for position in positions]


class _DraftCacheStale:
    cached_model_class: Any = _ModelWithStaleRows


FAULTS: tuple[Fault, ...] = (
    engine_fault(
        "kv-rollback-one-short",
        "After a rejection one rejected row stays in the target's cache.",
        "ml-explore/mlx-lm#1914 (SD-132)",
        engine=_RollbackOneShort,
    ),
    engine_fault(
        "kv-not-rolled-back",
        "Rejected rows are never dropped from the target's cache.",
        "ml-explore/mlx-lm#1109 (SD-111)",
        engine=_NoRollback,
    ),
    engine_fault(
        "kv-rollback-one-too-many",
        "After a rejection one committed row is dropped from the target's cache as well.",
        "paiml/aprender#2014 (SD-077)",
        engine=_RollbackOneTooMany,
    ),
    engine_fault(
        "kv-row-stale",
        "A cache row that a rejected draft token has used is not overwritten by the token that takes its place.",
        "vllm-project/vllm#16370 (SD-064)",
        engine=_StaleRow,
    ),
    engine_fault(
        "kv-values-misplaced",
        "With several tokens on top of a cache, values go to the wrong rows; keys are right.",
        "alibaba/MNN#4600 (SD-066)",
        engine=_RolledValues,
    ),
    engine_fault(
        "draft-kv-not-rolled-back",
        "Rejected rows are dropped from the target's cache but not from the draft model's.",
        "mlc-ai/mlc-llm#2939 (SD-072)",
        draft_side=_DraftNotRolledBack,
    ),
    engine_fault(
        "draft-kv-rollback-one-short",
        "After a rejection one rejected row stays in the draft model's cache.",
        "openvinotoolkit/openvino#33061 (SD-073)",
        draft_side=_DraftRollbackOneShort,
    ),
    engine_fault(
        "draft-kv-missing-last-accepted",
        "After a full accept the last draft token never gets a row in the draft model's cache.",
        "xLLM-AI/xllm#960 (SD-070)",
        draft_side=_DraftMissesLastAccepted,
    ),
    engine_fault(
        "draft-kv-row-stale",
        "A row of the draft model's cache that a rejected token has used is not overwritten.",
        "vllm-project/vllm#5412 (SD-069)",
        draft_side=_DraftCacheStale,
    ),
    engine_fault(
        "draft-state-gap",
        "A step that drafts nothing does not show the draft model what was committed.",
        "vllm-project/vllm-metal#716 (SD-036)",
        draft_side=_DraftStateGap,
    ),
    engine_fault(
        "position-target-off-by-one",
        "The target computes drafted tokens one position too far.",
        "ggml-org/llama.cpp#26478 (SD-090)",
        engine=_PositionOffByOne,
    ),
    engine_fault(
        "position-target-drift",
        "The target's positions advance by one a step, however many tokens were committed.",
        "huggingface/transformers#30068 (SD-092)",
        engine=_PositionDrift,
    ),
    engine_fault(
        "position-draft-ahead",
        "The draft model computes every drafted token one position too far.",
        "sgl-project/sglang#25015 (SD-094)",
        draft_side=_DraftPositionsAhead,
    ),
)
