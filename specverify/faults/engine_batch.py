"""Engine faults that need company: rows of a batch that see or get what belongs to other rows; and seeds."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from specverify.core.types import Request, Trace
from specverify.faults.engine_parts import Planted
from specverify.reference.batch import Batch
from specverify.reference.cached_model import CachedModel
from specverify.reference.draws import RequestStreams
from specverify.reference.engine import ReferenceEngine
from specverify.reference.proposers import Drafts
from specverify.reference.sampling import SamplingRows
from specverify.reference.verifiers import RejectionVerifier

plant = Planted()


@plant("batch-neighbour-kv-row", "HabanaAI/vllm-fork#1780")
class _LanesNotMoved(ReferenceEngine):
    """When a request ends, the rows move up and their lanes of the target's cache do not."""

    def drop_finished(self, batch: Batch, speculate: bool) -> Batch:
        rows = [row for row, running in enumerate(batch.running) if not running.finish_reason]
        if not rows or len(rows) == batch.num_rows:
            return super().drop_finished(batch, speculate)
        lengths = [self.cached.cache.lengths[row] for row in rows]
        self.cached.select(range(len(rows)))
        self.cached.cache.lengths = lengths
        if speculate:
            self.proposer.select(rows)
        return batch.select(rows)


@plant("batch-neighbour-probability-row", "vllm-project/vllm#14645")
class _LawsOfNeighbour(ReferenceEngine):
    """Where draft lengths differ, a row is verified against its neighbour's laws."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        law = super().target_law(batch, logits, drafts)
        return law.roll(1, dims=0) if len(set(drafts.num_tokens)) > 1 else law


@plant("batch-ragged-mask", "vllm-project/vllm#43682")
class _SeesPadding(CachedModel):
    """Short rows attend to the padding of the longest row."""

    def mask(self, slots: Tensor, num_slots: int) -> Tensor | None:
        return super().mask(slots.max(dim=0, keepdim=True).values.expand_as(slots), num_slots)


@plant("batch-draft-neighbour", "NVIDIA/TensorRT-LLM#7803")
class _DraftLanesNotMoved:
    """When a request ends, the draft model's lanes do not move up with the rows."""

    cached: CachedModel
    num_ingested: list[int]

    def select(self, rows: Sequence[int]) -> None:
        lengths = [self.cached.cache.lengths[row] for row in rows]
        self.cached.select(range(len(rows)))
        self.cached.cache.lengths = lengths
        self.num_ingested = [self.num_ingested[row] for row in rows]


@plant("batch-greedy-row-sampled", "vllm-project/vllm#27077")
class _GreedyRowsSampled(ReferenceEngine):
    """A greedy request is sampled where a sampled request shares its batch."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        if batch.sampling.is_greedy:
            return super().target_law(batch, logits, drafts)
        law = super().target_law(batch, logits, drafts)
        is_greedy = torch.tensor([running.request.sampling.is_greedy for running in batch.running])
        return torch.where(is_greedy.to(law.device)[:, None, None], logits.to(law.dtype).softmax(dim=-1), law)


@plant("seed-ignored", "vllm-project/vllm#6038")
class _SeedIgnored(ReferenceEngine):
    """A request's seed is not used at all."""

    def make_streams(self, request: Request) -> RequestStreams:
        return RequestStreams(None, self.target.device)


class _OneStream(RequestStreams):
    """Every request draws from one generator, which goes on from call to call."""

    shared: random.Random | None = None

    def generator(self, stream: str) -> random.Random:
        if _OneStream.shared is None:
            _OneStream.shared = random.Random(self.seed)
        return _OneStream.shared


@plant("seed-shared-stream", "NVIDIA/TensorRT-LLM#17599")
class _SharedStream(ReferenceEngine):
    """All seeded requests draw from one stream, which goes on from call to call."""

    def make_streams(self, request: Request) -> RequestStreams:
        return _OneStream(request.seed, self.target.device)


@plant("seed-zero-is-none", "NVIDIA/TensorRT-LLM#17599 (for seed 0)")
class _SeedZeroIsNone(ReferenceEngine):
    """Seed 0 is taken for no seed."""

    def make_streams(self, request: Request) -> RequestStreams:
        return RequestStreams(request.seed or None, self.target.device)


@plant("seed-low-bits-lost", "vllm-project/vllm-omni#5229")
class _LowBitsLost(ReferenceEngine):
    """Seeds that differ in their last eight bits only are one seed."""

    def make_streams(self, request: Request) -> RequestStreams:
        return RequestStreams(None if request.seed is None else request.seed >> 8, self.target.device)


@plant("seed-high-bits-lost", "vllm-project/vllm-omni#5229 (at the other end)")
class _HighBitsLost(ReferenceEngine):
    """Of a seed only the last 16 bits count."""

    def make_streams(self, request: Request) -> RequestStreams:
        return RequestStreams(None if request.seed is None else request.seed % 2**16, self.target.device)


@plant("seed-equal-seeds-share", "vllm-project/vllm#6038 (for equal seeds)")
class _EqualSeedsShare(ReferenceEngine):
    """Requests of one batch with equal seeds draw in turn from one stream."""

    def generate(self, requests: Sequence[Request], *, speculate: bool = True) -> list[Trace]:
        self.streams: dict[int | None, RequestStreams] = {}
        return super().generate(requests, speculate=speculate)

    def make_streams(self, request: Request) -> RequestStreams:
        made = super().make_streams(request)
        return made if request.seed is None else self.streams.setdefault(request.seed, made)


@plant("seed-final-token-greedy", "EricLBuehler/mistral.rs#2424 (for requests with a seed)")
class _SeededFinalIsGreedy(RejectionVerifier):
    """Requests with a seed take the likeliest final token."""

    def draw_final(self, batch: Batch, law: Tensor) -> Tensor:
        is_seeded = torch.tensor([streams.seed is not None for streams in batch.streams])
        return torch.where(is_seeded, law.argmax(dim=-1), super().draw_final(batch, law))


@plant("seed-unseeded-final-greedy", "vllm-project/vllm#10863 (for the final token)")
class _UnseededFinalIsGreedy(RejectionVerifier):
    """Beside requests with a seed, those without one take the likeliest final token."""

    def draw_final(self, batch: Batch, law: Tensor) -> Tensor:
        is_seeded = torch.tensor([streams.seed is not None for streams in batch.streams])
        drawn = super().draw_final(batch, law)
        return torch.where(is_seeded, drawn, law.argmax(dim=-1)) if is_seeded.any() else drawn


@plant("batch-sampling-of-first-row", "vllm-project/vllm#9834 (for rows that are sampled otherwise)")
class _SampledLikeTheFirst(ReferenceEngine):
    """All rows of a batch are verified under the sampling parameters of the first."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        own, first = batch.sampling, batch.running[0].request.sampling
        batch.sampling = SamplingRows([first] * batch.num_rows, batch.device)
        law = super().target_law(batch, logits, drafts)
        batch.sampling = own
        return law


@plant("seed-unseeded-rows-mixed", "vllm-project/vllm#10863")
class _UnseededRowsFrozen(ReferenceEngine):
    """Beside seeded requests, unseeded ones always draw the same noise."""

    def generate(self, requests: Sequence[Request], *, speculate: bool = True) -> list[Trace]:
        self.is_mixed = len({request.seed is None for request in requests}) > 1
        return super().generate(requests, speculate=speculate)

    def make_streams(self, request: Request) -> RequestStreams:
        if self.is_mixed and request.seed is None:
            return RequestStreams(0, self.target.device)
        return super().make_streams(request)


FAULTS = plant.faults
