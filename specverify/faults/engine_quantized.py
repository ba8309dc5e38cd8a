"""Engine faults with int8 weights, and the engine that has them and is right."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from torch import Tensor

from specverify.faults.engine_parts import OwnDrafterOnly, Planted, probe_engine
from specverify.faults.fault import CorrectSubject
from specverify.reference.batch import Batch
from specverify.reference.cached_model import CachedModel
from specverify.reference.model import Model
from specverify.reference.quantize import rounded

plant = Planted(quantize={"draft": "int8"})


@plant("draft-quantised-scale-missing", "vllm-project/vllm#51581")
class _RawWeights:
    """A pass over pending tokens takes a quantised draft model's entries for its weights: the scales are missing."""

    cached: CachedModel

    def ingest(self, batch: Batch) -> Tensor:
        right = self.cached.model
        self.cached.model = _without_scales(right)
        logits: Tensor = super().ingest(batch)  # type: ignore[misc]
        self.cached.model = right
        return logits


@lru_cache(maxsize=4)
def _without_scales(model: Model) -> Model:
    """The keys and values of every layer come from entries as they are stored; float64 keeps them as plain numbers."""
    layers = tuple(
        replace(layer, query_key_value=rounded(layer.query_key_value)[0].to(model.dtype))
        for layer in model.weights.layers
    )
    return Model(model.config, replace(model.weights, layers=layers))


def _int8() -> OwnDrafterOnly:
    return OwnDrafterOnly(probe_engine("engine-int8", dtype="float32", quantize="int8", every_option=False))


FAULTS = plant.faults
CORRECT = (CorrectSubject("engine-int8", "Target and draft model with int8 weights, in float32.", _int8),)
