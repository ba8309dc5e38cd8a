"""Whole engines under enumeration: transformers' generate on a tiny random pair, every path explored."""

from __future__ import annotations

import itertools

import pytest
import torch

from specverify.exact.law import enumerate_law
from specverify.exact.torch_front import TorchFront

transformers = pytest.importorskip("transformers")

VOCAB, LENGTH = 3, 3
# transformers takes its softmax in float32 inside a float64 model.
FLOAT32_SOFTMAX = 1e-6


def tiny_llama(seed, num_layers):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = transformers.LlamaConfig(
            vocab_size=VOCAB, hidden_size=16, intermediate_size=32, num_hidden_layers=num_layers,
            num_attention_heads=2, num_key_value_heads=1, head_dim=8, max_position_embeddings=64, bos_token_id=1,
            eos_token_id=None, pad_token_id=0, initializer_range=0.4,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config).eval().double()
    generation = model.generation_config
    generation.eos_token_id, generation.pad_token_id = None, 0
    generation.num_assistant_tokens, generation.num_assistant_tokens_schedule = 2, "constant"
    generation.assistant_confidence_threshold = 0.0
    return model


@pytest.fixture(scope="module")
def target():
    return tiny_llama(0, 2)


@pytest.fixture(scope="module")
def draft():
    return tiny_llama(1, 1)


def sequence_law(model, prompt):
    """The exact law of LENGTH new tokens."""
    prefixes = list(itertools.product(range(VOCAB), repeat=LENGTH))
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *prefix[:-1]] for prefix in prefixes])).logits
    steps = logits[:, len(prompt) - 1 :].softmax(-1)
    return {
        prefix: float(torch.prod(steps[row, torch.arange(LENGTH), torch.tensor(prefix)]))
        for row, prefix in enumerate(prefixes)
    }


def enumerated(model, prompt, **options):
    def program(source):
        with torch.no_grad():
            tokens = model.generate(
                torch.tensor([prompt]), do_sample=True, top_k=0, max_new_tokens=LENGTH, min_new_tokens=LENGTH, **options
            )
        return tokens[0, len(prompt) : len(prompt) + LENGTH]

    law = enumerate_law(program, front_ends=[TorchFront()], cross_check_calls=30)
    wanted = sequence_law(model, prompt)
    distance = 0.5 * sum(abs(law.probabilities.get(tokens, 0.0) - share) for tokens, share in wanted.items())
    return law, distance


def test_an_assisted_engine_is_lossless_and_the_lossy_switch_is_not(target, draft):
    """Draft, verification and cache handling of a real engine: every path, and a positive control."""
    law, distance = enumerated(target, [1, 2, 1], assistant_model=draft)
    _, lossy = enumerated(target, [1, 2, 1], assistant_model=draft, assistant_ensemble_weight=0.7)

    assert distance < FLOAT32_SOFTMAX
    assert lossy > 0.05
    assert law.num_runs < 200


@pytest.mark.parametrize(
    ("prompt", "options"),
    [
        ([1, 2, 1], {}),
        ([2, 1, 2, 1], {"prompt_lookup_num_tokens": 2, "max_matching_ngram_size": 1}),
        ([1, 2, 1], {"assistant_early_exit": 1}),
    ],
    ids=["plain", "prompt-lookup", "early-exit"],
)
def test_other_ways_to_generate_have_the_target_law(target, prompt, options):
    """Plain sampling, prompt lookup and self-speculation too."""
    _, distance = enumerated(target, prompt, **options)

    assert distance < FLOAT32_SOFTMAX


def test_the_pluggable_verify_function_is_lossless():
    """transformers' own verify function, alone, on every draft path."""
    from transformers.generation.utils import _speculative_sampling

    from tests.exact.programs import trees
    from tests.exact.torch_programs import torch_program, tv

    def verify(tokens, draft_probs, target_probs, generator):
        ids = torch.cat([torch.zeros(1, dtype=torch.long), tokens])[None]
        emitted, _ = _speculative_sampling(ids, draft_probs.log()[None], len(tokens), target_probs.log()[None])
        return emitted[0]

    target_tree, draft_tree = trees(5)
    law = enumerate_law(torch_program(verify, target_tree, draft_tree, 2), cross_check_calls=200)

    assert tv(law, target_tree) < 1e-12
