"""transformers loads a probe pair as users do, and speculation on it is worth judging: drafts, accepts, rejections."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from specverify.laws.sampling import softmax
from specverify.probe import ProbePair
from specverify.probe.files import WORDS
from specverify.probe.texts import draw_texts
from specverify.probe.weights import FIRST_WORD

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

NUM_DRAFT_TOKENS = 3
NEW_TOKENS = 24


@pytest.fixture(scope="module")
def models(pair: ProbePair):
    loaded = [transformers.AutoModelForCausalLM.from_pretrained(path) for path in (pair.target_dir, pair.draft_dir)]
    for model in loaded:
        model.generation_config.update(
            num_assistant_tokens=NUM_DRAFT_TOKENS, num_assistant_tokens_schedule="constant",
            assistant_confidence_threshold=0.0, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
    return loaded


def verified_per_call(model, prompts, **options) -> Counter:
    """How often the target was asked to verify, and how many new tokens came of it."""
    counts: Counter = Counter()
    torch.manual_seed(0)
    for prompt in prompts:
        widths = []
        hook = model.register_forward_pre_hook(
            lambda module, args, kwargs, widths=widths: widths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
        )
        output = model.generate(
            torch.tensor([prompt]), do_sample=True, top_k=0, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS,
            **options,
        )  # fmt: skip
        hook.remove()
        counts["calls"] += len(widths)
        counts["new"] += output.shape[1] - len(prompt)
    return counts


def test_assistant_model_gets_about_what_the_laws_imply(pair: ProbePair, models):
    """Around two tokens a call at three drafts: full accepts and rejections are both frequent."""
    target, draft = models

    counts = verified_per_call(target, pair.prompts * 3, assistant_model=draft)

    assert 1.6 < counts["new"] / counts["calls"] < 2.8


def test_prompt_lookup_drafts_and_is_accepted(pair: ProbePair, models):
    """On the lookup prompts drafts are found and some are right."""
    counts = verified_per_call(models[0], pair.lookup_prompts * 8, prompt_lookup_num_tokens=NUM_DRAFT_TOKENS)

    assert 1.15 < counts["new"] / counts["calls"] < 2.2


def test_early_exit_runs(pair: ProbePair, models):
    """The first layer and the head are a draft model of their own."""
    counts = verified_per_call(models[0], pair.prompts, assistant_early_exit=1)

    assert NEW_TOKENS * len(pair.prompts) == counts["new"]


def test_accept_lengths_from_the_laws_are_all_frequent(pair: ProbePair):
    """With three draft tokens every number of accepted ones happens in at least one step of twenty."""
    rng = np.random.default_rng(0)
    texts = draw_texts(pair.draft_oracle, rng.random((150, 12)))
    target_laws, draft_laws = softmax(pair.target_oracle.logits(texts)), softmax(pair.draft_oracle.logits(texts))
    drafted = texts[:, 1:, None]
    ratios = np.take_along_axis(target_laws[:, :-1] / draft_laws[:, :-1], drafted, axis=-1)[..., 0]
    steps = np.lib.stride_tricks.sliding_window_view(ratios[:, 3:], NUM_DRAFT_TOKENS, axis=1)
    accepted = np.cumprod(rng.random(steps.shape) < steps, axis=-1).sum(axis=-1)

    shares = np.bincount(accepted.ravel(), minlength=NUM_DRAFT_TOKENS + 1) / accepted.size

    assert shares.min() > 0.05


def test_every_word_is_said(pair: ProbePair):
    """No part of the vocabulary is dead: each word is drawn in some two thousand tokens."""
    texts = draw_texts(pair.target_oracle, np.random.default_rng(0).random((150, 16)))

    assert (np.bincount(texts[:, 1:].ravel(), minlength=pair.vocab_size)[FIRST_WORD:] > 5).all()


def test_tokenizer_spells_the_words(pair: ProbePair):
    """Text in, begin token and word ids out, and back."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(pair.target_dir)
    prompt = pair.prompts[2]

    text = tokenizer.decode(prompt, skip_special_tokens=True)

    assert list(prompt) == tokenizer(text)["input_ids"]
    assert " ".join(WORDS[token] for token in prompt) == f"<s> {text}"
    assert tuple(getattr(tokenizer, f"{role}_token_id") for role in ("bos", "eos", "pad", "unk")) == (1, 2, 0, 3)


def test_config_is_read_by_old_and_new_engines(pair: ProbePair):
    """The rope base stands where transformers 5 looks and where most others do."""
    config = transformers.AutoConfig.from_pretrained(pair.target_dir)

    assert "LlamaForCausalLM" in config.architectures
    assert config.rope_parameters["rope_theta"] == 10000.0
    assert (pair.target_dir / "config.json").read_text().count('"rope_theta": 10000.0') == 2
