"""Exact counts for functions that take all their uniforms as an argument: every cell of a grid is fed to them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from specverify.checks.step_subject import VerifySubject
from specverify.core.types import VerifyInput
from specverify.exact.lattice import LatticeReport, check_lattice
from specverify.exact.program import Shape


class _GivenUniforms:
    """A source that has nothing to give but these uniforms."""

    def __init__(self, uniforms: NDArray[np.float64]) -> None:
        self._uniforms = uniforms

    def uniforms(self, shape: Shape) -> NDArray[np.float64]:
        return self._uniforms.reshape(shape).copy()

    def torch_uniforms(self, shape: Shape) -> torch.Tensor:
        return torch.from_numpy(self.uniforms(shape))

    def choose(self, law: Sequence[float] | NDArray[np.float64]) -> int:
        raise AssertionError("a function that is given its draft draws none")

    def numpy_generator(self) -> np.random.Generator:
        raise AssertionError("a function with all its uniforms given asks for no generator")

    def torch_generator(self) -> torch.Generator:
        raise AssertionError("a function with all its uniforms given asks for no generator")

    def python_random(self) -> random.Random:
        raise AssertionError("a function with all its uniforms given asks for no generator")


def lattice_report(subject: VerifySubject) -> LatticeReport:
    """Counts of a function that accepts token by token with the first k uniforms and draws with the last one.

    Right counts prove the rule right on the grid. Wrong ones prove nothing against other lossless rules: judge those
    by what they emit.
    """

    def verify(drafts: NDArray[np.int64], draft: Any, target: Any, uniforms: Any) -> tuple[int, ...]:
        case = VerifyInput(tuple(drafts.tolist()), draft, target)
        return subject.call_rows([case], _GivenUniforms(np.asarray(uniforms, dtype=np.float64)))[0].token_ids

    return check_lattice(verify, vocab_size=3, num_draft_tokens=2, resolution=8, num_scenarios=2)
