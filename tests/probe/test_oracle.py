"""The oracle computes the same Llama as transformers, without torch."""

from __future__ import annotations

import json

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.core.types import SamplingParams
from specverify.laws.sampling import softmax
from specverify.probe import Oracle, ProbePair

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

# transformers rounds norms and rotary angles to float32 even in a float64 model; measured 1e-5 on the probe pair.
FLOAT32_INSIDE = 5e-5
# With those two computed in float64 nothing but summation order is left; measured 3e-14.
FLOAT64 = 1e-11


def random_token_ids(num_sequences: int, length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 32, (num_sequences, length))


def float64_model(directory, monkeypatch):
    """transformers' model with its two float32 islands moved to float64."""
    model = transformers.AutoModelForCausalLM.from_pretrained(directory).double().eval()

    def norm(self, hidden):
        return self.weight * hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

    def rotary(self, hidden, position_ids):
        config = self.config
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
        angles = position_ids[..., None].double() * config.rope_parameters["rope_theta"] ** -exponents
        both = torch.cat([angles, angles], dim=-1)
        return both.cos(), both.sin()

    llama = transformers.models.llama.modeling_llama
    monkeypatch.setattr(llama.LlamaRMSNorm, "forward", norm)
    monkeypatch.setattr(llama.LlamaRotaryEmbedding, "forward", rotary)
    return model


def logits_of(model, token_ids, **options):
    with torch.no_grad():
        return model(torch.as_tensor(token_ids), **options).logits.numpy()


@pytest.mark.parametrize("role", ["target", "draft"])
def test_logits_equal_transformers(pair: ProbePair, role: str):
    """As shipped, transformers agrees up to the float32 rounding that it has inside."""
    model = transformers.AutoModelForCausalLM.from_pretrained(pair.directory / role).double().eval()
    token_ids = random_token_ids(4, 40)
    oracle = Oracle.from_checkpoint(pair.directory / role)

    assert np.abs(oracle.logits(token_ids) - logits_of(model, token_ids)).max() < FLOAT32_INSIDE


@pytest.mark.parametrize("role", ["target", "draft"])
def test_logits_equal_transformers_in_float64(pair: ProbePair, role: str, monkeypatch):
    """Without that rounding they agree to summation order."""
    model = float64_model(pair.directory / role, monkeypatch)
    token_ids = random_token_ids(4, 40)
    oracle = Oracle.from_checkpoint(pair.directory / role)

    assert np.abs(oracle.logits(token_ids) - logits_of(model, token_ids)).max() < FLOAT64


def test_positions_and_mask_mean_what_they_mean_in_transformers(pair: ProbePair, monkeypatch):
    """Damaged positions and masks, of which the sensitivity is made, are the same damage in torch."""
    model = float64_model(pair.target_dir, monkeypatch)
    token_ids = random_token_ids(2, 12)
    positions = np.arange(12)
    positions[7:] += 1
    mask = np.tri(12, dtype=bool)
    mask[6:, 3] = False
    additive = torch.where(torch.as_tensor(mask), 0.0, -torch.inf).double().expand(2, 1, 12, 12)
    wanted = logits_of(model, token_ids, position_ids=torch.as_tensor(positions)[None], attention_mask=additive)

    computed = pair.target_oracle.logits(token_ids, positions=positions, mask=mask)

    assert np.abs(computed - wanted).max() < FLOAT64


def test_kv_rows_equal_those_of_transformers(pair: ProbePair, monkeypatch):
    """Keys are rotated, values plain, in the layout [layers, 2, rows, heads, head_dim]."""
    model = float64_model(pair.target_dir, monkeypatch)
    token_ids = random_token_ids(1, 9)[0]
    with torch.no_grad():
        cache = model(torch.as_tensor(token_ids)[None]).past_key_values
    wanted = np.stack([np.stack([layer.keys[0], layer.values[0]]) for layer in cache.layers]).swapaxes(2, 3)

    rows = pair.target_oracle.kv_rows(token_ids)

    assert rows.shape == (2, 2, 9, 1, 64)
    assert np.abs(rows - wanted).max() < FLOAT64


