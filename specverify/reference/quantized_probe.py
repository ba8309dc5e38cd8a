"""A probe pair whose laws are those of rounded weights: what a quantised engine is held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from specverify.probe import ProbePair
from specverify.probe.oracle import Oracle
from specverify.reference.quantize import rounded

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True, eq=False)
class QuantizedProbe(ProbePair):
    """rounded_models: "target", "draft" or both."""

    rounded_models: tuple[str, ...] = ()

    @cached_property
    def target_oracle(self) -> Oracle:
        return self._oracle("target", super().target_oracle)

    @cached_property
    def draft_oracle(self) -> Oracle:
        return self._oracle("draft", super().draft_oracle)

    def _oracle(self, model: str, oracle: Oracle) -> Oracle:
        return rounded_oracle(oracle) if model in self.rounded_models else oracle


def quantized_probe(pair: ProbePair, models: Sequence[str]) -> QuantizedProbe:
    """The pair with these models rounded to int8."""
    same = {field.name: getattr(pair, field.name) for field in fields(ProbePair)}
    return QuantizedProbe(**same, rounded_models=tuple(models))


def rounded_oracle(oracle: Oracle) -> Oracle:
    """The exact laws of the checkpoint with every matrix but the embedding rounded, row by row."""
    weights = {
        name: _rounded(tensor) if tensor.ndim == 2 and name != _EMBEDDING else tensor
        for name, tensor in oracle.weights.items()
    }
    # A tied head is rounded, and the embedding beside it is not.
    weights.setdefault(_HEAD, _rounded(oracle.weights[_EMBEDDING]))
    return replace(oracle, weights=weights)


def _rounded(weight: NDArray[np.float64]) -> NDArray[np.float64]:
    entries, scales = rounded(torch.from_numpy(np.ascontiguousarray(weight)))
    wide: NDArray[np.float64] = entries.numpy().astype(np.float64) * scales.numpy().astype(np.float64)[:, None]
    return wide
