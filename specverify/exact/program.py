"""Where a program under enumeration gets its randomness from, and what a library's front end must offer."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy import asarray  # numpy's own, also while a law is enumerated
from numpy.typing import NDArray

from specverify.core.errors import UsageError
from specverify.exact.run import Run
from specverify.exact.streams import Stream

if TYPE_CHECKING:
    import random

    import torch

Shape = int | tuple[int, ...]

# Laws may come in single precision, whose rounding adds up to less than this.
_LAW_TOLERANCE = 1e-6
# The class itself: what programs find under its name mixes a salt into its seed.
_RealBits = np.random.PCG64


class RandomSource(Protocol):
    """What a program may ask for. Every call gives an independent source of randomness.

    uniforms and torch_uniforms are for programs that take their uniforms as an argument. choose is for the test's own
    draws, such as the draft tokens: an index drawn from a known law, [n], that sums to 1 within 1e-6. It is no random
    call of the program: one that makes no other is not taken for a random one.
    """

    def choose(self, law: Sequence[float] | NDArray[np.float64]) -> int: ...
    def numpy_generator(self) -> np.random.Generator: ...
    def torch_generator(self) -> torch.Generator: ...
    def python_random(self) -> random.Random: ...
    def uniforms(self, shape: Shape) -> NDArray[np.float64]: ...
    def torch_uniforms(self, shape: Shape) -> torch.Tensor: ...


Program = Callable[[RandomSource], Any]
"""A program returns ints, or nested tuples, lists, arrays or tensors of ints."""


class Salt:
    """A number that ordinary calls mix into every seed that the program sets, so that its law over seeds shows."""

    def __init__(self) -> None:
        self.value = 0


class FrontEnd(Protocol):
    """How one library's random calls become symbols. One object serves one enumeration.

    installed: patches the library for the whole enumeration. begin_run and end_run bracket every run; end_run is
    called after a failure too. generator and uniforms serve a SymbolicSource. read_output turns a value of the
    library's own types into nested tuples of numbers and Deferreds (NotImplemented for other types). reseed seeds the
    library's real global generators, which a program must not reach while it is enumerated. salted patches the
    library for ordinary calls: seeds set by the program are mixed with the salt.
    """

    name: str

    def installed(self) -> AbstractContextManager[None]: ...
    def begin_run(self, run: Run) -> None: ...
    def end_run(self) -> None: ...
    def generator(self, run: Run, stream: Stream) -> Any: ...
    def uniforms(self, run: Run, stream: Stream, shape: tuple[int, ...]) -> Any: ...
    def read_output(self, value: Any) -> Any: ...
    def reseed(self, seed: int) -> None: ...
    def salted(self, salt: Salt) -> AbstractContextManager[None]: ...


class NativeSource:
    """Real generators from one seed, for ordinary calls. choice_seed: another seed for what `choose` draws."""

    def __init__(self, seed: int, *, choice_seed: int | None = None) -> None:
        self.seed = seed
        self._num_sources = 0
        self._choice_seed = seed if choice_seed is None else choice_seed
        self._choices: np.random.Generator | None = None

    def choose(self, law: Sequence[float] | NDArray[np.float64]) -> int:
        if self._choices is None:
            # Other sources are numbered from 1.
            self._choices = np.random.Generator(_RealBits([self._choice_seed, 0]))
        weights = known_law(law)
        return int(self._choices.choice(len(weights), p=weights))

    def numpy_generator(self) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(self._next()))

    def torch_generator(self) -> torch.Generator:
        import torch

        generator = torch.Generator()
        generator.manual_seed(int(np.random.SeedSequence(self._next()).generate_state(1, np.uint64)[0] >> np.uint64(1)))
        return generator

    def python_random(self) -> random.Random:
        import random

        return random.Random(repr(self._next()))

    def uniforms(self, shape: Shape) -> NDArray[np.float64]:
        return np.random.Generator(np.random.PCG64(self._next())).random(shape)

    def torch_uniforms(self, shape: Shape) -> torch.Tensor:
        import torch

        sizes = (shape,) if isinstance(shape, int) else shape
        return torch.rand(sizes, generator=self.torch_generator(), dtype=torch.float64)

    def _next(self) -> list[int]:
        self._num_sources += 1
        return [self.seed, self._num_sources]


class SymbolicSource:
    """The source that a program gets while it is enumerated."""

    def __init__(self, run: Run, front_ends: Sequence[FrontEnd]) -> None:
        self._run = run
        self._front_ends = {front_end.name: front_end for front_end in front_ends}
        self._num_sources = 0

    @property
    def path_number(self) -> int:
        """Which path this is, from 1 on; 0 where it is one that is run again, to see whether it repeats."""
        return 0 if self._run.poison_seed else self._run.stack.num_runs

    def choose(self, law: Sequence[float] | NDArray[np.float64]) -> int:
        return self._run.choose(known_law(law), "choose")

    def numpy_generator(self) -> Any:
        return self._front_end("numpy").generator(self._run, self._next())

    def torch_generator(self) -> Any:
        return self._front_end("torch").generator(self._run, self._next())

    def python_random(self) -> Any:
        return self._front_end("random").generator(self._run, self._next())

    def uniforms(self, shape: Shape) -> Any:
        return self._front_end("numpy").uniforms(self._run, self._next(), _sizes(shape))

    def torch_uniforms(self, shape: Shape) -> Any:
        return self._front_end("torch").uniforms(self._run, self._next(), _sizes(shape))

    def _next(self) -> Stream:
        self._num_sources += 1
        return self._run.streams.seeded("source", self._num_sources)

    def _front_end(self, name: str) -> FrontEnd:
        if name not in self._front_ends:
            raise UsageError(f"no front end for {name}; give one of {sorted(self._front_ends)} or import {name} first")
        return self._front_ends[name]


def known_law(law: Sequence[float] | NDArray[np.float64]) -> tuple[float, ...]:
    """The law with rounding taken out, so that it sums to 1. Raises UsageError where it is none."""
    return _summing_to_one(asarray(law, dtype=np.float64).tobytes())


@functools.lru_cache(maxsize=4096)
def _summing_to_one(law: bytes) -> tuple[float, ...]:
    """Remembered: an enumeration meets the same law in many runs."""
    weights: list[float] = np.frombuffer(law).tolist()
    total = math.fsum(weights)
    if not (min(weights, default=-1.0) >= 0.0 and abs(total - 1.0) <= _LAW_TOLERANCE):
        raise UsageError(f"choose() needs a law: weights of 0 or more that sum to 1; these sum to {total!r}")
    return tuple(weight / total for weight in weights)


def default_front_ends() -> list[FrontEnd]:
    """numpy, random, and torch where it has been imported."""
    from specverify.exact.numpy_front import NumpyFront
    from specverify.exact.python_front import PythonFront

    front_ends: list[FrontEnd] = [NumpyFront(), PythonFront()]
    if "torch" in sys.modules:
        from specverify.exact.torch_front import TorchFront

        front_ends.append(TorchFront())
    return front_ends


def _sizes(shape: Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)
