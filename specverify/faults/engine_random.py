"""Engine faults of requests without a seed: rows of a batch that do not draw for themselves."""

from __future__ import annotations

import torch
from torch import Tensor

from specverify.core.types import Request
from specverify.faults.engine_parts import Planted
from specverify.reference.batch import Batch
from specverify.reference.draws import RequestStreams
from specverify.reference.engine import ReferenceEngine
from specverify.reference.proposers import Drafts
from specverify.reference.verifiers import RejectionVerifier

plant = Planted(every_option=False)


class _OneNoise(Batch):
    """Draws the tokens of all rows with one row of noise, where no row has a seed."""

    def draw(self, law: Tensor, *args: object, **options: object) -> Tensor:
        if self.sampling.is_greedy or any(streams.seed is not None for streams in self.streams):
            return super().draw(law, *args, **options)  # type: ignore[arg-type]
        # The likeliest arrival of a race of exponential clocks follows the law: each row by itself is right.
        return (law / torch.empty_like(law[:1]).exponential_()).argmax(dim=-1)


@plant("random-rows-share-noise", "NVIDIA/TensorRT-LLM#17599 (every request of a batch shared one stream)")
class _RowsShareNoise(ReferenceEngine):
    """In a verify step all rows without a seed draw their tokens with one row of noise."""

    def speculative_step(self, batch: Batch) -> None:
        super().speculative_step(_OneNoise(batch.running, batch.vocab_size, batch.device))


@plant("random-rows-share-accept-uniform", "NVIDIA/TensorRT-LLM#19487 (for the accept test)")
class _RowsShareAccept(RejectionVerifier):
    """One uniform a draft place serves the accept tests of all rows without a seed."""

    def accept_uniforms(self, batch: Batch, drafts: Drafts) -> Tensor:
        uniforms = super().accept_uniforms(batch, drafts)
        is_unseeded = all(streams.seed is None for streams in batch.streams)
        return uniforms[:1].expand_as(uniforms) if is_unseeded else uniforms


@plant("random-one-default-seed", "NVIDIA/TensorRT-LLM#117")
class _OneDefaultSeed(ReferenceEngine):
    """A request without a seed gets the same default seed as all others."""

    def make_streams(self, request: Request) -> RequestStreams:
        return RequestStreams(0 if request.seed is None else request.seed, self.target.device)


FAULTS = plant.faults
