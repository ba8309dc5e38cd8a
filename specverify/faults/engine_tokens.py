"""Engine faults in what a step emits: end tokens, limits, rejected tokens; and speculation that is not there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specverify.core.types import Request, Trace
from specverify.faults.engine_parts import DeclaredLossy, Planted, probe_engine
from specverify.faults.engine_rules import MixesDraftIn
from specverify.faults.fault import Fault
from specverify.reference.batch import RunningRequest
from specverify.reference.engine import ReferenceEngine
from specverify.reference.subject import Parts

plant = Planted()


@plant("eos-inside-draft-missed", "huggingface/transformers#47912")
class _EosOnlyLast(ReferenceEngine):
    """An end token inside an accepted block is not noticed."""

    def cut_at_eos(self, running: RunningRequest, token_ids: Sequence[int]) -> list[int]:
        return list(token_ids)


@plant("report-accepted-counts-bonus", "sgl-project/sglang#23530")
class _BonusCountsAsAccepted(ReferenceEngine):
    """The number of accepted tokens that is reported counts the final token of every step."""

    def generate(self, requests: Sequence[Request], *, speculate: bool = True) -> list[Trace]:
        traces = super().generate(requests, speculate=speculate)
        return [replace(trace, num_accepted=(trace.num_accepted or 0) + len(trace.steps)) for trace in traces]


@plant("report-ends-by-length", "sgl-project/sglang#31599 (for the finish reason)")
class _SaysLength(ReferenceEngine):
    """A request whose end token comes inside a block says that it ended by its length."""

    def commit(self, running: RunningRequest, emitted: Sequence[int]) -> list[int]:
        kept = super().commit(running, emitted)
        if running.finish_reason == "eos" and len(emitted) > 1:
            running.finish_reason = "length"
        return kept


@plant("eos-draft-goes-on", "openvinotoolkit/openvino.genai#1951")
class _EosKeepsBlock(ReferenceEngine):
    """Draft tokens behind an accepted end token stay in the output."""

    def commit(self, running: RunningRequest, emitted: Sequence[int]) -> list[int]:
        kept = self.cut_at_limit(running, emitted)
        if any(token in running.request.eos_token_ids for token in kept):
            running.finish_reason = "eos"
            running.token_ids.extend(kept)
            return kept
        return super().commit(running, emitted)


@plant("eos-limit-comes-first", "sgl-project/sglang#31599")
class _LimitBeforeEos(ReferenceEngine):
    """A block that crosses the length limit is not searched for its end token."""

    def cut_at_eos(self, running: RunningRequest, token_ids: Sequence[int]) -> list[int]:
        if len(token_ids) >= running.num_remaining:
            return list(token_ids)
        return super().cut_at_eos(running, token_ids)


@plant("eos-later-ids-missed", "LostRuins/koboldcpp#1276 (one of several end tokens)")
class _FirstEosIdOnly(ReferenceEngine):
    """Inside a draft only the first of several end token ids ends the output."""

    def cut_at_eos(self, running: RunningRequest, token_ids: Sequence[int]) -> list[int]:
        ends = running.request.eos_token_ids
        for index, token_id in enumerate(token_ids):
            if token_id == ends[0] or (token_id in ends and index == len(token_ids) - 1):
                return list(token_ids[: index + 1])
        return list(token_ids)


@plant("eos-in-prompt-ends", "openvinotoolkit/openvino.genai#1951 (the opposite slip)")
class _PromptSearchedForEos(ReferenceEngine):
    """A speculative step ends every output whose prompt holds an end token."""

    def commit(self, running: RunningRequest, emitted: Sequence[int]) -> list[int]:
        kept = super().commit(running, emitted)
        held = set(running.request.prompt_token_ids)
        if running.steps and not running.finish_reason and held.intersection(running.request.eos_token_ids):
            running.finish_reason = "eos"
        return kept


@plant("tokens-limit-overshot", "ggml-org/llama.cpp#10641")
class _LimitOvershot(ReferenceEngine):
    """The last block is drafted and kept in full, past max_new_tokens."""

    def num_to_propose(self, running: RunningRequest) -> int:
        return self.num_draft_tokens

    def cut_at_limit(self, running: RunningRequest, token_ids: Sequence[int]) -> list[int]:
        return list(token_ids)


@plant("tokens-kept-after-rejection", "lucidrains/speculative-decoding#3")
class _KeepsAfterRejection(ReferenceEngine):
    """A draft token behind the first rejected one survives."""

    def emitted_tokens(self, draft_token_ids: Sequence[int], num_accepted: int, final_token_id: int) -> list[int]:
        kept = super().emitted_tokens(draft_token_ids, num_accepted, final_token_id)
        return [*kept, *draft_token_ids[num_accepted + 1 : num_accepted + 2]]


@plant("tokens-accepted-lost", "vllm-project/vllm#26027")
class _LosesAccepted(ReferenceEngine):
    """Of the tokens of a step only the newest reaches the output."""

    def emitted_tokens(self, draft_token_ids: Sequence[int], num_accepted: int, final_token_id: int) -> list[int]:
        return [final_token_id]


@plant("speculation-silently-off", "xLLM-AI/xllm#2255")
class _SpeculationOff(ReferenceEngine):
    """Speculation is asked for, and nothing is ever drafted."""

    def num_to_propose(self, running: RunningRequest) -> int:
        return 0


def _understated() -> DeclaredLossy:
    subject = probe_engine("lossy-distance-understated", parts=Parts(engine_class=MixesDraftIn))
    return DeclaredLossy(subject, reason="mixes three tenths of the draft law in", distance=0.01)


FAULTS = (
    *plant.faults,
    Fault(
        "lossy-distance-understated",
        "Declares itself lossy by at most .01, and is lossier.",
        "NVIDIA/TensorRT-LLM#12063, whose relaxed acceptance is lossy by design",
        _understated,
    ),
)
