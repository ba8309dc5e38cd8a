"""Makes the tiny family: `python -m specverify.families.build FOLDER`. About 15 minutes of one core.

A byte-level vocabulary, a target of four layers trained on the standard library's sources and on the tasks of
specverify.families.workloads, and what drafts for it. Only files that the split does not hold out are read. What is
there is not made again, and what was stopped is resumed: delete the folder to start anew.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from specverify.core.randomness import Streams
from specverify.families import workloads
from specverify.families.family import END_TOKEN_ID, family_in
from specverify.reference.checkpoints import load_model
from specverify.reference.config import ModelConfig, RopeConfig
from specverify.reference.head_files import MANIFEST
from specverify.reference.model import Model
from specverify.reference.training.corpus import Corpus, standard_library
from specverify.reference.training.loop import Figures, OnStep, Settings, Windows, train
from specverify.reference.training.losses import target_loss
from specverify.reference.training.run import STATE_FILE, Plan, train_for
from specverify.reference.weights import random_weights, rounded, trainable, write_checkpoint

VOCAB_SIZE = 768
MAX_POSITIONS = 1024
TARGET = ModelConfig(
    vocab_size=VOCAB_SIZE,
    hidden_size=128,
    intermediate_size=256,
    num_layers=4,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    max_positions=MAX_POSITIONS,
    tie_word_embeddings=True,
    rope=RopeConfig(original_max_positions=MAX_POSITIONS),
    eos_token_ids=(END_TOKEN_ID,),
)
TARGET_SETTINGS = Settings(num_steps=1200, num_rows=10, length=192, learning_rate=4e-3)
PLANS = {
    "draft": (Plan("draft", hidden_size=64), Settings(num_steps=600, num_rows=10, length=192, learning_rate=6e-3)),
    "eagle": (Plan("eagle"), Settings(num_steps=400, num_rows=10, length=192, learning_rate=4e-3)),
    "medusa": (Plan("medusa"), Settings(num_steps=300, num_rows=10, length=192, learning_rate=4e-3)),
}
EARLY_EXIT, EARLY_EXIT_WEIGHT = 2, 0.2
STORED = torch.float16
# Copying comes first, from noise that repeats itself: there it is learnt in 150 steps, which text alone would take
# thousands for. After that, shares of a batch's rows.
_TEXT, _NOISE, _NOISE_STEPS = "text", "noise", 200
_SHARES = {_TEXT: 0.55, workloads.EDITING: 0.25, workloads.SUMMARY: 0.15, _NOISE: 0.05}
_TASK_PASSES = 3


@dataclass(frozen=True)
class Mixture:
    """Batches whose rows are pieces of source files, and tasks with their answers one behind the other."""

    text: Tensor
    tasks: dict[str, list[list[int]]]
    settings: Settings
    noise_steps: int = 0

    def batch(self, step: int) -> Tensor:
        length, draws = self.settings.length, random.Random(Streams(self.settings.seed).integer("mixture", step))
        plain = Windows(self.text, self.settings).batch(step)
        shares = {_NOISE: 1.0} if step < self.noise_steps else _SHARES
        kinds = draws.choices(list(shares), list(shares.values()), k=self.settings.num_rows)
        rows = []
        for row, kind in enumerate(kinds):
            if kind == _TEXT:
                rows.append(plain[row])
                continue
            token_ids: list[int] = []
            while len(token_ids) < length:
                if kind == _NOISE:
                    token_ids += length * draws.choices(range(VOCAB_SIZE), k=draws.randrange(8, length // 4))
                else:
                    token_ids += draws.choice(self.tasks[kind])
            rows.append(torch.tensor(token_ids[:length]))
        return torch.stack(rows)


def make_tokenizer(corpus: Corpus) -> Tokenizer:
    """Byte-level, merges learnt from the training files; the end token is number 0."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(workloads.SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((corpus.train[name] for name in sorted(corpus.train)), trainer)
    return tokenizer


def make_mixture(corpus: Corpus, tokenizer: Tokenizer, settings: Settings) -> Mixture:
    texts = [text + workloads.END for _, text in sorted(corpus.train.items())]
    ids = [token for encoded in tokenizer.encode_batch(texts) for token in encoded.ids]
    made: dict[str, list[list[int]]] = {}
    for name, maker in ((workloads.EDITING, workloads.editing), (workloads.SUMMARY, workloads.summary)):
        passes = range(_TASK_PASSES if name == workloads.EDITING else 1)
        found = [task for n in passes for task in maker(corpus.train, random.Random(n))]
        made[name] = [e.ids for e in tokenizer.encode_batch([task.prompt + task.answer for task in found])]
    return Mixture(torch.tensor(ids), made, settings, _NOISE_STEPS)


def make_target(mixture: Mixture, folder: Path, tokenizer_file: Path, on_step: OnStep) -> None:
    """Trains the target and writes its checkpoint."""
    settings, state = mixture.settings, folder / STATE_FILE
    weights = trainable(random_weights(TARGET, torch.Generator().manual_seed(settings.seed)))
    loss = target_loss(Model(TARGET, weights), early_exit=EARLY_EXIT, weight=EARLY_EXIT_WEIGHT)
    resume = state.is_file()
    train(weights, loss, mixture.batch, settings, state_file=state, resume=resume, purpose="target", on_step=on_step)
    write_checkpoint(folder, Model(TARGET, rounded(weights, STORED)), tokenizer_file=tokenizer_file, dtype=STORED)
    state.unlink()


def build(folder: Path) -> None:
    """Makes what is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    family, corpus, tokenizer_file = family_in(folder), standard_library(), folder / "tokenizer.json"
    if not tokenizer_file.is_file():
        make_tokenizer(corpus).save(str(tokenizer_file))
    mixture = make_mixture(corpus, Tokenizer.from_file(str(tokenizer_file)), TARGET_SETTINGS)
    if not (family.target / "model.safetensors").is_file():
        family.target.mkdir(exist_ok=True)
        make_target(mixture, family.target, tokenizer_file, _say("target"))
    target = load_model(family.target, device="cpu")
    for kind, (plan, settings) in PLANS.items():
        out = folder / kind
        if (out / "config.json").is_file() or (out / MANIFEST).is_file():
            continue
        train_for(
            target,
            plan,
            settings,
            Mixture(mixture.text, mixture.tasks, settings).batch,
            out,
            tokenizer_file=tokenizer_file,
            stored=STORED,
            resume=(out / STATE_FILE).is_file(),
            on_step=_say(kind),
        )
    tokenizer_file.unlink()


def _say(what: str) -> OnStep:
    def say(step: int, num_steps: int, figures: Figures) -> None:
        if step % 20 == 0 or step == num_steps:
            print(f"{what} {step} of {num_steps}", *(f"{k} {v:.3f}" for k, v in figures.items()), flush=True)

    return say


if __name__ == "__main__":
    build(Path(sys.argv[1]))