def test_any_plain_llama_is_computed(tmp_path, monkeypatch):
    """Tied embeddings, other head counts and another rope base come from the config, not from the probe pair."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, head_dim=16, rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        tie_word_embeddings=True, initializer_range=0.3,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    model = float64_model(tmp_path, monkeypatch)
    token_ids = random_token_ids(2, 11)

    assert np.abs(Oracle.from_checkpoint(tmp_path).logits(token_ids) - logits_of(model, token_ids)).max() < FLOAT64


def test_early_exit_is_the_first_layers_and_the_head(pair: ProbePair, monkeypatch):
    """Cutting the layers of the torch model gives the same logits."""
    model = float64_model(pair.target_dir, monkeypatch)
    model.model.layers = model.model.layers[:1]
    token_ids = random_token_ids(1, 10)

    assert np.abs(pair.target_oracle.early_exit(1).logits(token_ids) - logits_of(model, token_ids)).max() < FLOAT64


def test_a_batch_of_ragged_sequences_equals_each_alone(pair: ProbePair):
    """Padding and grouping leave no trace; the order of the answers is the order of the questions."""
    rng = np.random.default_rng(1)
    sequences = [rng.integers(0, 32, length).tolist() for length in (7, 1, 40, 7, 23)]

    batch = pair.target_oracle.batch_logits(sequences)

    for sequence, logits in zip(sequences, batch, strict=True):
        np.testing.assert_allclose(logits, pair.target_oracle.logits(sequence), atol=1e-11)


def test_a_large_batch_is_split(pair: ProbePair):
    """Thousands of rows go through in several forwards with the same result."""
    sequences = random_token_ids(300, 20).tolist()

    batch = pair.draft_oracle.batch_logits(sequences)

    np.testing.assert_allclose(batch[299], pair.draft_oracle.logits(sequences[299]), atol=1e-11)


def test_conditional_law_is_the_softmax_after_prompt_and_prefix(pair: ProbePair):
    """Temperature 1, no filters: the plain law of the last position."""
    conditional = pair.target_oracle.conditional((1, 5, 6))

    law = conditional((7, 8))

    np.testing.assert_allclose(law, softmax(pair.target_oracle.logits([1, 5, 6, 7, 8])[-1]), atol=1e-12)


@pytest.mark.parametrize(
    "sampling", [SamplingParams(temperature=0.7, top_k=8), SamplingParams(repetition_penalty=1.5, top_p=0.8)]
)
def test_conditional_laws_do_not_depend_on_the_order_of_asking(pair: ProbePair, sampling: SamplingParams):
    """Laws computed on the way to a longer prefix are the ones that asking directly gives."""
    together, alone = (pair.target_oracle.conditional((1, 5, 6), sampling) for _ in range(2))
    sequence = (9, 9, 5, 20)

    together(sequence)

    for length in range(4):
        np.testing.assert_allclose(together(sequence[:length]), alone(sequence[:length]), atol=1e-12)


def test_penalties_see_prompt_and_output(pair: ProbePair):
    """Repetition counts tokens of the prompt, presence only those of the output."""
    prompt = pair.prompts[3]
    plain = pair.target_oracle.conditional(prompt)(())
    presence = pair.target_oracle.conditional(prompt, SamplingParams(presence_penalty=2.0))
    repetition = pair.target_oracle.conditional(prompt, SamplingParams(repetition_penalty=2.0))

    np.testing.assert_allclose(presence(()), plain, atol=1e-12)
    assert np.abs(repetition(()) - plain).max() > 1e-3


@pytest.mark.parametrize("token_ids", [[], [3, 32], [-1, 2]])
def test_impossible_token_ids_are_refused(pair: ProbePair, token_ids: list[int]):
    """An id outside the vocabulary is the caller's mistake, never a wrapped index."""
    with pytest.raises(UsageError, match=r"token id"):
        pair.target_oracle.logits(token_ids)


def test_an_empty_prompt_is_refused(pair: ProbePair):
    """There is no law before the first token."""
    with pytest.raises(UsageError, match="prompt is empty"):
        pair.target_oracle.conditional(())


def test_another_architecture_is_refused(tmp_path, pair: ProbePair):
    """The oracle never computes something else than the checkpoint means."""
    config = json.loads((pair.target_dir / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "mistral"}))
    (tmp_path / "model.safetensors").write_bytes((pair.target_dir / "model.safetensors").read_bytes())

    with pytest.raises(UsageError, match="'mistral'"):
        Oracle.from_checkpoint(tmp_path)


@pytest.mark.parametrize("layers", [0, 3])
def test_an_exit_that_does_not_exist_is_refused(pair: ProbePair, layers: int):
    """Early exit names a layer of the model."""
    with pytest.raises(UsageError, match="early exit"):
        pair.target_oracle.early_exit(layers)


def test_a_directory_without_weights_is_refused(tmp_path):
    """The missing file is named."""
    with pytest.raises(UsageError, match=r"config\.json"):
        Oracle.from_checkpoint(tmp_path)
