"""The reference engine as a subject under test: models loaded, a proposer by name, and everything it can show.

Planted bugs are made here too: hand over a subclass of the engine, a mixin for every proposer that runs a draft
model, or another verifier, and the result is the same subject with that one part broken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from specverify.core.capabilities import Capability
from specverify.core.errors import UsageError
from specverify.core.scenario import Scenario
from specverify.core.types import Request, Trace
from specverify.reference.abilities import drafting_capabilities
from specverify.reference.cached_model import prefill_rows, score
from specverify.reference.data_parallel import generate_in_shares, num_shares
from specverify.reference.draft_scores import draft_scores
from specverify.reference.engine import ReferenceEngine
from specverify.reference.head_files import Head
from specverify.reference.heads import EagleHead
from specverify.reference.model import Model
from specverify.reference.parts import PROPOSERS, SOUND, TREES, Parts, make_proposer
from specverify.reference.proposers import Growth, Proposer
from specverify.reference.recorder import to_numpy
from specverify.reference.scenarios import probe_scenarios
from specverify.reference.threads import threads
from specverify.reference.verifiers.lossy import LossyRule, lossy_rule, num_siblings

__all__ = ["PROPOSERS", "TREES", "Parts", "ReferenceSubject", "reference_subject"]


@dataclass(frozen=True, eq=False)
class ReferenceSubject:
    """An engine of core.types: see there for what the methods return.

    target, draft: the models; without a draft, "draft-model" is refused and "sometimes-empty" drafts with the target.
    record_probs, record_kv_rows: whether steps hold laws and KV rows; quiet() is the subject without both.
    record_log_probs: whether traces hold the log-probabilities of their tokens; as record_probs unless given.
    own_scenarios: how it is to be asked; on a probe pair the standard scenarios, else none.
    growth: how the trees of a "tree" proposer grow, or the drafts of a head, instead of the standard way of that name.
    heads: by kind, "eagle" and "medusa": a head, or its folder; on a probe pair an untrained one where there is none.
    draft_layers: layers that "layer-skip" runs, or how many of the first ones; the first half unless given.
    lossy: accepts more than it should, by this rule ("typical", "lenient"), and declares that it does.
    prompts, max_new_tokens, batch_size: what the standard runs use. max_batch_size: the most requests of one call.
    """

    target: Model
    draft: Model | None = None
    proposer: str = "draft-model"
    name: str = ""
    num_draft_tokens: int = 3
    parts: Parts = SOUND
    record_probs: bool = True
    record_kv_rows: bool = True
    record_log_probs: bool | None = None
    checkpoint: Any = None
    tokenizers: Mapping[str, Any] | None = None
    own_scenarios: Sequence[Scenario] | None = None
    prompts: Sequence[tuple[int, ...]] | None = None
    max_new_tokens: int = 24
    batch_size: int = 64
    max_batch_size: int = 1024
    num_threads: int | None = None
    growth: Growth | None = None
    heads: Mapping[str, Head | str | Path] = field(default_factory=dict)
    draft_layers: int | Sequence[int] | None = None
    lossy: LossyRule | str | None = None
    engine: ReferenceEngine = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", f"reference {self.proposer}")
        if self.proposer not in PROPOSERS:
            raise UsageError(f"proposer {self.proposer!r} is unknown; choose from {', '.join(PROPOSERS)}")
        # Made now, so that wrong arguments are reported by the call that gave them.
        object.__setattr__(self, "engine", self._make_engine())

    @property
    def capabilities(self) -> frozenset[Capability]:
        shown = set(drafting_capabilities(self.proposer, has_probs=self.record_probs))
        if self.record_kv_rows:
            shown.add(Capability.KV_ROWS)
        if self.engine.recorder.record_log_probs:
            shown.add(Capability.LOGPROBS)
        if self.lossy_by_design:
            shown.add(Capability.LOSSY_BY_DESIGN)
        if self.checkpoint is not None:
            shown.add(Capability.LOAD_CHECKPOINT)
        if self.tokenizers is not None:
            shown.add(Capability.TOKENIZER)
        return frozenset(shown)

    @property
    def dtype(self) -> str:
        return str(self.target.dtype).removeprefix("torch.")

    @property
    def vocab_size(self) -> int:
        return self.target.config.vocab_size

    @property
    def scenarios(self) -> Sequence[Scenario]:
        """The situations it is to be judged in; prompt lookup gets prompts in which it finds something."""
        if self.own_scenarios is not None or self.checkpoint is None:
            return self.own_scenarios or ()
        has_trees = Capability.DRAFT_TREE in self.capabilities
        return probe_scenarios(self.checkpoint, has_trees=has_trees, looks_up=self.proposer == "n-gram")

    @property
    def lossy_by_design(self) -> str:
        """Why it is lossy, as declared; empty where it is not meant to be."""
        return "" if self.lossy is None else lossy_rule(self.lossy).reason

    @property
    def lossy_distance(self) -> float | None:
        """The largest total variation per token that the lossy rule can cause, where one is known."""
        if self.lossy is None:
            return None
        return lossy_rule(self.lossy).distance(num_siblings(getattr(self.engine.proposer, "growth", None)))

    def generate(self, requests: Sequence[Request], *, speculate: bool) -> list[Trace]:
        with threads(self.num_threads):
            shares = num_shares(requests, self.target.device) if self.parts is SOUND else 1
            if shares > 1:
                return generate_in_shares(self._make_engine, requests, shares, speculate=speculate)
            return self.engine.generate(requests, speculate=speculate)

    @torch.inference_mode()
    def score(self, prompt_token_ids: Sequence[int], token_ids: Sequence[int]) -> NDArray[Any]:
        """Log-probabilities [tokens, vocab] of the target at temperature 1, before each of token_ids."""
        return to_numpy(score(self.target, prompt_token_ids, token_ids))

    @torch.inference_mode()
    def prefill_kv_rows(self, model: str, token_ids: Sequence[int]) -> NDArray[np.floating[Any]]:
        """KV rows [layers, 2, tokens, kv_heads, head_dim] of a fresh prefill; model is "target" or "draft".

        "draft" is the model that the proposer runs, which for the standard drafters is the target.
        """
        if model == "target":
            return to_numpy(prefill_rows(self.target, token_ids))
        drafting = getattr(self.engine.proposer, "model", None)
        if model != "draft" or drafting is None:
            raise UsageError(f"{self.name} has no {model!r} model; ask for 'target', or 'draft' where one is run")
        if isinstance(drafting, EagleHead):
            return to_numpy(drafting.prefill_rows(token_ids))
        return to_numpy(prefill_rows(drafting, token_ids))

    @torch.inference_mode()
    def draft_scores(self, token_ids: Sequence[int], draft_token_ids: Sequence[int]) -> NDArray[Any]:
        """Log-probabilities [draft + 1, vocab] of the drafter, computed afresh by a proposer without planted bugs."""
        fresh = self._make_proposer(SOUND)
        return to_numpy(draft_scores(self.target, fresh, token_ids, draft_token_ids))

    def with_proposer(self, name: str) -> ReferenceSubject:
        """The same engine, faults included, with another of the proposers."""
        return replace(self, proposer=name, name=f"{self.name} ({name} drafter)")

    def quiet(self) -> ReferenceSubject:
        """The same engine without recording laws, KV rows and log-probabilities: for sampling many tokens."""
        return replace(self, record_probs=False, record_kv_rows=False, record_log_probs=False)

    def reset(self) -> None:
        """Nothing to do: no state outlives a generate call."""

    def _make_engine(self) -> ReferenceEngine:
        make_verifier = self.parts.make_verifier
        if make_verifier is None and self.lossy is not None:
            make_verifier = lossy_rule(self.lossy).make_verifier
        return self.parts.engine_class(
            self.target,
            self._make_proposer(self.parts),
            verifier=None if make_verifier is None else make_verifier(),
            num_draft_tokens=self.num_draft_tokens,
            record_probs=self.record_probs,
            record_kv_rows=self.record_kv_rows,
            record_log_probs=self.record_log_probs,
        )

    def _make_proposer(self, parts: Parts) -> Proposer:
        return make_proposer(
            self.proposer,
            parts,
            target=self.target,
            draft=self.draft,
            num_draft_tokens=self.num_draft_tokens,
            growth=self.growth,
            heads=self.heads,
            draft_layers=self.draft_layers,
            may_be_untrained=self.checkpoint is not None,
        )


def reference_subject(
    probe: Any = None,
    *,
    target: Model | str | Path | None = None,
    draft: Model | str | Path | None = None,
    proposer: str = "draft-model",
    num_draft_tokens: int = 3,
    dtype: str = "float64",
    device: str = "auto",
    parts: Parts = SOUND,
    quantize: str | Mapping[str, str] | None = None,
    **options: Any,
) -> ReferenceSubject:
    """The reference engine on a probe pair, on two checkpoint directories (or .gguf files), or on models.

    probe: a ProbePair or the directory of one; the default pair where neither probe nor target is given.
    quantize: "int8" for target and draft, or a mapping such as {"draft": "int8"}. On a probe pair the laws that are
      then known are those of the rounded weights.
    options: further fields of ReferenceSubject.
    """
    from specverify.reference.loading import models_and_probe, read_tokenizers
    from specverify.reference.quantize import modes_by_model, quantized
    from specverify.reference.quantized_probe import quantized_probe

    target_model, draft_model, pair = models_and_probe(probe, target, draft, dtype=dtype, device=device)
    modes = modes_by_model(quantize)
    if "target" in modes:
        target_model = quantized(target_model, modes["target"])
    if "draft" in modes and draft_model is not None:
        draft_model = quantized(draft_model, modes["draft"])
    if pair is not None:
        pair = quantized_probe(pair, tuple(modes)) if modes else pair
        target, draft = pair.target_dir, pair.draft_dir
        options.setdefault("num_threads", 1)
    options.setdefault("tokenizers", read_tokenizers({"target": target, "draft": draft}))
    return ReferenceSubject(
        target=target_model,
        draft=draft_model,
        proposer=proposer,
        num_draft_tokens=num_draft_tokens,
        parts=parts,
        checkpoint=pair,
        **options,
    )
