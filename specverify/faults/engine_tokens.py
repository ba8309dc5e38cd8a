"""Engine faults in what a step emits: end tokens, limits, rejected tokens; and speculation that is not there."""

from __future__ import annotations

from collections.abc import Sequence

from specverify.faults.engine_parts import DeclaredLossy, engine_fault, probe_engine
from specverify.faults.engine_rules import MixesDraftIn
from specverify.faults.fault import Fault
from specverify.reference.batch import RunningRequest
from specverify.reference.engine import ReferenceEngine
from specverify.reference.subject import Parts


class _EosOnlyLast(ReferenceEngine):
    """Only the last token of a block is compared with the end tokens."""

    def cut_at_eos(self, running: RunningRequest, token_ids: Sequence[int]) -> list[int]:
        return list(token_ids)


class _EosKeepsBlock(ReferenceEngine):
    """An end token ends the request after its block, and the rest of the block stays in the output."""

    def commit(self, running: RunningRequest, emitted: Sequence[int]) -> list[int]:
        kept = self.cut_at_limit(running, emitted)
        if any(token in running.request.eos_token_ids for token in kept):
            running.finish_reason = "eos"
            running.token_ids.extend(kept)
            return kept
        return super().commit(running, emitted)


class _LimitBeforeEos(ReferenceEngine):
    """A block that crosses the length limit is not searched for end tokens."""

    def cut_at_eos(self, running: RunningRequest, token_ids: Sequence[int]) -> list[int]:
        if len(token_ids) >= running.num_remaining:
            return list(token_ids)
        return super().cut_at_eos(running, token_ids)


class _LimitOvershot(ReferenceEngine):
    """Drafts and commits a full block however little room is left."""

    def num_to_propose(self, running: RunningRequest) -> int:
        return self.num_draft_tokens

    def cut_at_limit(self, running: RunningRequest, token_ids: Sequence[int]) -> list[int]:
        return list(token_ids)


class _KeepsAfterRejection(ReferenceEngine):
    """One more draft token survives behind the token that replaces the rejected one."""

    def emitted_tokens(self, draft_token_ids: Sequence[int], num_accepted: int, final_token_id: int) -> list[int]:
        kept = super().emitted_tokens(draft_token_ids, num_accepted, final_token_id)
        return [*kept, *draft_token_ids[num_accepted + 1 : num_accepted + 2]]


class _LosesAccepted(ReferenceEngine):
    """Only the newest token of a step reaches the output."""

    def emitted_tokens(self, draft_token_ids: Sequence[int], num_accepted: int, final_token_id: int) -> list[int]:
        return [final_token_id]


class _SpeculationOff(ReferenceEngine):
    """Speculation is asked for, and vetoed."""

    def num_to_propose(self, running: RunningRequest) -> int:
        return 0


def _understated() -> DeclaredLossy:
    subject = probe_engine("lossy-distance-understated", parts=Parts(engine_class=MixesDraftIn))
    return DeclaredLossy(subject, reason="mixes three tenths of the draft law in", distance=0.01)


FAULTS: tuple[Fault, ...] = (
    engine_fault(
        "eos-inside-draft-missed",
        "An end token inside an accepted block is not noticed.",
        "huggingface/transformers#47912 (SD-038)",
        engine=_EosOnlyLast,
    ),
    engine_fault(
        "eos-draft-goes-on",
        "Draft tokens behind an accepted end token stay in the output.",
        "openvinotoolkit/openvino.genai#1951 (SD-039)",
        engine=_EosKeepsBlock,
    ),
    engine_fault(
        "eos-limit-comes-first",
        "A block that crosses the length limit is not searched for its end token.",
        "sgl-project/sglang#31599 (SD-078)",
        engine=_LimitBeforeEos,
    ),
    engine_fault(
        "tokens-limit-overshot",
        "The last block is drafted and kept in full, past max_new_tokens.",
        "ggml-org/llama.cpp#10641 (SD-029)",
        engine=_LimitOvershot,
    ),
    engine_fault(
        "tokens-kept-after-rejection",
        "A draft token behind the first rejected one survives.",
        "lucidrains/speculative-decoding#3 (SD-076)",
        engine=_KeepsAfterRejection,
    ),
    engine_fault(
        "tokens-accepted-lost",
        "Of the tokens of a step only the newest reaches the output.",
        "vllm-project/vllm#26027 (SD-137)",
        engine=_LosesAccepted,
    ),
    engine_fault(
        "speculation-silently-off",
        "Speculation is asked for, and nothing is ever drafted.",
        "xLLM-AI/xllm#2255 (SD-135)",
        engine=_SpeculationOff,
    ),
    Fault(
        "lossy-distance-understated",
        "Declares itself lossy by at most .01, and is lossier.",
        "NVIDIA/TensorRT-LLM#12063 (SD-114), whose relaxed acceptance is lossy by design",
        _understated,
    ),
)
