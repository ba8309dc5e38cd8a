"""One training from start to end: what is asked for, for which target, from which text, into which folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specverify.core.errors import UsageError
from specverify.reference.config import ModelConfig, RopeConfig
from specverify.reference.head_files import Head, target_digest, write_head
from specverify.reference.heads import EagleHead, MedusaHeads, untrained_eagle, untrained_medusa
from specverify.reference.model import Model, Weights
from specverify.reference.training.loop import OnStep, Settings, Windows, train
from specverify.reference.training.losses import draft_loss, eagle_loss, medusa_loss
from specverify.reference.weights import random_weights, rounded, trainable, write_checkpoint, write_json

KINDS = ("draft", "eagle", "medusa")
STATE_FILE = "training.pt"


@dataclass(frozen=True)
class Plan:
    """What to train.

    temperature: of both laws that are compared. num_layers, hidden_size: of a draft; half the target's width unless
    given. is_fused: whether an EAGLE head reads several of the target's streams; num_unrolled: draft tokens in a row
    that it is trained on. num_heads: of Medusa.
    """

    kind: str
    temperature: float = 1.0
    num_layers: int = 1
    hidden_size: int | None = None
    is_fused: bool = True
    num_unrolled: int = 3
    num_heads: int = 4

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"{self.kind!r} cannot be trained; choose from {', '.join(KINDS)}")
        if self.temperature <= 0.0 or min(self.num_layers, self.num_unrolled, self.num_heads) < 1:
            raise UsageError("give a temperature above 0, and at least 1 layer, 1 unrolled token and 1 head")


def train_for(
    target: Model,
    plan: Plan,
    settings: Settings,
    batch: Tensor | Callable[[int], Tensor],
    out: Path,
    *,
    tokenizer_file: Path | None = None,
    stored: torch.dtype = torch.float32,
    start: Weights | None = None,
    resume: bool = False,
    on_step: OnStep | None = None,
) -> Model | Head:
    """Trains and writes a draft or a head, and returns it with the values that are in the file.

    batch: the text as token ids [n], or what gives the batch of a step. start: first weights of a draft, random ones
    unless given. A training that was stopped is resumed from its folder. Raises UsageError as `train` does, and for a
    target that is not float32.
    """
    if target.dtype != torch.float32:
        raise UsageError(f"the target is {target.dtype}; load it as float32 to train for it")
    out.mkdir(parents=True, exist_ok=True)
    if isinstance(batch, Tensor):
        batch = Windows(batch, settings).batch
    made, own, loss = _untrained(target, plan, settings.seed, start)
    purpose = f"{plan} for {target_digest(target)[:16]}"
    state = out / STATE_FILE
    train(own, loss, batch, settings, state_file=state, resume=resume, purpose=purpose, on_step=on_step)
    final = rounded(own, stored)
    notes = {"plan": asdict(plan), "settings": asdict(settings), "torch": str(torch.__version__)}
    result: Model | Head
    if isinstance(made, EagleHead):
        result = EagleHead(target, final, made.taps)
        write_head(out, result, dtype=stored, notes=notes)
    elif isinstance(made, MedusaHeads):
        result = MedusaHeads(target, final)
        write_head(out, result, dtype=stored, notes=notes)
    else:
        result = Model(made.config, final)
        write_checkpoint(out, result, tokenizer_file=tokenizer_file, dtype=stored)
        write_json(out / "training.json", {"kind": plan.kind, "target_sha256": target_digest(target), "notes": notes})
    state.unlink()
    return result


def _untrained(target: Model, plan: Plan, seed: int, start: Weights | None) -> tuple[Model | Head, Any, Any]:
    """(what is trained, its own weights as they will change, the loss that reads them)."""
    if plan.kind == "draft":
        config = draft_config(target.config, num_layers=plan.num_layers, hidden_size=plan.hidden_size)
        weights = trainable(start or random_weights(config, torch.Generator().manual_seed(seed)))
        draft = Model(config, weights)
        return draft, weights, draft_loss(draft, target, temperature=plan.temperature)
    if plan.kind == "eagle":
        template = untrained_eagle(target, seed=seed, taps=None if plan.is_fused else ())
        head = EagleHead(target, trainable(template.own), template.taps)
        return head, head.own, eagle_loss(head, num_unrolled=plan.num_unrolled, temperature=plan.temperature)
    heads = MedusaHeads(target, trainable(untrained_medusa(target, seed=seed, num_heads=plan.num_heads).own))
    return heads, heads.own, medusa_loss(heads, temperature=plan.temperature)


def draft_config(target: ModelConfig, *, num_layers: int, hidden_size: int | None) -> ModelConfig:
    """A narrower and shallower decoder with the target's vocabulary, head size and end tokens."""
    num_heads = max(1, (hidden_size or target.hidden_size // 2) // target.head_dim)
    hidden = num_heads * target.head_dim
    if hidden_size is not None and hidden != hidden_size:
        raise UsageError(f"hidden size {hidden_size} is no multiple of the target's head size {target.head_dim}")
    return replace(
        target,
        hidden_size=hidden,
        intermediate_size=16 * math.ceil(8 * hidden / 3 / 16),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=math.gcd(num_heads, target.num_kv_heads),
        tie_word_embeddings=True,
        rope=RopeConfig(theta=target.rope.theta, original_max_positions=target.max_positions),
    )


def encode(texts: Iterable[str], tokenizer: Any, end: int | None, *, at_most: int) -> list[int]:
    """Token ids of the texts, each followed by the end token, until there are enough."""
    token_ids: list[int] = []
    for text in texts:
        token_ids += tokenizer.encode(text, add_special_tokens=False).ids
        token_ids += [] if end is None else [end]
        if len(token_ids) >= at_most:
            break
    return token_ids
