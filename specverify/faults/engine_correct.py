"""Correct engines, usual and unusual: lossless rules with poor acceptance, block verification, odd proposers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from specverify.core.types import SamplingParams
from specverify.faults.engine_parts import DeclaredLossy, DeclaresDraftSampling, probe_engine
from specverify.faults.engine_rules import MixesDraftIn
from specverify.faults.fault import CorrectSubject
from specverify.laws.steps import block_quantities
from specverify.reference.batch import Batch, RunningRequest
from specverify.reference.draws import FINAL
from specverify.reference.engine import ReferenceEngine
from specverify.reference.proposers import Drafts
from specverify.reference.sampling import SamplingRows, TokenCounts
from specverify.reference.subject import Parts
from specverify.reference.verifiers import RejectionVerifier, Verdict
from specverify.reference.verifiers.base import accepted_prefix


class _PointMassVerifier(RejectionVerifier):
    """Throws the draft law away and accepts a draft token with its target probability: lossless, accepts less."""

    def draft_probs(self, drafts: Drafts, target_probs: Tensor) -> Tensor:
        return one_hot(drafts.token_ids, target_probs.shape[-1]).to(target_probs.dtype)


class _SamplerMatchVerifier(RejectionVerifier):
    """Samples the target at every position and goes on while the samples equal the draft: lossless, accepts less."""

    def verify(self, batch: Batch, drafts: Drafts, target_probs: Tensor) -> Verdict:
        # Only the positions that a row has: what a request draws must not depend on its neighbours' draft lengths.
        wanted = [[index <= num for num in drafts.num_tokens] for index in range(drafts.width + 1)]
        laws = zip(target_probs.unbind(dim=1), wanted, strict=True)
        samples = torch.stack([batch.draw(law, FINAL, is_wanted) for law, is_wanted in laws], dim=1)
        num_accepted = accepted_prefix((samples[:, : drafts.width] == drafts.token_ids) & drafts.is_real())
        return Verdict(num_accepted, samples.gather(1, num_accepted[:, None])[:, 0])


class _BlockVerifier(RejectionVerifier):
    """Keeps the longest draft prefix that passes, although a shorter one may have failed.

    Source: Sun et al. 2024, arXiv 2403.10444, algorithm 2.
    """

    def verify(self, batch: Batch, drafts: Drafts, target_probs: Tensor) -> Verdict:
        uniforms = self.accept_uniforms(batch, drafts)
        accepted, finals = [], []
        for row, num in enumerate(drafts.num_tokens):
            tokens = tuple(drafts.token_ids[row, :num].tolist())
            draft = self.draft_probs(drafts, target_probs)[row, :num]
            passes, laws = block_quantities(tokens, draft.numpy(), target_probs[row, : num + 1].numpy())
            length = num
            while length and not bool(uniforms[row, length - 1] < passes[length]):
                length -= 1
            accepted.append(length)
            finals.append(torch.from_numpy(laws[length]))
        return Verdict(torch.tensor(accepted), self.draw_final(batch, torch.stack(finals).to(target_probs)), uniforms)


class _OneDraftToken(ReferenceEngine):
    """Drafts one token, three tokens, one token: the length changes from step to step."""

    def num_to_propose(self, running: RunningRequest) -> int:
        wanted = 1 if len(running.steps) % 2 else self.num_draft_tokens
        return min(wanted, running.num_remaining)


class _NeverDraftsPastTheLimit(ReferenceEngine):
    """Leaves room for the bonus token, as some engines do; the last step may then draft nothing."""

    def num_to_propose(self, running: RunningRequest) -> int:
        return min(self.num_draft_tokens, running.num_remaining - 1)


class _DraftsItsBest:
    """Takes the draft model's likeliest token, and declares just that."""

    def draft_law(
        self, batch: Batch, logits: Tensor, counts: TokenCounts | None, index: int, num_draft_tokens: Sequence[int]
    ) -> Tensor:
        law: Tensor = super().draft_law(batch, logits, counts, index, num_draft_tokens)  # type: ignore[misc]
        return one_hot(law.argmax(dim=-1), law.shape[-1]).to(law.dtype)


class _DraftsLessUnderLoad(ReferenceEngine):
    """Drafts a single token while more than three requests run."""

    def drop_finished(self, batch: Batch, speculate: bool) -> Batch:
        left = super().drop_finished(batch, speculate)
        self.num_running = left.num_rows
        return left

    def num_to_propose(self, running: RunningRequest) -> int:
        return min(self.num_draft_tokens if self.num_running < 4 else 1, running.num_remaining)


class OwnSampling:
    """The draft model draws at temperature .6 from its three likeliest tokens, however a sampled request is sampled."""

    declared = SamplingParams(temperature=0.6, top_k=3)

    def draft_law(self, batch: Batch, logits: Tensor, counts: TokenCounts | None, index: int, num: int) -> Tensor:
        asked = [running.request.sampling for running in batch.running]
        own = SamplingRows([one if one.is_greedy else self.declared for one in asked], batch.device)
        return own.law(logits[:, None])[:, 0].to(logits.dtype)


def _subject(name: str, sentence: str, **options: Any) -> CorrectSubject:
    # Every option is enumerated with the usual engine and the least usual verifier, one option with the others.
    options.setdefault("every_option", name == "engine-draft-model")
    return CorrectSubject(name, sentence, lambda: probe_engine(name, **options))


def _honestly_lossy() -> DeclaredLossy:
    subject = probe_engine("engine-lossy-and-says-so", parts=Parts(engine_class=MixesDraftIn))
    return DeclaredLossy(subject, reason="mixes three tenths of the draft law in", distance=0.3)


def _own_sampling() -> DeclaresDraftSampling:
    subject = probe_engine("engine-draft-own-sampling", every_option=False, parts=Parts(proposer_mixin=OwnSampling))
    return DeclaresDraftSampling(subject, OwnSampling.declared)


CORRECT: tuple[CorrectSubject, ...] = (
    *(_subject(f"engine-{name}", f"The reference engine with the {name} proposer.", proposer=name)
      for name in ("draft-model", "n-gram", "sometimes-empty")),
    *(_subject(f"engine-{dtype}", f"The reference engine in {dtype}.", dtype=dtype)
      for dtype in ("float32", "bfloat16")),
    _subject("engine-point-mass", "Accepts a draft token with its target probability.",
             parts=Parts(make_verifier=_PointMassVerifier)),
    _subject("engine-sampler-match", "Samples the target and compares.",
             parts=Parts(make_verifier=_SamplerMatchVerifier)),
    _subject("engine-block-verification", "Verifies blocks rather than tokens.",
             parts=Parts(make_verifier=_BlockVerifier)),
    _subject("engine-changing-draft-length", "Drafts three tokens and one token in turn.",
             parts=Parts(engine_class=_OneDraftToken)),
    _subject("engine-leaves-room", "Never drafts past the length limit.",
             parts=Parts(engine_class=_NeverDraftsPastTheLimit)),
    _subject("engine-drafts-its-best", "Drafts the draft model's likeliest token, and declares just that.",
             parts=Parts(proposer_mixin=_DraftsItsBest)),
    _subject("engine-drafts-by-load", "Drafts a single token while more than three requests run.",
             parts=Parts(engine_class=_DraftsLessUnderLoad)),
    CorrectSubject("engine-draft-own-sampling", "Drafts at a temperature and top-k of its own, and says so.",
                   _own_sampling),
    CorrectSubject("engine-lossy-and-says-so", "Lossy by design, and within the distance it declares.",
                   _honestly_lossy),
)  # fmt: skip
