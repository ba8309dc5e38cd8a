"""Engine faults of mixed batches: how some rows ask to be sampled decides over others."""

from __future__ import annotations

import torch
from torch import Tensor

from specverify.core.types import SamplingParams
from specverify.faults.engine_parts import Planted
from specverify.reference.batch import Batch
from specverify.reference.engine import ReferenceEngine
from specverify.reference.proposers import Drafts
from specverify.reference.sampling import SamplingRows

plant = Planted()


@plant("batch-sampled-row-greedy", "vllm-project/vllm#27077 (the other side)")
class _SampledRowsGreedy(ReferenceEngine):
    """A sampled request is verified greedily where a greedy request shares its batch."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        law = super().target_law(batch, logits, drafts)
        if batch.sampling.has_greedy and not batch.sampling.is_greedy:
            return torch.zeros_like(law).scatter_(-1, law.argmax(dim=-1, keepdim=True), 1.0)
        return law


@plant("batch-sampling-lost-beside-greedy", "NVIDIA/TensorRT-LLM#19390")
class _ParametersLost(ReferenceEngine):
    """Where a greedy request shares the batch, sampled ones lose temperature and filters at verified positions."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        if not batch.sampling.has_greedy or batch.sampling.is_greedy:
            return super().target_law(batch, logits, drafts)
        asked = [running.request.sampling for running in batch.running]
        return SamplingRows([one if one.is_greedy else SamplingParams() for one in asked], batch.device).law(logits)


@plant("batch-penalties-of-first-row", "sgl-project/sglang#28180")
class _PenaltiesOfFirstRow(ReferenceEngine):
    """Penalties are applied at verified positions only where the first request of the batch has some."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        if batch.running[0].request.sampling.has_penalties:
            return super().target_law(batch, logits, drafts)
        return batch.sampling.law(logits)


FAULTS = plant.faults
