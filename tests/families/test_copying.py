"""The copying circuit copies before anything was learnt."""

from __future__ import annotations

import torch

from specverify.families.build import TARGET
from specverify.families.copying import Noise, copying_loss, period_of, with_copying
from specverify.reference.model import Model
from specverify.reference.training.loop import Settings
from specverify.reference.weights import random_weights

NOISE = Noise(TARGET.vocab_size, Settings(num_steps=1, num_rows=8, length=96))


def test_noise_repeats_itself_after_its_period() -> None:
    batch = NOISE.batch(3)
    period = period_of(batch)

    assert 96 // 12 <= period < 96 // 2
    assert torch.equal(batch[:, period:], batch[:, :-period])
    assert not torch.equal(batch, NOISE.batch(4))


def test_circuit_makes_repetitions_likelier() -> None:
    """Nothing else was learnt, so the rest of the loss is that of random weights."""
    generator = torch.Generator().manual_seed(0)
    weights = random_weights(TARGET, generator)
    batch = NOISE.batch(0)

    without, having = (
        float(copying_loss(Model(TARGET, own))(batch)[0]) for own in (weights, with_copying(weights, TARGET, generator))
    )

    assert having < without - 0.2
