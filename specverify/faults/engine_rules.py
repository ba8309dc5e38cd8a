"""Engine faults in laws and decisions: rows, sampling parameters, penalties, randomness, declared draft laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specverify.core.scenario import EOS_OPTION
from specverify.core.types import SamplingParams
from specverify.faults.engine_parts import Planted
from specverify.reference.batch import Batch
from specverify.reference.draws import DRAFT, draw_uniforms
from specverify.reference.engine import ReferenceEngine
from specverify.reference.proposers import Drafts
from specverify.reference.sampling import SamplingRows, TokenCounts
from specverify.reference.verifiers import RejectionVerifier

plant = Planted()

# Accepts every draft token: ratios are compared with uniforms below 1.
_CERTAIN = 2.0


@plant("bonus-row-off-by-one", "mlc-ai/mlc-llm#2949", only_option="")
class _BonusRowBefore(ReferenceEngine):
    """The bonus token is drawn from the row before the last draft token."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        law = super().target_law(batch, logits, drafts)
        return torch.cat([law[:, :-1], law[:, -2:-1]], dim=1) if law.shape[1] > 1 else law


@plant("verify-row-off-by-one", "ohdearquant/lattice#243")
class _RowsOneTooFar(RejectionVerifier):
    """Draft token i is verified against the law that follows it."""

    def rows_to_verify(self, target_probs: Tensor, width: int) -> Tensor:
        return target_probs[:, 1 : width + 1]


@plant("accept-all", "huggingface/transformers#28508")
class _AcceptAll(RejectionVerifier):
    """Every draft token is accepted."""

    def acceptance_ratios(self, drafts: Drafts, draft_probs: Tensor, target_probs: Tensor) -> Tensor:
        return torch.full_like(super().acceptance_ratios(drafts, draft_probs, target_probs), _CERTAIN)


@plant("accept-uniform-zero", "vllm-project/vllm-ascend#13766")
class _UniformIsZero(RejectionVerifier):
    """The uniform of the accept test is the constant 0."""

    def accept_uniforms(self, batch: Batch, drafts: Drafts) -> Tensor:
        return torch.zeros_like(super().accept_uniforms(batch, drafts))


@plant("accept-ratio-inflated", "huggingface/transformers#47932")
class _RatioTooLarge(RejectionVerifier):
    """The accept ratio is a tenth too large."""

    def acceptance_ratios(self, drafts: Drafts, draft_probs: Tensor, target_probs: Tensor) -> Tensor:
        return 1.1 * super().acceptance_ratios(drafts, draft_probs, target_probs)


@plant("lossy-mixture", "huggingface/transformers, assistant_ensemble_weight=0.7", only_option="temperature")
class MixesDraftIn(ReferenceEngine):
    """Verified positions follow seven tenths target, three tenths draft, and nobody says so."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        law = super().target_law(batch, logits, drafts)
        if drafts.probs is None or drafts.width == 0:
            return law
        mixed = 0.7 * law[:, :-1] + 0.3 * drafts.probs.to(law.dtype)
        if batch.has_constraints:
            # A lossy law keeps to a constraint all the same.
            mixed = mixed * self.allowed_along(batch, drafts)[:, :-1]
            mixed = mixed / mixed.sum(dim=-1, keepdim=True)
        is_warm = torch.tensor([not r.request.sampling.is_greedy for r in batch.running], device=law.device)
        is_mixed = drafts.is_real()[:, :, None] & is_warm[:, None, None]
        return torch.cat([torch.where(is_mixed, mixed, law[:, :-1]), law[:, -1:]], dim=1)


@plant("sampling-skipped-at-verify", "vllm-project/vllm#9834")
class _VerifiesUnprocessed(ReferenceEngine):
    """Temperature and filters shape the draft and the bonus token only."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        law = super().target_law(batch, logits, drafts)
        if batch.sampling.is_greedy:
            return law
        return torch.cat([logits[:, :-1].to(law.dtype).softmax(dim=-1), law[:, -1:]], dim=1)


@plant("sampling-filter-only-on-bonus", "vllm-project/vllm#42802", only_option="top_p")
class _FilterOnlyOnBonus(ReferenceEngine):
    """Top-p and min-p are skipped at verified positions."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        law = super().target_law(batch, logits, drafts)
        params = [_without_filters(running.request.sampling) for running in batch.running]
        unfiltered = SamplingRows(params, batch.device).law(logits)
        return torch.cat([unfiltered[:, :-1], law[:, -1:]], dim=1)


def _without_filters(sampling: SamplingParams) -> SamplingParams:
    return replace(sampling, top_p=1.0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0)


@plant("sampling-min-p-ignored", "vllm-project/vllm#42802 (min-p alone)", more_options=True)
class _MinPIgnored(ReferenceEngine):
    """Min-p is skipped at verified positions."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        params = [replace(running.request.sampling, min_p=0.0) for running in batch.running]
        counts = batch.token_counts()
        seen = None if counts is None else counts.along(drafts.token_ids)
        return SamplingRows(params, batch.device).law(logits, counts, seen)


