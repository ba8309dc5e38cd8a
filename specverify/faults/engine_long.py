"""Engine faults that only long texts meet: tables and pages that end, and long runs of one outcome."""

from __future__ import annotations

import torch
from torch import Tensor

from specverify.faults.engine_parts import Planted
from specverify.reference.batch import Batch, RunningRequest
from specverify.reference.cached_model import CachedModel
from specverify.reference.engine import ReferenceEngine

plant = Planted()
_TABLE_SIZE = 96
_PAGE_SIZE = 128
_MANY_REJECTIONS = 30


@plant("draft-position-stops-at-96", "NVIDIA/TensorRT-LLM#8076 (for the draft model)")
class _DraftPositionsEnd:
    """The draft model takes positions from a table of 96 entries; tokens beyond it all get the last one."""

    def draft_positions(self, batch: Batch, index: int) -> list[int]:
        positions: list[int] = super().draft_positions(batch, index)  # type: ignore[misc]
        return [min(position, _TABLE_SIZE - 1) for position in positions]

    def pending_positions(self, batch: Batch) -> list[int]:
        positions: list[int] = super().pending_positions(batch)  # type: ignore[misc]
        return [min(position, _TABLE_SIZE - 1) for position in positions]


@plant("draft-placeholder-beyond-its-context", "vllm-project/vllm#58080")
class _PlaceholdersBeyond:
    """As soon as one text of a batch is longer than the draft model's context, id 0 is drafted for every row."""

    def draft_law(self, batch: Batch, *args: object) -> Tensor:
        law: Tensor = super().draft_law(batch, *args)  # type: ignore[misc]
        if max(len(running.token_ids) for running in batch.running) > _TABLE_SIZE:
            law = torch.zeros_like(law)
            law[..., 0] = 1.0
        return law


@plant("position-stops-at-96-when-sampled", "NVIDIA/TensorRT-LLM#8076 (for sampled requests)")
class _SampledPositionsEnd(ReferenceEngine):
    """Verify passes of sampled requests take positions from a table of 96 entries."""

    def newest_positions(self, batch: Batch) -> list[int]:
        positions = super().newest_positions(batch)
        if batch.sampling.is_greedy:
            return positions
        return [min(position, _TABLE_SIZE - 1) for position in positions]


@plant("kv-page-end-lost", "NVIDIA/TensorRT-LLM#16448")
class _PageEndLost(ReferenceEngine):
    """Where a rollback crosses the end of a page of 128 rows, the page before loses its last row."""

    def roll_back(self, batch: Batch) -> None:
        before = list(self.cached.cache.lengths)
        super().roll_back(batch)
        for row, (had, has) in enumerate(zip(before, self.cached.cache.lengths, strict=True)):
            if has % _PAGE_SIZE and had // _PAGE_SIZE > has // _PAGE_SIZE:
                self.cached.cache.buffer[:, :, row, :, has - 1] = 0.0


@plant("draft-kv-after-many-rejections", "mlc-ai/mlc-llm#2939 (late)")
class _KeptAfterManyRejections:
    """After thirty steps without an accepted token the draft model's rows are not rolled back any more."""

    cached: CachedModel

    def rows_to_keep(self, row: int, running: RunningRequest) -> int:
        recent = running.steps[-_MANY_REJECTIONS:]
        if len(recent) == _MANY_REJECTIONS and not any(step.num_accepted for step in recent):
            return self.cached.cache.lengths[row]
        kept: int = super().rows_to_keep(row, running)  # type: ignore[misc]
        return kept


FAULTS = plant.faults
