"""Planted bugs of verify functions, each after a public report or a named slip, and correct ones of every style."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from specverify.faults import verify_correct as correct
from specverify.faults import verify_halves as halves
from specverify.faults.fault import CorrectSubject, Fault
from specverify.faults.verify_correct import Law, Rows, TokenwiseVerifier
from specverify.faults.verify_torch import BatchedVerifier, NoiseReused
from specverify.laws import wrong_rules as wrong
from specverify.laws.residual import residual

_FORMULA = "a slip in the formula of arXiv 2211.17192, section 2.3; "
_SWAPPED_NAMES = _FORMULA + "pytorch-labs/gpt-fast names the two laws the other way round than the paper"


def _fault(
    name: str, sentence: str, report: str, base: type = TokenwiseVerifier, **methods: Callable[..., Any]
) -> Fault:
    """A fault whose subject is a correct verifier with these methods replaced."""
    return Fault(name, sentence, report, type(name, (base,), methods))


def _ratio(over: float, under: float) -> float:
    return float(over / under) if under > 0.0 else np.inf


def _right_ratio(draft: Rows, target: Rows, i: int, token: int) -> float:
    return _ratio(target[i, token], draft[i, token])


def _right_residual(draft: Rows, target: Rows, i: int) -> Law:
    """The residual; the target row where a wrong law leaves none."""
    return _or_row(np.maximum(target[i] - draft[i], 0.0), target[i])


def _or_row(mass: Law, row: Law) -> Law:
    return mass if mass.sum() > 0.0 else row


def _fault_of_laws(name: str, sentence: str, report: str, laws: Callable[[Rows, Rows], tuple[Rows, Rows]]) -> Fault:
    """A fault that runs the right rule on other laws than it was given."""
    return _fault(
        name, sentence, report, laws=lambda self, draft, target: laws(draft, target),
        accept_ratio=lambda self, draft, target, i, token: _right_ratio(draft, target, i, token),
        residual_mass=lambda self, draft, target, i, token: _right_residual(draft, target, i),
    )  # fmt: skip


def _without_token(law: Law, token: int) -> Law:
    return _or_row(np.where(np.arange(len(law)) == token, 0.0, law), law)


def _next_residual(draft: Rows, target: Rows, i: int) -> Law:
    return _or_row(np.maximum(target[i + 1] - draft[min(i + 1, len(draft) - 1)], 0.0), target[i + 1])


def _shared_uniform(self: Any, rng: np.random.Generator, position: int) -> float:
    if position == 0:
        self.shared = rng.random()
    return float(self.shared)


def _residual_in_place(self: Any, draft: Rows, target: Rows, i: int, token: int) -> Law:
    target[i] -= draft[i]
    mass: Law = np.maximum(target[i], 0.0, out=target[i])
    return mass


def _residual_or_crash(self: Any, draft: Rows, target: Rows, i: int, token: int) -> Law:
    mass: Law = np.maximum(target[i] - draft[i], 0.0)
    if not mass.any():
        raise ValueError("probabilities sum to 0")
    return mass


def _unguarded_inverse_cdf(self: Any, mass: Law, rng: np.random.Generator) -> int:
    """In float32 the running sum may end below 1, and then the token after the last wins."""
    cumulative = np.cumsum((mass / mass.sum()).astype(np.float32) * np.float32(1.0 - 2e-7))
    return int(np.searchsorted(cumulative, rng.random(), side="right"))


FAULTS: tuple[Fault, ...] = (
    _fault("verify-ratio-inverted", "accepts with draft / target instead of target / draft", _SWAPPED_NAMES,
           accept_ratio=lambda self, draft, target, i, token: _ratio(draft[i, token], target[i, token])),
    _fault("verify-accept-row-early", "tests each draft token against the target row of the next position, and crashes "
           "where it so rejects a token that has no residual", "ohdearquant/lattice#243",
           accept_ratio=lambda self, draft, target, i, token: _ratio(target[i + 1, token], draft[i, token]),
           residual_mass=_residual_or_crash),
    _fault("verify-always-accepts", "keeps every draft token", "huggingface/transformers#28508",
           accept_ratio=lambda self, draft, target, i, token: np.inf),
    _fault("verify-uniform-is-zero", "compares with the uniform 0 instead of a drawn one",
           "vllm-project/vllm-ascend#13766", uniform=lambda self, rng, position: 0.0),
    _fault("verify-counts-every-flag", "counts accepted drafts behind a rejected one",
           "huggingface/transformers#28508", BatchedVerifier,
           num_accepted=lambda self, flags: flags.long().sum(dim=1)),
    _fault("verify-first-draft-unchecked", "commits the first draft token without a test", "ohdearquant/lattice#243",
           accept_ratio=lambda self, draft, target, i, token: _right_ratio(draft, target, i, token) if i else np.inf),
    _fault("verify-accepts-slightly-more", "accepts with 1.02 times the ratio",
           "NVIDIA/TensorRT-LLM#12063 (relaxed acceptance)",
           accept_ratio=lambda self, draft, target, i, token: 1.02 * _right_ratio(draft, target, i, token)),
    _fault("verify-resamples-from-target", "replaces a rejected token by one from the target law itself",
           "SafeAILab/EAGLE#183 (renormalised without removing what was tried)",
           residual_mass=lambda self, draft, target, i, token: target[i]),
    _fault("verify-rejected-token-excluded", "replaces a rejected token by any other, by the target law",
           "vllm-project/vllm-ascend#2881",
           residual_mass=lambda self, draft, target, i, token: _without_token(target[i], token)),
    _fault("verify-residual-not-clipped", "takes |target - draft| as the residual",
           _FORMULA + "flashinfer-ai/flashinfer#425",
           residual_mass=lambda self, draft, target, i, token: np.abs(target[i] - draft[i])),
    _fault("verify-residual-inverted", "takes max(draft - target, 0) as the residual", _SWAPPED_NAMES,
           residual_mass=lambda self, draft, target, i, token: np.maximum(draft[i] - target[i], 0.0)),
    _fault("verify-residual-floor", "clamps the residual from below at 0.01",
           "vllm-project/vllm-ascend#14116 (a guard value that is a likely one)",
           residual_mass=lambda self, draft, target, i, token: np.maximum(target[i] - draft[i], 1e-2)),
    _fault("verify-residual-of-wrong-row", "takes the residual of the next position", "mlc-ai/mlc-llm#2949",
           residual_mass=lambda self, draft, target, i, token: _next_residual(draft, target, i)),
    _fault("verify-residual-argmax", "replaces a rejected token by the likeliest residual token",
           "EricLBuehler/mistral.rs#2424",
           residual_token=lambda self, draft, target, i, token, uniform, rng: int(np.argmax(target[i] - draft[i]))),
    _fault("verify-uniform-reused", "draws the residual token with the uniform that rejected the draft",
           "flashinfer-ai/flashinfer#424",
           residual_token=lambda self, draft, target, i, token, uniform, rng: int(
               np.searchsorted(np.cumsum(residual(draft[i], target[i]))[:-1], uniform, side="right"))),
    _fault("verify-uniform-shared-by-positions", "uses one uniform for all positions of a step",
           "flashinfer-ai/flashinfer#424", uniform=_shared_uniform),
    Fault("verify-noise-reused", "decides the accept tests with the noise that draws the final token",
          "flashinfer-ai/flashinfer#424", NoiseReused),
    Fault("verify-uniform-in-bfloat16", "draws its uniforms in bfloat16, the type of the laws",
          "vllm-project/vllm#6034", halves.DrawnInHalf, {"dtype": "bfloat16"}),
    Fault("verify-uniform-cast-to-bfloat16", "casts its float32 uniforms to bfloat16, where one in 512 becomes 1",
          "vllm-project/vllm#13933 (uniforms compared with <=)", halves.CastToHalf),
    _fault("verify-uniforms-shared-by-rows", "uses the same uniforms for every row of a batch",
           "NVIDIA/TensorRT-LLM#17599", BatchedVerifier,
           uniforms=lambda self, rows, k, like, generator: torch.rand(
               (1, k), dtype=like.dtype, generator=generator).expand(rows, k)),
    _fault("verify-bonus-of-last-row", "draws the bonus token from the row of the last draft token",
           "ohdearquant/lattice#243 (one row off)", bonus_token=lambda self, target, rng: self.draw(target[-2], rng)),
    _fault("verify-bonus-argmax", "takes the likeliest bonus token", "EricLBuehler/mistral.rs#2424",
           bonus_token=lambda self, target, rng: int(np.argmax(target[-1]))),
    _fault_of_laws("verify-target-rows-shifted", "compares draft token i with the target law after it",
                   "ohdearquant/lattice#243",
                   lambda draft, target: (draft, np.concatenate([target[1:], target[-1:]]))),
    _fault_of_laws("verify-draft-rows-shifted", "divides by the draft law of the position before",
                   "vllm-project/vllm#40149 (draft laws of other rows)",
                   lambda draft, target: (np.concatenate([draft[:1], draft[:-1]]), target)),
    _fault("verify-rows-mixed-up", "takes the final token's laws from another row of the batch",
           "vllm-project/vllm#14645", BatchedVerifier,
           row_index=lambda self, accepted: torch.arange(len(accepted)).flip(0)),
    _fault_of_laws("verify-draft-temperature", "is told a draft law at another temperature than it uses",
                   "huggingface/transformers#47932",
                   lambda draft, target: (wrong.softened(draft, 1.1), target)),
    _fault_of_laws("verify-top-p-on-target-only", "cuts the target law to its nucleus and not the draft law",
                   "vllm-project/vllm#9834",
                   lambda draft, target: (draft, wrong.nucleus(target, 0.95))),
    _fault_of_laws("verify-softmax-twice", "applies softmax to target probabilities",
                   "vllm-project/vllm-ascend#6685",
                   lambda draft, target: (draft, wrong.softmax_of_probabilities(target))),
    _fault_of_laws("verify-greedy-for-all", "takes the target's argmax although it should sample",
                   "Pushkinist/rMLX#519",
                   lambda draft, target: (draft, wrong.one_hot(target))),
    _fault_of_laws("verify-target-in-bfloat16", "rounds the target law to bfloat16",
                   "vllm-project/vllm#8783", lambda draft, target: (draft, wrong.bfloat16_rounded(target))),
    _fault_of_laws("verify-target-in-float16", "rounds the target law to float16", "vllm-project/vllm#8783",
                   lambda draft, target: (draft, target.astype(np.float16).astype(np.float64))),
    _fault_of_laws("verify-mixes-draft-into-target", "verifies against 0.7 target + 0.3 draft",
                   "transformers, assistant_ensemble_weight (arXiv 2604.07622)",
                   lambda draft, target: (draft, np.concatenate([0.7 * target[:-1] + 0.3 * draft, target[-1:]]))),
    # Without a count nobody can tell where the drafts that should have gone begin.
    _fault("verify-kept-after-rejection", "leaves the drafts behind a rejected one in the output",
           "lucidrains/speculative-decoding#3",
           answer=lambda self, drafts, tokens, accepted: [*tokens, *drafts[accepted + 1 :].tolist()]),
    _fault("verify-count-one-more", "reports one accepted token too many after a rejection",
           "flashinfer-ai/flashinfer#879",
           answer=lambda self, drafts, tokens, accepted: {
               "token_ids": tokens, "num_accepted": accepted + int(0 < accepted < len(drafts))}),
    _fault("verify-inputs-changed", "turns the caller's target law into the residual in place",
           "vllm-project/vllm-ascend#2881", residual_mass=_residual_in_place),
    # At most the ratio is taken for below it, so a token of probability 0 passes when the float32 uniform is 0.
    _fault("verify-accepts-impossible-at-zero", "accepts a token of target probability 0 when the uniform is 0",
           "vllm-project/vllm-ascend#13766 (the uniform 0 accepts everything)",
           uniform=lambda self, rng, position: float(rng.random(dtype=np.float32)),
           accept_ratio=lambda self, draft, target, i, token: float(
               np.nextafter(_right_ratio(draft, target, i, token), np.inf))),
    _fault("verify-inverse-cdf-overruns", "returns the token after the last when the uniform is close to 1",
           "vllm-project/vllm#45060", draw=_unguarded_inverse_cdf),
    _fault("verify-block-stops-at-first", "block verification that stops at the first failed test",
           "arXiv 2403.10444, algorithm 2, read as if it were token-wise", correct.BlockVerifier,
           stops_at_first_failure=lambda self: True),
    _fault("verify-point-mass-keeps-draft", "replaces a rejected n-gram token by one from the whole target law",
           "SafeAILab/EAGLE#183", correct.PointMassVerifier, others=lambda self, law, token: law),
    _fault("verify-tree-siblings-against-target", "tests later siblings as if none had been rejected before",
           "SafeAILab/EAGLE#50", correct.TreeVerifier, tested=lambda self, law, target: target),
    _fault("verify-tree-siblings-not-renormalised", "tests later siblings against an unnormalised residual",
           "SafeAILab/EAGLE#183", correct.TreeVerifier,
           after_rejection=lambda self, law, draft, target: _or_row(np.maximum(law - draft, 0.0), target)),
)  # fmt: skip


def _plain(name: str, sentence: str, function: Callable[..., Any]) -> CorrectSubject:
    return CorrectSubject(name, sentence, lambda: function)


CORRECT: tuple[CorrectSubject, ...] = (
    CorrectSubject("tokenwise-numpy", "token-wise rejection, one token at a time", TokenwiseVerifier),
    _plain("tokenwise-numpy-vectorised", "all positions at once, inverse CDF", correct.vectorised),
    _plain("tokenwise-numpy-race", "final token by an exponential race", correct.exponential_race),
    _plain("tokenwise-numpy-gumbel", "log-probabilities and Gumbel-max", correct.gumbel_max),
    _plain("tokenwise-python", "lists and random.Random", correct.plain_python),
    CorrectSubject("tokenwise-torch-batched", "a batch in torch, races on every row", BatchedVerifier),
    CorrectSubject("tokenwise-half-rows", "laws in float16, random numbers in float64; no bonus token",
                   halves.HalfRowsWithoutBonus, {"dtype": "float16"}),
    _plain("accept-test-only", "only the accept tests, uniforms from outside", correct.accept_test_only),
    CorrectSubject("block-verification", "block verification (arXiv 2403.10444)", correct.BlockVerifier),
    CorrectSubject("point-mass", "drafts without a law, accepted with their target probability",
                   correct.PointMassVerifier),
    CorrectSubject("multi-candidate-tree", "recursive rejection over trees, with and without replacement",
                   correct.TreeVerifier),
    _plain("sampler-match", "samples the target and compares", correct.sampler_match),
)  # fmt: skip
