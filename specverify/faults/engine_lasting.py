"""Engine faults that show after many requests: what one takes is never given back."""

from __future__ import annotations

from collections.abc import Sequence

from specverify.core.types import Request, Trace
from specverify.faults.engine_parts import Planted
from specverify.reference.batch import RunningRequest
from specverify.reference.engine import ReferenceEngine

plant = Planted(every_option=False)
_NUM_SLOTS = 24
_NUM_DRAFT_ROWS = 200


@plant("lasting-slots-not-returned", "NVIDIA/TensorRT-LLM#12063")
class _SlotsKept(ReferenceEngine):
    """Each request that speculates takes one of 24 slots and never returns it."""

    num_taken = 0

    def generate(self, requests: Sequence[Request], *, speculate: bool = True) -> list[Trace]:
        if speculate and self.num_taken + len(requests) > _NUM_SLOTS:
            raise RuntimeError("no free slots")
        self.num_taken += len(requests) if speculate else 0
        return super().generate(requests, speculate=speculate)


@plant("lasting-draft-context-fills", "ggml-org/llama.cpp#27692")
class _DraftContextFills(ReferenceEngine):
    """Rows of the draft context are never freed; when 200 are taken, nothing is drafted any more."""

    num_rows = 0

    def num_to_propose(self, running: RunningRequest) -> int:
        if self.num_rows >= _NUM_DRAFT_ROWS:
            return 0
        wanted = super().num_to_propose(running)
        self.num_rows += wanted
        return wanted


FAULTS = plant.faults
