"""Planted bugs of verify functions, each after a public report or a named slip, and correct ones of every style."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specverify.faults import verify_correct as correct
from specverify.faults import verify_parts as broken
from specverify.faults import verify_trees as trees
from specverify.faults.fault import CorrectSubject, Fault

_FORMULA = "a slip in the formula of arXiv 2211.17192, section 2.3; "


def _torch(name: str) -> Callable[[], Any]:
    """Makes a torch function when it is wanted, so that listing the faults imports no torch."""

    def make() -> Any:
        from specverify.faults import verify_torch

        return getattr(verify_torch, name)()

    return make


def _plain(function: Callable[..., Any]) -> Callable[[], Any]:
    return lambda: function


FAULTS: tuple[Fault, ...] = (
    Fault("verify-ratio-inverted", "accepts with draft / target instead of target / draft",
          _FORMULA + "pytorch-labs/gpt-fast names the two laws the other way round than the paper",
          broken.RatioInverted),
    Fault("verify-always-accepts", "keeps every draft token",
          "huggingface/transformers#28508", broken.AlwaysAccepts),
    Fault("verify-uniform-is-zero", "compares with the uniform 0 instead of a drawn one",
          "vllm-project/vllm-ascend#13766", broken.UniformIsZero),
    Fault("verify-counts-every-flag", "counts accepted drafts behind a rejected one",
          "huggingface/transformers#28508", _torch("CountsEveryFlag")),
    Fault("verify-first-draft-unchecked", "commits the first draft token without a test",
          "ohdearquant/lattice#243", broken.FirstDraftUnchecked),
    Fault("verify-accepts-slightly-more", "accepts with 1.02 times the ratio",
          "NVIDIA/TensorRT-LLM#12063 (relaxed acceptance)", broken.AcceptsSlightlyMore),
    Fault("verify-resamples-from-target", "replaces a rejected token by one from the target law itself",
          "SafeAILab/EAGLE#183 (renormalised without removing what was tried)", broken.ResamplesFromTarget),
    Fault("verify-rejected-token-excluded", "replaces a rejected token by any other, by the target law",
          "vllm-project/vllm-ascend#2881", broken.RejectedTokenExcluded),
    Fault("verify-residual-not-clipped", "takes |target - draft| as the residual",
          _FORMULA + "flashinfer-ai/flashinfer#425", broken.ResidualNotClipped),
    Fault("verify-residual-inverted", "takes max(draft - target, 0) as the residual",
          _FORMULA + "pytorch-labs/gpt-fast names the two laws the other way round than the paper",
          broken.ResidualInverted),
    Fault("verify-residual-floor", "clamps the residual from below at 0.01",
          "vllm-project/vllm-ascend#14116 (a guard value that is a likely one)", broken.ResidualFloor),
    Fault("verify-residual-of-wrong-row", "takes the residual of the next position",
          "mlc-ai/mlc-llm#2949", broken.ResidualOfWrongRow),
    Fault("verify-residual-argmax", "replaces a rejected token by the likeliest residual token",
          "EricLBuehler/mistral.rs#2424", broken.ResidualArgmax),
    Fault("verify-uniform-reused", "draws the residual token with the uniform that rejected the draft",
          "flashinfer-ai/flashinfer#424", broken.UniformReused),
    Fault("verify-uniform-shared-by-positions", "uses one uniform for all positions of a step",
          "flashinfer-ai/flashinfer#424", broken.UniformSharedByPositions),
    Fault("verify-noise-reused", "decides the accept tests with the noise that draws the final token",
          "flashinfer-ai/flashinfer#424", _torch("NoiseReused")),
    Fault("verify-uniforms-shared-by-rows", "uses the same uniforms for every row of a batch",
          "NVIDIA/TensorRT-LLM#17599", _torch("UniformsSharedByRows")),
    Fault("verify-bonus-of-last-row", "draws the bonus token from the row of the last draft token",
          "ohdearquant/lattice#243 (one row off)", broken.BonusOfLastRow),
    Fault("verify-bonus-argmax", "takes the likeliest bonus token",
          "EricLBuehler/mistral.rs#2424", broken.BonusArgmax),
    Fault("verify-target-rows-shifted", "compares draft token i with the target law after it",
          "ohdearquant/lattice#243", broken.TargetRowsShifted),
    Fault("verify-draft-rows-shifted", "divides by the draft law of the position before",
          "vllm-project/vllm#40149 (draft laws of other rows)", broken.DraftRowsShifted),
    Fault("verify-rows-mixed-up", "takes the final token's laws from another row of the batch",
          "vllm-project/vllm#14645", _torch("RowsMixedUp")),
    Fault("verify-draft-temperature", "is told a draft law at another temperature than it uses",
          "huggingface/transformers#47932", broken.DraftTemperature),
    Fault("verify-top-p-on-target-only", "cuts the target law to its nucleus and not the draft law",
          "vllm-project/vllm#9834", broken.TopPOnTargetOnly),
    Fault("verify-softmax-twice", "applies softmax to target probabilities",
          "vllm-project/vllm-ascend#6685", broken.SoftmaxTwice),
    Fault("verify-greedy-for-all", "takes the target's argmax although it should sample",
          "Pushkinist/rMLX#519", broken.GreedyForAll),
    Fault("verify-target-in-bfloat16", "rounds the target law to bfloat16",
          "vllm-project/vllm#8783", broken.TargetInBfloat16),
    Fault("verify-target-in-float16", "rounds the target law to float16",
          "vllm-project/vllm#8783", broken.TargetInFloat16),
    Fault("verify-mixes-draft-into-target", "verifies against 0.7 target + 0.3 draft",
          "transformers, assistant_ensemble_weight (arXiv 2604.07622)", broken.MixesDraftIntoTarget),
    Fault("verify-kept-after-rejection", "leaves the drafts behind a rejected one in the output",
          "lucidrains/speculative-decoding#3", broken.KeptAfterRejection),
    Fault("verify-count-one-more", "reports one accepted token too many after a rejection",
          "flashinfer-ai/flashinfer#879", broken.CountOneMore),
    Fault("verify-inputs-changed", "turns the caller's target law into the residual in place",
          "vllm-project/vllm-ascend#2881", broken.InputsChanged),
    Fault("verify-accepts-impossible-at-zero", "accepts a token of target probability 0 when the uniform is 0",
          "vllm-project/vllm-ascend#13766 (the uniform 0 accepts everything)", broken.AcceptsImpossibleAtZero),
    Fault("verify-inverse-cdf-overruns", "returns the token after the last when the uniform is close to 1",
          "vllm-project/vllm#45060", broken.InverseCdfOverruns),
    Fault("verify-block-stops-at-first", "block verification that stops at the first failed test",
          "arXiv 2403.10444, algorithm 2, read as if it were token-wise", broken.BlockStopsAtFirstFailure),
    Fault("verify-point-mass-keeps-draft", "replaces a rejected n-gram token by one from the whole target law",
          "SafeAILab/EAGLE#183", broken.PointMassKeepsDraft),
    Fault("verify-tree-siblings-against-target", "tests later siblings as if none had been rejected before",
          "SafeAILab/EAGLE#50", trees.SiblingsAgainstTarget),
    Fault("verify-tree-siblings-not-renormalised", "tests later siblings against an unnormalised residual",
          "SafeAILab/EAGLE#183", trees.SiblingsNotRenormalised),
)  # fmt: skip

CORRECT: tuple[CorrectSubject, ...] = (
    CorrectSubject("tokenwise-numpy", "token-wise rejection, one token at a time", correct.TokenwiseVerifier),
    CorrectSubject("tokenwise-numpy-vectorised", "all positions at once, inverse CDF", _plain(correct.vectorised)),
    CorrectSubject("tokenwise-numpy-race", "final token by an exponential race", _plain(correct.exponential_race)),
    CorrectSubject("tokenwise-numpy-gumbel", "log-probabilities and Gumbel-max", _plain(correct.gumbel_max)),
    CorrectSubject("tokenwise-python", "lists and random.Random", _plain(correct.plain_python)),
    CorrectSubject("tokenwise-torch-batched", "a batch in torch, races on every row", _torch("BatchedVerifier")),
    CorrectSubject("tokenwise-without-bonus", "no bonus token after full acceptance", _plain(correct.without_bonus)),
    CorrectSubject("accept-test-only", "only the accept tests, uniforms from outside",
                   _plain(correct.accept_test_only)),
    CorrectSubject("block-verification", "block verification (arXiv 2403.10444)", correct.BlockVerifier),
    CorrectSubject("point-mass", "drafts without a law, accepted with their target probability",
                   correct.PointMassVerifier),
    CorrectSubject("multi-candidate-tree", "recursive rejection over trees, with and without replacement",
                   trees.TreeVerifier),
    CorrectSubject("sampler-match", "samples the target and compares", _plain(correct.sampler_match)),
)  # fmt: skip
