"""Engine faults of prompt lookup: it copies from another place, another time or another text."""

from __future__ import annotations

from collections.abc import Sequence

from specverify.faults.engine_parts import Planted
from specverify.reference.batch import Batch, padded
from specverify.reference.proposers import Drafts, NgramProposer

plant = Planted(proposer="n-gram")


@plant("lookup-one-too-late", "vllm-project/vllm-ascend#3628")
class _OneTooLate(NgramProposer):
    """The copy begins one token behind the one that followed."""

    def continuation(self, token_ids: list[int], num_tokens: int) -> list[int]:
        return super().continuation(token_ids, num_tokens + 1)[1:]


@plant("lookup-lags-a-step", "vllm-project/vllm#20247")
class _LagsAStep(NgramProposer):
    """What the last step committed is not yet in the text that is searched."""

    def propose(self, batch: Batch, num_draft_tokens: Sequence[int]) -> Drafts:
        found = []
        for running, wanted in zip(batch.running, num_draft_tokens, strict=True):
            lag = len(running.steps[-1].token_ids) if running.steps else 0
            found.append(self.continuation(running.token_ids[: len(running.token_ids) - lag], wanted))
        return Drafts(token_ids=padded(found, batch.device), num_tokens=[len(tokens) for tokens in found])


@plant("lookup-in-neighbour", "TheTom/buun-llama-cpp#110")
class _InNeighbour(NgramProposer):
    """Each request's end is looked up in its neighbour's text."""

    def propose(self, batch: Batch, num_draft_tokens: Sequence[int]) -> Drafts:
        texts = [running.token_ids for running in batch.running]
        others = zip([*texts[1:], *texts[:1]], num_draft_tokens, strict=True)
        found = [self.continuation(text, wanted) for text, wanted in others]
        return Drafts(token_ids=padded(found, batch.device), num_tokens=[len(tokens) for tokens in found])


FAULTS = plant.faults
