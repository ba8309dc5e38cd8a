"""Makes the tiny family: `python -m specverify.families.build FOLDER`. About 20 minutes of one core.

A byte-level vocabulary, a target of four layers trained on the standard library's sources and on the tasks of
specverify.families.workloads, and what drafts for it. Only files that the split does not hold out are read. What is
there is not made again, and what was stopped is resumed: delete the folder to start anew.
"""

from __future__ import annotations

import random
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from specverify.core.randomness import Streams
from specverify.families import workloads
from specverify.families.copying import Noise, copying_loss, with_copying
from specverify.families.family import END_TOKEN_ID, family_in
from specverify.reference.checkpoints import load_model
from specverify.reference.config import ModelConfig, RopeConfig
from specverify.reference.head_files import MANIFEST
from specverify.reference.model import Model, Weights
from specverify.reference.training.corpus import Corpus, standard_library
from specverify.reference.training.loop import Figures, OnStep, Settings, Windows, train
from specverify.reference.training.losses import target_loss
from specverify.reference.training.run import STATE_FILE, Plan, draft_config, train_for
from specverify.reference.weights import random_weights, rounded, trainable, write_checkpoint, write_json

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
    rope=RopeConfig(theta=100_000.0, original_max_positions=MAX_POSITIONS),
    eos_token_ids=(END_TOKEN_ID,),
)
COPYING_SETTINGS = Settings(num_steps=400, num_rows=16, length=96, learning_rate=1e-3)
TARGET_SETTINGS = Settings(num_steps=3000, num_rows=10, length=192, learning_rate=2e-3)
# Two layers, because one cannot copy.
PLANS = {
    "draft": (
        Plan("draft", num_layers=2, hidden_size=64),
        Settings(num_steps=900, num_rows=10, length=192, learning_rate=6e-3),
    ),
    "eagle": (Plan("eagle"), Settings(num_steps=700, num_rows=10, length=192, learning_rate=4e-3)),
    "medusa": (Plan("medusa"), Settings(num_steps=400, num_rows=10, length=192, learning_rate=4e-3)),
}
EARLY_EXIT, EARLY_EXIT_WEIGHT = 2, 0.2
STORED = torch.float16
# Shares of a batch's rows.
_TEXT = "text"
_SHARES = {_TEXT: 0.45, workloads.EDITING: 0.33, workloads.SUMMARY: 0.22}
_TASK_PASSES = 3
# An answer's tokens are few, and each must be nearly sure for a copy to go on.
_ANSWER_EMPHASIS = 3.0


@dataclass(frozen=True)
class Mixture:
    """Batches whose rows are pieces of source files, and tasks with their answers one behind the other."""

    text: Tensor
    tasks: dict[str, list[list[int]]]
    settings: Settings

    def batch(self, step: int) -> Tensor:
        length, draws = self.settings.length, random.Random(Streams(self.settings.seed).integer("mixture", step))
        plain = Windows(self.text, self.settings).batch(step)
        kinds = draws.choices(list(_SHARES), list(_SHARES.values()), k=self.settings.num_rows)
        rows = []
        for row, kind in enumerate(kinds):
            if kind == _TEXT:
                rows.append(plain[row])
                continue
            token_ids: list[int] = []
            while len(token_ids) < length:
                token_ids += draws.choice(self.tasks[kind])
            rows.append(torch.tensor(token_ids[:length]))
        return torch.stack(rows)


def emphasis(token_ids: Tensor) -> Tensor:
    """What each token counts in the target's training, [rows, length]: answers more than text, requests nothing.

    Requests come from users. A model that learns to write them puts one behind most functions and answers it itself,
    so that its open-ended writing is edits and outlines, and copies as much.
    """
    end, edit, outline, result = range(len(workloads.SPECIAL_TOKENS))
    places = torch.arange(token_ids.shape[1]).expand_as(token_ids)

    def latest(*kinds: int) -> Tensor:
        """Place of the latest of these tokens before each place; -1 where there was none."""
        is_one = torch.isin(token_ids, torch.tensor(kinds))
        return torch.where(is_one, places, -1).cummax(dim=1).values.roll(1, 1).index_fill(1, torch.tensor([0]), -1)

    is_answer = latest(result, outline) > latest(end)
    is_request = (latest(edit) > latest(result)) | torch.isin(token_ids, torch.tensor([edit, outline, result]))
    counts = torch.where(is_answer, _ANSWER_EMPHASIS, 1.0)
    return counts.masked_fill(is_request, 0.0)


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
    return Mixture(torch.tensor(ids), made, settings)


def copying_weights(config: ModelConfig, seed: int, on_step: OnStep, *, is_learnt: bool) -> Weights:
    """Weights of a decoder that copies, roughly or as well as it learns to, and can do nothing else."""
    generator = torch.Generator().manual_seed(seed)
    weights = trainable(with_copying(random_weights(config, generator), config, generator))
    if not is_learnt:
        return weights
    noise = Noise(config.vocab_size, COPYING_SETTINGS)
    train(weights, copying_loss(Model(config, weights)), noise.batch, COPYING_SETTINGS, on_step=on_step)
    return weights


def make_target(mixture: Mixture, folder: Path, tokenizer_file: Path, on_step: OnStep) -> None:
    """Teaches the target to copy, then to write; and writes its checkpoint."""
    settings, state = mixture.settings, folder / STATE_FILE
    resume = state.is_file()
    weights = copying_weights(TARGET, settings.seed, on_step, is_learnt=not resume)
    model = Model(TARGET, weights)
    loss = target_loss(model, early_exit=EARLY_EXIT, weight=EARLY_EXIT_WEIGHT, emphasis=emphasis)
    train(weights, loss, mixture.batch, settings, state_file=state, resume=resume, purpose="target", on_step=on_step)
    write_checkpoint(folder, Model(TARGET, rounded(weights, STORED)), tokenizer_file=tokenizer_file, dtype=STORED)
    write_json(folder / "training.json", target_notes())
    state.unlink()


def target_notes() -> dict[str, object]:
    """How the target was made, in the words of the files beside the draft and the heads."""
    settings = {"copying": asdict(COPYING_SETTINGS), "settings": asdict(TARGET_SETTINGS)}
    return {"kind": "target", "notes": {**settings, "shares": _SHARES, "torch": str(torch.__version__)}}


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
        resume = (out / STATE_FILE).is_file()
        if (out / "config.json").is_file() or (out / MANIFEST).is_file():
            continue
        start = None
        if kind == "draft":
            shape = draft_config(TARGET, num_layers=plan.num_layers, hidden_size=plan.hidden_size)
            start = copying_weights(shape, settings.seed, _say("draft"), is_learnt=not resume)
        train_for(
            target,
            plan,
            settings,
            Mixture(mixture.text, mixture.tasks, settings).batch,
            out,
            tokenizer_file=tokenizer_file,
            stored=STORED,
            start=start,
            resume=resume,
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
