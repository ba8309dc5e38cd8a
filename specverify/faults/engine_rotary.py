"""Engine faults in which the draft model turns its queries and keys by other angles than its checkpoint says."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from specverify.faults.engine_parts import Planted
from specverify.reference.batch import Batch
from specverify.reference.config import RopeConfig
from specverify.reference.model import Model

plant = Planted()


class _OtherRotary:
    model: Model
    rope: RopeConfig

    def start(self, batch: Batch, capacity: int) -> None:
        self.model = _with_rope(self.model, self.rope)
        super().start(batch, capacity)  # type: ignore[misc]


@plant("draft-rotary-stretched", "turboderp-org/exui#21")
class _Stretched(_OtherRotary):
    """The draft model runs with the rotary scale of a target with four times its context."""

    rope = RopeConfig(rope_type="linear", factor=4.0)


@plant("draft-rotary-yarn", "Avarok-Cybersecurity/atlas#78")
class _Yarn(_OtherRotary):
    """The draft model's loader sets a YaRN scaling that its checkpoint does not have."""

    rope = RopeConfig(rope_type="yarn", factor=4.0, original_max_positions=64)


@lru_cache(maxsize=4)
def _with_rope(model: Model, rope: RopeConfig) -> Model:
    return Model(replace(model.config, rope=replace(rope, theta=model.config.rope.theta)), model.weights)


FAULTS = plant.faults
