"""The training loop: AdamW, warm-up and cosine decay, seeded batches, resumable at the step where it was left."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specverify.core.errors import UsageError
from specverify.core.randomness import Streams
from specverify.reference.weights import named_tensors

# What a loss says beside the number to minimise: figures for the progress line.
Figures = Mapping[str, float]
OnStep = Callable[[int, int, Figures], None]
_BETAS, _WEIGHT_DECAY, _LARGEST_GRADIENT = (0.9, 0.95), 0.05, 1.0
_WARM_UP, _LAST_RATE = 0.05, 0.05  # shares of the steps and of the rate
_SAVE_EVERY = 50


@dataclass(frozen=True)
class Settings:
    """How long and how fast. num_rows texts of length tokens a step; seed decides batches and first weights."""

    num_steps: int
    num_rows: int = 16
    length: int = 256
    learning_rate: float = 2e-3
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.num_steps, self.num_rows) < 1 or self.length < 16:
            raise UsageError(
                f"{self.num_steps} steps of {self.num_rows} rows of {self.length} tokens; give at least 1, 1 and 16"
            )

    def rate(self, step: int) -> float:
        """Learning rate of a step: up in a line, down in a half cosine."""
        warm_up = max(1, round(_WARM_UP * self.num_steps))
        if step < warm_up:
            return self.learning_rate * (step + 1) / warm_up
        done = (step - warm_up) / max(1, self.num_steps - warm_up)
        return self.learning_rate * (_LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * done)))


@dataclass(frozen=True)
class Windows:
    """Texts of equal length cut from one long text. Step n gives the same batch whenever it is asked for."""

    token_ids: Tensor
    settings: Settings

    def batch(self, step: int) -> Tensor:
        """[rows, length] token ids."""
        length, num = self.settings.length, self.token_ids.shape[0]
        if num < 2 * length:
            raise UsageError(f"the text has {num} tokens; training on {length} at a time takes more: name more text")
        generator = torch.Generator().manual_seed(Streams(self.settings.seed).integer("batch", step))
        starts = torch.randint(num - length + 1, (self.settings.num_rows, 1), generator=generator)
        return self.token_ids[starts + torch.arange(length)]


def train(
    weights: Any,
    loss: Callable[[Tensor], tuple[Tensor, Figures]],
    batch: Callable[[int], Tensor],
    settings: Settings,
    *,
    state_file: Path | None = None,
    resume: bool = False,
    purpose: str = "",
    on_step: OnStep | None = None,
) -> None:
    """Changes the trainable weights in place; loss must read these very tensors.

    state_file: where the state is kept every 50 steps and at the end; resume goes on from there. purpose: what is
    being trained, and for which target; another purpose or other settings are refused.
    Raises UsageError where the state is missing or of another training, and where the loss is no longer a number.
    """
    tensors = dict(named_tensors(weights))
    matrices = [tensor for tensor in tensors.values() if tensor.dim() > 1]
    vectors = [tensor for tensor in tensors.values() if tensor.dim() < 2]
    groups = [{"params": matrices, "weight_decay": _WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=_BETAS)
    about = {"purpose": purpose, **asdict(settings)}
    first = _restore(state_file, tensors, optimizer, about) if resume else 0
    for step in range(first, settings.num_steps):
        value, figures = loss(batch(step))
        reached = float(value.detach())
        if not math.isfinite(reached):
            raise UsageError(f"the loss of step {step} is {reached}; train with a smaller --learning-rate")
        for group in optimizer.param_groups:
            group["lr"] = settings.rate(step)
        optimizer.zero_grad(set_to_none=True)
        value.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(tensors.values(), _LARGEST_GRADIENT)
        optimizer.step()
        if state_file is not None and ((step + 1) % _SAVE_EVERY == 0 or step + 1 == settings.num_steps):
            _keep(state_file, {"about": about, "step": step + 1}, tensors, optimizer)
        if on_step is not None:
            on_step(step + 1, settings.num_steps, {"loss": reached, **figures})


def _keep(file: Path, state: dict[str, Any], tensors: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> None:
    state |= {"tensors": {name: t.detach() for name, t in tensors.items()}, "optimizer": optimizer.state_dict()}
    # Written aside and moved into place: a run that is stopped here can still be resumed.
    fresh = file.with_suffix(".part")
    torch.save(state, fresh)
    fresh.replace(file)


def _restore(
    file: Path | None, tensors: Mapping[str, Tensor], optimizer: torch.optim.Optimizer, about: Mapping[str, Any]
) -> int:
    if file is None or not file.is_file():
        raise UsageError(f"there is nothing to resume: {file} is not there; start without --resume")
    state = torch.load(file, weights_only=True)
    if state["about"] != about:
        changed = [f"{key} {state['about'].get(key)!r}, now {value!r}" for key, value in about.items()
                   if state["about"].get(key) != value]  # fmt: skip
        raise UsageError(f"{file} is of another training ({'; '.join(changed)}); give the same options, or start anew")
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(state["tensors"][name])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])
