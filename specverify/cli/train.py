"""`specverify train`: trains a draft model, an EAGLE head or Medusa heads for one target, and says what it is worth."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from specverify.core.errors import UsageError
from specverify.reference.config import ModelConfig
from specverify.reference.heads import EagleHead, MedusaHeads
from specverify.reference.loading import load_shared
from specverify.reference.model import Model
from specverify.reference.subject import reference_subject
from specverify.reference.training.corpus import Corpus, read_corpus
from specverify.reference.training.loop import Figures, Settings
from specverify.reference.training.measure import NUM_PROMPTS, NUM_TOKENS, PROMPT_LENGTH, greedy_acceptance, windows
from specverify.reference.training.run import Plan, encode, train_for

_NUM_DRAFT_TOKENS = 4


@dataclass(frozen=True)
class TrainOptions:
    """The command line of `specverify train`, parsed."""

    plan: Plan
    settings: Settings
    target: str
    text: Sequence[Path]
    out: Path
    resume: bool


def run_train(given: TrainOptions) -> None:
    """Trains, writes and measures; progress on a terminal, a line every twentieth of the way elsewhere."""
    import torch

    console = Console(highlight=False, soft_wrap=True)
    source, tokenizer_file = target_files(given.target)
    target = load_shared(source, "float32", "cpu")
    corpus = read_corpus(given.text)
    train_ids, held_out_ids = token_ids(corpus, tokenizer_file, target.config, given.settings)
    plan = given.plan
    console.print(
        f"{plan.kind} for {given.target}: {len(train_ids):,} tokens of {len(corpus.train)} files, "
        f"{len(corpus.held_out)} files held out, seed {given.settings.seed}"
    )
    with _Shown(given.settings.num_steps) as shown:
        trained = train_for(
            target, plan, given.settings, torch.tensor(train_ids), given.out,
            tokenizer_file=tokenizer_file, resume=given.resume, on_step=shown.step,
        )  # fmt: skip
    console.print(f"written  {given.out}")
    with Console(stderr=True).status("measuring what the target accepts") if sys.stderr.isatty() else nullcontext():
        measured = _measured(target, trained, held_out_ids, target.config.max_positions)
    console.print(measured)
    proposer = {"draft": "draft-model"}.get(plan.kind, plan.kind)
    console.print(
        f"Next  specverify check reference --option target={source} --option {plan.kind}={given.out} "
        f"--option proposer={proposer}"
    )


def target_files(target: str) -> tuple[Path, Path]:
    """(checkpoint, tokenizer) of a directory, or of "tiny" or "smollm2"."""
    if target == "smollm2":
        from specverify.adapters.smollm2 import smollm2_paths

        paths = smollm2_paths()
        return paths.gguf_file, paths.target_dir / "tokenizer.json"
    if target == "tiny":
        from specverify.families.family import tiny_family

        return tiny_family().target, tiny_family().target / "tokenizer.json"
    path = Path(target)
    if not (path / "tokenizer.json").is_file():
        raise UsageError(f"{target} holds no tokenizer.json; give a checkpoint directory with one, or tiny, or smollm2")
    return path, path / "tokenizer.json"


def token_ids(
    corpus: Corpus, tokenizer_file: Path, config: ModelConfig, settings: Settings
) -> tuple[list[int], list[int]]:
    """As many tokens to train on as the steps need, from files in seeded order, and some that are held out."""
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(str(tokenizer_file))
    end = config.eos_token_ids[0] if config.eos_token_ids else None
    needed = settings.num_steps * settings.num_rows * settings.length
    names = sorted(corpus.train)
    random.Random(settings.seed).shuffle(names)
    texts = (corpus.train[name] for name in names)
    held_out = (corpus.held_out[name] for name in sorted(corpus.held_out))
    return (
        encode(texts, tokenizer, end, at_most=needed),
        encode(held_out, tokenizer, end, at_most=20 * NUM_PROMPTS * PROMPT_LENGTH),
    )


def _measured(target: Model, trained: Any, held_out: Sequence[int], max_positions: int) -> str:
    """What the target accepts on held-out text, in words."""
    prompts = windows(held_out)
    if not prompts or max_positions < PROMPT_LENGTH + NUM_TOKENS:
        return "not measured: too little held-out text, or a target that is too short for it"
    kind = "eagle" if isinstance(trained, EagleHead) else "medusa" if isinstance(trained, MedusaHeads) else "draft"
    subject = reference_subject(
        target=target,
        draft=trained if kind == "draft" else None,
        proposer="draft-model" if kind == "draft" else kind,
        heads={} if kind == "draft" else {kind: trained},
        num_draft_tokens=_NUM_DRAFT_TOKENS,
        record_probs=False,
        record_kv_rows=False,
    )
    found = greedy_acceptance(subject, prompts)
    return (
        f"held out  {found.rate:.2f} of the draft tokens that were judged were accepted, {found.per_step:.2f} a step "
        f"of at most {_NUM_DRAFT_TOKENS}; temperature 0, {len(prompts)} prompts"
    )


class _Shown:
    """The progress of a training, on standard error."""

    def __init__(self, num_steps: int) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.progress = Progress(
            TextColumn("training"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.task = self.progress.add_task("", total=num_steps, note="")
        self.begin = time.monotonic()

    def __enter__(self) -> _Shown:
        self.progress.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.progress.stop()

    def step(self, done: int, num_steps: int, figures: Figures) -> None:
        note = "  ".join(f"{name} {value:.3f}" for name, value in figures.items())
        self.progress.update(self.task, completed=done, note=note)
        if not self.console.is_terminal and (done % max(1, num_steps // 20) == 0 or done == num_steps):
            self.console.print(f"step {done} of {num_steps}  {note}  {time.monotonic() - self.begin:.0f} s")
