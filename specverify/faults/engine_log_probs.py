"""Engine faults in the log-probabilities that are reported of emitted tokens; the tokens themselves are right."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from specverify.faults.engine_parts import Planted
from specverify.reference.batch import Batch
from specverify.reference.cached_model import score
from specverify.reference.engine import ReferenceEngine
from specverify.reference.proposers import Drafts

plant = Planted()


@plant("log-probs-zero-when-accepted", "ggml-org/llama.cpp#27972")
class _ZeroWhenAccepted(ReferenceEngine):
    """Accepted draft tokens are reported with log-probability 0: the target's law is not consulted."""

    def report_verified(
        self, batch: Batch, drafts: Drafts, logits: Tensor, accepted: Sequence[Sequence[int]], kept: Sequence[list[int]]
    ) -> None:
        super().report_verified(batch, drafts, logits, accepted, kept)
        for running, path, token_ids in zip(batch.running, accepted, kept, strict=True):
            assert running.log_probs is not None
            first, num_zeros = len(running.log_probs) - len(token_ids), min(len(path), len(token_ids))
            running.log_probs[first : first + num_zeros] = [0.0] * num_zeros


@plant("log-probs-of-drafted-tokens", "Blackwellboy/model-serving-minefield#99 and sgl-project/sglang#26163")
class _OfDraftedTokens(ReferenceEngine):
    """There is an entry for every draft token that was verified, and one behind them, whatever was emitted."""

    def report_verified(
        self, batch: Batch, drafts: Drafts, logits: Tensor, accepted: Sequence[Sequence[int]], kept: Sequence[list[int]]
    ) -> None:
        drafted = drafts.token_ids.tolist()
        verified = [
            [*row[:num], token_ids[-1]] for row, num, token_ids in zip(drafted, drafts.num_tokens, kept, strict=True)
        ]
        self.report(batch, logits, [range(num + 1) for num in drafts.num_tokens], verified)


@plant("log-probs-of-row-late", "vllm-project/vllm#34497")
class _OfRowLate(ReferenceEngine):
    """Token i of a step is looked up in row i + 1 of the verify pass, the last one in the last row."""

    def report_verified(
        self, batch: Batch, drafts: Drafts, logits: Tensor, accepted: Sequence[Sequence[int]], kept: Sequence[list[int]]
    ) -> None:
        rows = [
            [min(index + 1, num) for index in range(len(path) + 1)]
            for path, num in zip(accepted, drafts.num_tokens, strict=True)
        ]
        self.report(batch, logits, rows, kept)


@plant("log-probs-of-draft-model", "vllm-project/vllm#34497 (of the draft)")
class _OfDraftModel(ReferenceEngine):
    """Accepted draft tokens are reported with what the drafting model gave them."""

    def report_verified(
        self, batch: Batch, drafts: Drafts, logits: Tensor, accepted: Sequence[Sequence[int]], kept: Sequence[list[int]]
    ) -> None:
        super().report_verified(batch, drafts, logits, accepted, kept)
        model = getattr(self.proposer, "model", None)
        for running, path, token_ids in zip(batch.running, accepted, kept, strict=True):
            taken = token_ids[: len(path)]
            if model is None or not taken or running.log_probs is None:
                continue
            first = len(running.token_ids) - len(token_ids)
            law = score(model, running.token_ids[:first], taken)
            begin = len(running.log_probs) - len(token_ids)
            running.log_probs[begin : begin + len(taken)] = law[range(len(taken)), taken].tolist()


@plant("log-probs-processed-when-speculating", "vllm-project/vllm#34497 (temperature and filters)")
class _ProcessedWhenSpeculating(ReferenceEngine):
    """With speculation they are those of the law that is verified, without it those of the logits as they are."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        self.verified_law = super().target_law(batch, logits, drafts)
        return self.verified_law

    def report_verified(
        self, batch: Batch, drafts: Drafts, logits: Tensor, accepted: Sequence[Sequence[int]], kept: Sequence[list[int]]
    ) -> None:
        super().report_verified(batch, drafts, self.verified_law.log(), accepted, kept)


FAULTS = plant.faults