@plant(
    "sampling-temperature-capped",
    "huggingface/transformers#47932 (above 1)",
    more_options=True,
    only_option="frequency_penalty",
)
class _TemperatureCapped(ReferenceEngine):
    """Temperatures above 1 are taken for 1 at verified positions."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        capped = [min(running.request.sampling.temperature, 1.0) for running in batch.running]
        params = [replace(r.request.sampling, temperature=t) for r, t in zip(batch.running, capped, strict=True)]
        counts = batch.token_counts()
        seen = None if counts is None else counts.along(drafts.token_ids)
        return SamplingRows(params, batch.device).law(logits, counts, seen)


@plant("sampling-penalties-ignored", "vllm-project/vllm#18902", only_option="repetition_penalty")
class _PenaltiesIgnored(ReferenceEngine):
    """With speculation on, penalties have no effect."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        return batch.sampling.law(logits)


@plant("penalties-see-rejected-drafts", "ml-explore/mlx-examples#1291", only_option="repetition_penalty")
class _PenaltiesSeeRejected(ReferenceEngine):
    """Penalties count draft tokens that were rejected."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        if not batch.sampling.has_penalties:
            return super().target_law(batch, logits, drafts)
        texts = []
        for running in batch.running:
            rejected = [token for step in running.steps for token in step.draft_token_ids[step.num_accepted :]]
            output = [*running.token_ids[running.prompt_length :], *rejected]
            texts.append((running.request.prompt_token_ids, output))
        counts = TokenCounts.of(texts, batch.vocab_size, batch.device)
        return batch.sampling.law(logits, counts, counts.along(drafts.token_ids))


@plant("sampling-greedy-when-speculating", "Pushkinist/rMLX#519")
class _GreedyWhenSpeculating(ReferenceEngine):
    """With speculation on, every request is decoded greedily."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        law = super().target_law(batch, logits, drafts)
        return torch.zeros_like(law).scatter_(-1, law.argmax(dim=-1, keepdim=True), 1.0)


@plant("target-law-softmaxed-twice", "vllm-project/vllm-ascend#6685", only_option=EOS_OPTION)
class _SoftmaxTwice(ReferenceEngine):
    """Target probabilities go through softmax again."""

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        law = super().target_law(batch, logits, drafts)
        return law if batch.sampling.is_greedy else law.softmax(dim=-1)


@plant("draft-law-raw-declared", "huggingface/transformers#47932")
class _DeclaresRawLaw:
    """Draft tokens are drawn after temperature and filters, and the plain softmax is declared."""

    def declared_law(self, batch: Batch, law: Tensor, logits: Tensor) -> Tensor:
        return law if batch.sampling.is_greedy else logits.to(law.dtype).softmax(dim=-1)


@plant("draft-law-argmax-sampled", "jaymody/speculative-sampling#3")
class _DraftsArgmax:
    """Draft tokens are argmaxes, and the soft law is declared."""

    def draw(self, batch: Batch, law: Tensor, is_wanted: Sequence[bool]) -> Tensor:
        return law.argmax(dim=-1)


@plant("draft-id-map-lost", "NVIDIA-NeMo/Automodel#2447")
class _IdMapLost:
    """Ids of the draft vocabulary are taken for ids of the target's, although they are numbered otherwise."""

    def draft_law(self, *arguments: Any) -> Tensor:
        law: Tensor = super().draft_law(*arguments)  # type: ignore[misc]
        return law.roll(1, dims=-1)


@plant("draft-id-argmax-unmapped", "vllm-project/vllm-ascend#16166")
class _DrawnIdUnmapped:
    """The declared law is in the target's vocabulary, and the drawn id still in the draft's."""

    def draw(self, batch: Batch, law: Tensor, is_wanted: Sequence[bool]) -> Tensor:
        drawn: Tensor = super().draw(batch, law, is_wanted)  # type: ignore[misc]
        return (drawn + 1) % law.shape[-1]


class _ReusesDraftUniforms(RejectionVerifier):
    """The accept test uses the very number by which the draft token was drawn."""

    def accept_uniforms(self, batch: Batch, drafts: Drafts) -> Tensor:
        own = super().accept_uniforms(batch, drafts)
        rows = [running.__dict__.get("draft_uniforms") or [] for running in batch.running]
        if not all(len(row) == drafts.width for row in rows) or not drafts.width:
            return own
        return torch.stack([torch.cat(row) for row in rows])


@plant("random-accept-reuses-draft", "flashinfer-ai/flashinfer#424", verifier=_ReusesDraftUniforms)
class _DrawsByUniform:
    """The accept test uses the uniform by which the draft token was drawn."""

    def propose(self, batch: Batch, num_draft_tokens: Sequence[int]) -> Drafts:
        for running in batch.running:
            running.__dict__["draft_uniforms"] = []
        drafts: Drafts = super().propose(batch, num_draft_tokens)  # type: ignore[misc]
        return drafts

    def draw(self, batch: Batch, law: Tensor, is_wanted: Sequence[bool]) -> Tensor:
        if batch.sampling.is_greedy:
            return law.argmax(dim=-1)
        uniforms = draw_uniforms(batch.streams, DRAFT, [1] * batch.num_rows)
        for running, value in zip(batch.running, uniforms.unbind(), strict=True):
            running.__dict__["draft_uniforms"].append(value)
        cumulative = law.cumsum(dim=-1, dtype=uniforms.dtype)
        return torch.searchsorted(cumulative, uniforms, right=True)[:, 0].clamp(max=law.shape[-1] - 1)


FAULTS = plant.faults
