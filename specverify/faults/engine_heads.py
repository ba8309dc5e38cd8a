"""Engine faults in drafters that read the target's hidden states: which state of which row, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from specverify.faults.engine_parts import OwnDrafterOnly, Planted, probe_engine
from specverify.faults.fault import CorrectSubject
from specverify.reference.batch import Batch
from specverify.reference.heads import EagleHead, MedusaHeads
from specverify.reference.proposers.base import Drafts, TargetStates
from specverify.reference.proposers.layer_skip import LayerSkipProposer

plant = Planted(proposer="eagle")


class _Reader:
    """What is known of the class behind a mixin."""

    model: EagleHead
    heads: MedusaHeads
    hidden: Tensor
    taps: Sequence[int]

    def read(self, batch: Batch, states: TargetStates) -> None:
        """Goes on with these states instead."""
        super().observe(batch, states)  # type: ignore[misc]


@plant("head-states-shifted", "ggml-org/llama.cpp#27342")
class _StatesShifted(_Reader):
    """Hidden states are shifted by one across a whole batch: each token reads the state before its own."""

    def observe(self, batch: Batch, states: TargetStates) -> None:
        taps = None if states.taps is None else _shifted(states.taps)
        self.read(batch, replace(states, hidden=_shifted(states.hidden), taps=taps))


def _shifted(states: Tensor) -> Tensor:
    """[rows, width, ...] moved by one place, the first of a row coming from the row before."""
    return states.flatten(0, 1).roll(1, dims=0).view(states.shape)


@plant("head-reads-last-state-for-taps", "sgl-project/sglang#21272")
class _NoTaps(_Reader):
    """The states of inner layers are not captured, and the last hidden state is taken for the fused feature."""

    def observe(self, batch: Batch, states: TargetStates) -> None:
        self.read(batch, replace(states, taps=None))


@plant("head-taps-one-layer-early", "vllm-project/vllm#43671")
class _TapsOneEarly(_Reader):
    """The states that a head reads are captured one layer before those it was made for."""

    def start(self, batch: Batch, capacity: int) -> None:
        super().start(batch, capacity)  # type: ignore[misc]
        self.taps = [max(0, tap - 1) for tap in getattr(self.model, "taps", ())]


@plant("head-keeps-own-states", "vllm-project/vllm#14649")
class _KeepsOwnStates(_Reader):
    """For accepted draft tokens the head goes on from what it computed itself, not from the target's states."""

    def observe(self, batch: Batch, states: TargetStates) -> None:
        features = self.model.features(states.hidden, states.taps)
        if min(states.first_positions) > 0:
            width = min(features.shape[1], self.hidden.shape[1])
            features = torch.cat([features[:, :1], self.hidden[:, 1:width], features[:, width:]], dim=1)
        self.read(batch, replace(states, hidden=features, taps=None))


@plant("head-drafts-from-placeholder", "warpfront/hipfire#483")
class _Placeholder(_Reader):
    """Behind the first draft token the head reads a placeholder instead of the token that was drafted."""

    def extend_nodes(self, batch: Batch, token_ids: Tensor, *others: Any) -> Tensor:
        logits: Tensor = super().extend_nodes(batch, torch.zeros_like(token_ids), *others)  # type: ignore[misc]
        return logits


@plant("head-positions-one-early", "sgl-project/sglang#25015")
class _PositionsOneEarly(_Reader):
    """A head computes each token at the position of the state that it reads, which is the token's before it."""

    def first_positions(self, batch: Batch, num_new: Sequence[int]) -> list[int]:
        right: list[int] = super().first_positions(batch, num_new)  # type: ignore[misc]
        return [max(0, position - 1) for position in right]


@plant("head-state-of-neighbour", "turbo-tan/llama.cpp-tq3#79", proposer="medusa")
class _FirstRowsState(_Reader):
    """All requests of a batch draft from the hidden state of the first."""

    def observe(self, batch: Batch, states: TargetStates) -> None:
        self.read(batch, states)
        self.hidden = self.hidden[:1].expand_as(self.hidden)


@plant("head-state-of-padding", "vllm-project/vllm#7505", proposer="medusa")
class _LastColumn(_Reader):
    """Where requests of a batch accept different numbers, short rows draft from the state behind their last one."""

    def observe(self, batch: Batch, states: TargetStates) -> None:
        self.read(batch, states)
        self.hidden = states.hidden[:, -1]


@plant("head-state-before-accepted", "mlc-ai/mlc-llm#2949", proposer="medusa-tree")
class _FirstColumn(_Reader):
    """After a step the heads read the state in front of the accepted draft tokens."""

    def observe(self, batch: Batch, states: TargetStates) -> None:
        self.read(batch, states)
        is_prefill = min(states.first_positions) == 0
        self.hidden = self.hidden if is_prefill else states.hidden[:, 0]


@plant("head-residual-missing", "vllm-project/vllm#14464", proposer="medusa")
class _NoResidual(_Reader):
    """What a head computes is not added to the hidden state that it reads."""

    def root_logits(self, batch: Batch) -> Tensor:
        super().root_logits(batch)  # type: ignore[misc]
        self.logits = self.heads.logits(self.hidden) - self.heads.target.logits(self.hidden)[:, None]
        return self.logits[:, 0]


@plant("layer-skip-rows-left", "antonellof/ferrox#48", proposer="layer-skip")
class _RowsLeft:
    """A row that the target's own layers wrote while drafting stays in its cache."""

    def propose(self, batch: Batch, num_draft_tokens: Sequence[int]) -> Drafts:
        drafts: Drafts = super().propose(batch, num_draft_tokens)  # type: ignore[misc]
        if isinstance(self, LayerSkipProposer):
            for row, num_rows in enumerate(list(self.cached.cache.lengths)):
                self.cached.cache.keep(row, num_rows + 1)
        return drafts


def _subject(name: str, proposer: str, sentence: str) -> CorrectSubject:
    def make() -> OwnDrafterOnly:
        return OwnDrafterOnly(probe_engine(name, proposer=proposer, every_option=False))

    return CorrectSubject(name, sentence, make)


FAULTS = plant.faults
CORRECT = (
    _subject("engine-eagle-tree", "eagle-tree", "Trees that a head draws from the target's hidden states."),
    _subject("engine-medusa-tree", "medusa-tree", "Trees of the likeliest tokens of heads that see no draft token."),
    _subject("engine-layer-skip", "layer-skip", "The target drafts with half of its layers, on its own cache."),
)
