"""The compiled pass gives what the pass by torch gives, and steps aside where it is not meant for the model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from threadpoolctl import ThreadpoolController

from specverify.reference import compiled_pass
from specverify.reference.cached_model import CachedModel
from specverify.reference.compiled_pass import MOST_TOKENS, CompiledPass
from specverify.reference.kv_cache import KVCache
from specverify.reference.model import Model
from specverify.reference.quantize import quantized
from specverify.reference.threads import threads
from tests.reference import tiny

PROMPT = torch.randint(0, 16, (1, 6), generator=torch.Generator().manual_seed(3))
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5}


def by_torch(model: Model) -> Model:
    """The same model without the compiled pass."""
    plain = Model(model.config, model.weights)
    plain._compiled = None
    return plain


def dressed(model: Model) -> Model:
    """The model with a bias at every projection, and with norms whose weights are not 1."""
    generator = torch.Generator().manual_seed(5)

    def random(like: torch.Tensor) -> torch.Tensor:
        return 0.5 + torch.rand(like.shape[0], generator=generator, dtype=torch.float64).to(model.dtype)

    layers = []
    for layer in model.weights.layers:
        projections = ("query_key_value", "attention_out", "gate_up", "down")
        changed = {f"{name}_bias": random(getattr(layer, name)) for name in projections}
        changed |= {name: random(getattr(layer, name)) for name in ("attention_norm", "mlp_norm")}
        layers.append(replace(layer, **changed))
    weights = replace(model.weights, layers=tuple(layers), final_norm=random(model.weights.final_norm))
    return Model(model.config, weights)


def passes(model: Model, sizes: list[int], **options: object) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Hidden states of blocks of these sizes behind a prompt, and the cache rows at the end."""
    cached = CachedModel(model, num_rows=1, capacity=64)
    cached.compute(PROMPT, first_positions=[0], num_new=[6])
    found, start = [], 6
    for size in sizes:
        tokens = torch.arange(start, start + size)[None] % 16
        found.append(cached.compute(tokens, first_positions=[start], num_new=[size], **options))
        start += size
    return found, cached.cache.rows(0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("make", [tiny.model, lambda dtype: dressed(tiny.model(dtype=dtype))])
def test_it_computes_what_torch_computes(make, dtype) -> None:
    model = make(dtype=dtype)
    sizes = [1, 2, 1, 5, MOST_TOKENS]

    states, rows = passes(model, sizes)
    wanted_states, wanted_rows = passes(by_torch(model), sizes)

    assert model._compiled is not None
    for state, wanted in zip(states, wanted_states, strict=True):
        assert state.dtype == dtype
        assert (state - wanted).abs().max() < TOLERANCES[dtype]
    assert (rows - wanted_rows).abs().max() < TOLERANCES[dtype]
    for state in wanted_states:
        scores, wanted = model.logits(state), by_torch(model).logits(state)
        assert scores.shape == wanted.shape
        assert (scores - wanted).abs().max() < 10 * TOLERANCES[dtype]


def test_gradients_flow_through_scores() -> None:
    """Scores of hidden states that are being trained come from torch."""
    model, hidden = tiny.model(), torch.ones(1, 2, 24, dtype=torch.float64, requires_grad=True)

    model.logits(hidden).sum().backward()

    assert hidden.grad is not None


def test_some_layers_only() -> None:
    """Skipped layers keep their cache rows."""
    model = tiny.model(num_layers=3)

    states, rows = passes(model, [1, 3], layers=[0, 2])
    wanted_states, wanted_rows = passes(by_torch(model), [1, 3], layers=[0, 2])

    assert all((state - wanted).abs().max() < 1e-12 for state, wanted in zip(states, wanted_states, strict=True))
    assert (rows - wanted_rows).abs().max() < 1e-12


def test_streams_between_layers_are_tapped() -> None:
    """Before the first layer, between two, and behind the last."""
    model = tiny.model(num_layers=2)
    tapped = []
    for one in (model, by_torch(model)):
        cached = CachedModel(one, num_rows=1, capacity=16, taps=(0, 1, 2))
        cached.compute(PROMPT[:, :3], first_positions=[0], num_new=[3])
        tapped.append(cached.last_taps)

    assert (tapped[0] - tapped[1]).abs().max() < 1e-12


def test_a_block_with_a_mask_and_places_of_its_own() -> None:
    """Two branches of a tree, written in any order of slots."""
    model = tiny.model()
    found = []
    for one in (model, by_torch(model)):
        cached = CachedModel(one, num_rows=1, capacity=16)
        cached.compute(PROMPT, first_positions=[0], num_new=[6])
        mask = torch.zeros(1, 3, 9, dtype=torch.float64)
        mask[0, 0, 7:] = mask[0, 1, 8] = mask[0, 2, 7] = -torch.inf
        places = torch.tensor([[6, 8, 7]])
        options = {"positions": torch.tensor([[6, 7, 7]]), "slots": places, "mask": mask, "cache": cached.cache}
        found.append(one.forward(torch.tensor([[5, 9, 2]]), **options))

    assert (found[0] - found[1]).abs().max() < 1e-12


def test_a_cache_with_rules_of_its_own_is_respected() -> None:
    """Whoever overrides write or read sees every row."""

    class Counting(KVCache):
        num_writes = 0

        def write(self, layer, slots, *, keys, values) -> None:
            Counting.num_writes += 1
            super().write(layer, slots, keys=keys, values=values)

    class Counted(CachedModel):
        cache_class = Counting

    cached = Counted(tiny.model(num_layers=2), num_rows=1, capacity=8)
    cached.compute(PROMPT[:, :1], first_positions=[0], num_new=[1])

    assert Counting.num_writes == 2
    assert KVCache.is_plain
    assert not Counting.is_plain


@pytest.mark.parametrize("width", [2, MOST_TOKENS])
def test_ragged_rows(width) -> None:
    """Rows of different lengths, each with a mask and places of its own; of the wider block only the attention."""
    model = tiny.model()
    found = []
    for one in (model, by_torch(model)):
        cached = CachedModel(one, num_rows=3, capacity=32)
        cached.compute(PROMPT.repeat(3, 1), first_positions=[0, 0, 0], num_new=[6, 2, 4])
        tokens = torch.arange(3 * width).view(3, width) % 16
        states = cached.compute(tokens, first_positions=[6, 2, 4], num_new=[width, 1, width])
        found.append(torch.cat([states[0], states[1, :1], states[2]]))

    assert (found[0] - found[1]).abs().max() < 1e-12


def test_a_model_with_rules_of_its_own_is_respected() -> None:
    """Whoever overrides a part of the pass is asked for it, however few the tokens."""

    class Silent(Model):
        def mlp(self, normed, layer):
            return torch.zeros_like(normed)

    whole = tiny.model()
    silent = Silent(whole.config, whole.weights)
    states = [passes(one, [1])[0][0] for one in (whole, silent)]

    assert silent._compiled is None
    assert (states[0] - states[1]).abs().max() > 0.1


def test_growing_and_selecting_leave_no_stale_view() -> None:
    """The arrays follow the buffer when it is moved."""
    model = tiny.model()
    found = []
    for one in (model, by_torch(model)):
        cached = CachedModel(one, num_rows=2, capacity=2)
        cached.compute(PROMPT[:, :2].repeat(2, 1), first_positions=[0, 0], num_new=[2, 2])
        cached.select([1])
        states = [cached.compute(PROMPT[:, :1], first_positions=[2 + i], num_new=[1]) for i in range(24)]
        found.append(torch.cat(states, dim=1))

    assert (found[0] - found[1]).abs().max() < 1e-12


def unsuited() -> list[tuple[str, Model]]:
    model = tiny.model()
    layers = tuple(replace(layer, down=layer.down.clone().requires_grad_()) for layer in model.weights.layers)
    embedding = model.weights.embedding.clone().requires_grad_()
    return [
        ("bfloat16", tiny.model(dtype=torch.bfloat16)),
        ("int8", quantized(tiny.model(dtype=torch.float32))),
        ("trained", Model(model.config, replace(model.weights, layers=layers))),
        ("trained embedding", Model(model.config, replace(model.weights, embedding=embedding))),
    ]


@pytest.mark.parametrize(("reason", "model"), unsuited(), ids=lambda value: value if isinstance(value, str) else "")
def test_other_models_keep_to_torch(reason, model) -> None:
    assert CompiledPass.of(model) is None, reason


def test_threads_are_put_back_after_an_error() -> None:
    """numpy's as well as torch's."""

    def counts() -> list[int]:
        return [torch.get_num_threads(), *(library["num_threads"] for library in ThreadpoolController().info())]

    before = counts()

    def inside() -> None:
        with threads(1):
            assert set(counts()) == {1}
            raise KeyError

    with pytest.raises(KeyError):
        inside()

    assert counts() == before


def test_without_numba_torch_computes(monkeypatch) -> None:
    """It is an extra."""
    monkeypatch.setattr(compiled_pass, "_kernels", lambda: None)

    assert CompiledPass.of(tiny.model()) is None


def test_large_weights_are_read_by_all_threads(monkeypatch) -> None:
    """The kernels read with one; where there are more, torch is asked."""
    monkeypatch.setattr(compiled_pass, "LARGE_WEIGHT", 1)
    model = tiny.model()
    cache = CachedModel(model, num_rows=1, capacity=8).cache
    found = []
    for num_threads in (1, 2):
        with threads(num_threads):
            assert model._compiled is not None
            found.append(model._compiled.suits(1, 1, cache))

    assert found == [True, False]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_nothing_is_compiled_in_the_midst_of_a_run(dtype) -> None:
    """An enumeration has put its own functions in the place of math's by then, and those cannot be compiled."""
    kernels = compiled_pass._kernels()
    assert kernels is not None
    model = tiny.model(dtype=dtype)
    known = {name: list(getattr(kernels, name).signatures) for name in ("block", "attend", "normalise", "project")}

    for sizes in ([1, 2, MOST_TOKENS], [3]):
        passes(model, sizes)
    many = CachedModel(model, num_rows=3, capacity=32)
    many.compute(PROMPT.repeat(3, 1), first_positions=[0, 0, 0], num_new=[6, 2, 4])
    model.logits(many.compute(PROMPT[:, :4].repeat(3, 1), first_positions=[6, 2, 4], num_new=[4, 1, 2]))
    model.logits(many.compute(PROMPT[:, :1].repeat(3, 1), first_positions=[10, 3, 6], num_new=[1, 1, 1]))

    assert {name: getattr(kernels, name).signatures for name in known} == known
    assert all(len(signatures) <= 2 for signatures in known.values())
