"""Stand-ins for numpy's Generator and RandomState: what they draw is symbolic; what is not known is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from specverify.exact.numpy_arrays import SINGLE_PRECISION_NOTE
from specverify.exact.numpy_draws import Draws

# The stand-ins are real subclasses, so that isinstance holds; what they inherit is never drawn from.
_UNUSED_BITS = np.random.PCG64(0)
_UNUSED_LEGACY_BITS = np.random.MT19937(0)
_RealGenerator = np.random.Generator
_RealRandomState = np.random.RandomState


class _SharedDraws:
    """What both stand-ins draw in the same way."""

    draws: Draws

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
        return self.draws.uniform_between(low, high, size)

    def gumbel(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        return self.draws.gumbel(loc, scale, size)

    def multinomial(self, n: Any, pvals: Any, size: Any = None) -> Any:
        return self.draws.multinomial(n, pvals, size)

    def binomial(self, n: Any, p: Any, size: Any = None) -> Any:
        if n != 1:
            raise self.draws.run.refuse("a binomial draw of more than one trial", "binomial")
        return self.draws.bernoulli(p, size)


class SymbolicGenerator(_SharedDraws, _RealGenerator):
    """Stands in for numpy.random.Generator."""

    def __new__(cls, draws: Draws) -> SymbolicGenerator:
        return super().__new__(cls)

    def __init__(self, draws: Draws) -> None:
        super().__init__(_UNUSED_BITS)
        self.draws = draws

    def random(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        if out is not None:
            raise self.draws.run.refuse("random numbers are written into an ordinary array", "random with out=")
        is_single = np.dtype(dtype) == np.float32 if dtype is not np.float64 else False
        if is_single:
            self.draws.run.notes.add(SINGLE_PRECISION_NOTE)
        return self.draws.uniform(size, kind="float" if is_single else "double", dtype=dtype)

    def standard_exponential(
        self, size: Any = None, dtype: Any = np.float64, method: str = "zig", out: Any = None
    ) -> Any:
        if out is not None:
            raise self.draws.run.refuse("random numbers are written into an ordinary array", "exponential with out=")
        kind = "double" if method == "inv" else f"exponential:{np.dtype(dtype).name}"
        return self.draws.exponential(1.0, size, kind=kind, mirror=method == "inv", dtype=dtype)

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
        return self.draws.exponential(scale, size, kind="exponential:float64", mirror=False)

    def integers(
        self, low: Any, high: Any = None, size: Any = None, dtype: Any = np.int64, endpoint: bool = False
    ) -> Any:
        low, high = (0, low) if high is None else (low, high)
        return self.draws.integers(low, int(high) + int(endpoint), size, kind=f"integers:{np.dtype(dtype).name}")

    def choice(
        self, a: Any, size: Any = None, replace: bool = True, p: Any = None, axis: int = 0, shuffle: bool = True
    ) -> Any:
        return self.draws.choice(a, size, replace, p, shuffle=shuffle, kind="integers:int64")

    def __copy__(self) -> SymbolicGenerator:
        return SymbolicGenerator(Draws(self.draws.run, self.draws.stream, self.draws.position))

    def __deepcopy__(self, memo: Any) -> SymbolicGenerator:
        return self.__copy__()

    @property
    def bit_generator(self) -> Any:
        raise self.draws.run.refuse("the program reaches for the bit generator", "Generator.bit_generator")

    def __reduce__(self) -> Any:
        raise self.draws.run.refuse("the program pickles a generator", "Generator.__reduce__")


class SymbolicRandomState(_SharedDraws, _RealRandomState):
    """Stands in for numpy.random.RandomState and, for one object, for the functions of numpy.random."""

    def __new__(cls, draws: Draws, seeded: Callable[[Any], Draws]) -> SymbolicRandomState:
        return super().__new__(cls)

    def __init__(self, draws: Draws, seeded: Callable[[Any], Draws]) -> None:
        super().__init__(_UNUSED_LEGACY_BITS)
        self.draws = draws
        self._seeded = seeded

    def seed(self, seed: Any = None) -> None:
        self.draws = self._seeded(seed)

    def random_sample(self, size: Any = None) -> Any:
        return self.draws.uniform(size)

    random = random_sample

    def rand(self, *size: Any) -> Any:
        return self.draws.uniform(size or None)

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Any:
        return self.draws.exponential(scale, size, kind="double", mirror=True)

    def standard_exponential(self, size: Any = None) -> Any:
        return self.exponential(1.0, size)

    def randint(self, low: Any, high: Any = None, size: Any = None, dtype: Any = int) -> Any:
        low, high = (0, low) if high is None else (low, high)
        return self.draws.integers(low, high, size, kind="randint")

    def choice(self, a: Any, size: Any = None, replace: bool = True, p: Any = None) -> Any:
        return self.draws.choice(a, size, replace, p, shuffle=True, kind="randint")

    def __reduce__(self) -> Any:
        raise self.draws.run.refuse("the program pickles a generator", "RandomState.__reduce__")


def _refusing(class_name: str, name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise self.draws.run.refuse("this draw has no symbolic form", f"numpy.random.{class_name}.{name}")

    method.__name__ = name
    return method


def _refuse_the_rest(standin: type, real: type) -> None:
    """Gives every inherited public method a body that refuses: no draw may reach the real generator by omission."""
    for name in dir(real):
        if (
            not name.startswith("_")
            and name not in {**vars(standin), **vars(_SharedDraws)}
            and callable(getattr(real, name))
        ):
            setattr(standin, name, _refusing(real.__name__, name))


_refuse_the_rest(SymbolicGenerator, _RealGenerator)
_refuse_the_rest(SymbolicRandomState, _RealRandomState)
