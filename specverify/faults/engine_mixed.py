"""Engine faults of sampled rows: how other rows ask to be sampled decides over them, or where they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specverify.core.types import Request, SamplingParams, Trace
from specverify.faults.engine_parts import Planted
from specverify.reference.batch import Batch, RunningRequest
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


@plant("batch-filters-lost-without-draft", "vllm-project/vllm#14645 (for rows without a draft)")
class _FiltersLostWithoutDraft(ReferenceEngine):
    """Where some rows of a batch have a draft, top-k and top-p are forgotten for those that have none."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        law = super().target_law(batch, logits, drafts)
        if batch.sampling.is_greedy or not any(drafts.num_tokens):
            return law
        loose = [replace(running.request.sampling, top_k=0, top_p=1.0) for running in batch.running]
        has_draft = torch.tensor([num > 0 for num in drafts.num_tokens])[:, None, None]
        return torch.where(has_draft, law, SamplingRows(loose, batch.device).law(logits).to(law.dtype))


@plant("batch-law-of-drafting-row", "vllm-project/vllm#14645 (for rows without a draft)")
class _LawOfDraftingRow(ReferenceEngine):
    """A sampled row without a draft is drawn from the law of the first row that has one."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        law = super().target_law(batch, logits, drafts)
        drafting = [row for row, num in enumerate(drafts.num_tokens) if num]
        if batch.sampling.is_greedy or not drafting:
            return law
        has_draft = torch.tensor([num > 0 for num in drafts.num_tokens])[:, None, None]
        return torch.where(has_draft, law, law[drafting[0]])


@plant("eos-missed-when-sampled", "huggingface/transformers#47912 (sampled, in a batch)")
class _EosMissedWhenSampled(ReferenceEngine):
    """A sampled request in company misses an end token inside an accepted block."""

    num_rows = 0

    def speculative_step(self, batch: Batch) -> None:
        self.num_rows = batch.num_rows
        super().speculative_step(batch)

    def cut_at_eos(self, running: RunningRequest, token_ids: Sequence[int]) -> list[int]:
        if self.num_rows > 1 and not running.request.sampling.is_greedy:
            return list(token_ids)
        return super().cut_at_eos(running, token_ids)


@plant("limit-overshot-when-sampled", "sgl-project/sglang#31599 (sampled)")
class _LimitOvershotWhenSampled(ReferenceEngine):
    """A sampled request drafts past max_new_tokens and keeps its whole last block."""

    def num_to_propose(self, running: RunningRequest) -> int:
        is_greedy = running.request.sampling.is_greedy
        return super().num_to_propose(running) if is_greedy else self.num_draft_tokens

    def cut_at_limit(self, running: RunningRequest, token_ids: Sequence[int]) -> list[int]:
        is_greedy = running.request.sampling.is_greedy
        return super().cut_at_limit(running, token_ids) if is_greedy else list(token_ids)


@plant("eos-first-token-missed", "huggingface/transformers#47912 (the token of prefill)")
class _FirstTokenIsNoEnd(ReferenceEngine):
    """With speculation on, an end token that comes as the very first one does not end the output."""

    is_speculating = False

    def generate(self, requests: Sequence[Request], *, speculate: bool = True) -> list[Trace]:
        self.is_speculating = speculate
        return super().generate(requests, speculate=speculate)

    def commit(self, running: RunningRequest, emitted: Sequence[int]) -> list[int]:
        is_first = self.is_speculating and not running.num_output_tokens
        kept = super().commit(running, emitted)
        if is_first and running.finish_reason == "eos" and running.num_remaining > 0:
            running.finish_reason = ""
        return kept


FAULTS = plant.faults
