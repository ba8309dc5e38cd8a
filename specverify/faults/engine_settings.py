"""Engine faults of extreme sampling settings, which the speculative path replaces by harmless ones."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from specverify.core.types import SamplingParams
from specverify.faults.engine_parts import Planted
from specverify.reference.batch import Batch
from specverify.reference.engine import ReferenceEngine
from specverify.reference.proposers import Drafts
from specverify.reference.sampling import SamplingRows

plant = Planted()
_COLD = 0.1


class _SettingsReplaced(ReferenceEngine):
    """Positions are verified under other sampling parameters than the request's."""

    def replaced(self, sampling: SamplingParams) -> SamplingParams:
        return sampling

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        rows = SamplingRows([self.replaced(running.request.sampling) for running in batch.running], batch.device)
        counts = batch.token_counts()
        return rows.law(logits, counts, None if counts is None else counts.along(drafts.token_ids))


@plant("sampling-top-k-1-lost", "vllm-project/vllm#27077 (for top-k 1)")
class _TopOneLost(_SettingsReplaced):
    """Top-k 1 is taken for no top-k at verified positions."""

    def replaced(self, sampling: SamplingParams) -> SamplingParams:
        return replace(sampling, top_k=0) if sampling.top_k == 1 else sampling


@plant("sampling-cold-lost", "NVIDIA-NeMo/Automodel#3627")
class _ColdLost(_SettingsReplaced):
    """Temperatures below .1 are taken for 1 at verified positions."""

    def replaced(self, sampling: SamplingParams) -> SamplingParams:
        return replace(sampling, temperature=1.0) if 0.0 < sampling.temperature < _COLD else sampling


@plant("sampling-rewards-lost", "vllm-project/vllm#913 (at verified positions)")
class _RewardsLost(_SettingsReplaced):
    """Penalties that reward repetition are taken for none at verified positions."""

    def replaced(self, sampling: SamplingParams) -> SamplingParams:
        return replace(
            sampling,
            repetition_penalty=max(1.0, sampling.repetition_penalty),
            presence_penalty=max(0.0, sampling.presence_penalty),
            frequency_penalty=max(0.0, sampling.frequency_penalty),
        )


FAULTS = plant.faults
