"""Front end for Python's random module."""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy import array, asarray

from specverify.exact.lazy import shown
from specverify.exact.leaves import Piecewise
from specverify.exact.numpy_arrays import SymbolArray
from specverify.exact.patching import is_library_import, replaced
from specverify.exact.program import Salt
from specverify.exact.python_math import math_replacements
from specverify.exact.run import Run
from specverify.exact.scalar import new_symbol
from specverify.exact.streams import Stream
from specverify.exact.symbols import POWER_E, uniform_symbols

_RealRandom = random.Random
_GLOBAL: Any = random._inst
_GLOBAL_FUNCTIONS = [
    name
    for name in dir(random)
    if not name.startswith("_") and getattr(getattr(random, name), "__self__", None) is _GLOBAL
]
_MAX_INTEGERS = 1_000_000


class SymbolicRandom(_RealRandom):
    """Stands in for random.Random. What it does not know it refuses by name."""

    run: Run
    stream: Stream
    position: int
    _reseeded: Callable[[Any], Stream]

    def __new__(cls, run: Run, stream: Stream, reseeded: Callable[[Any], Stream]) -> SymbolicRandom:
        return super().__new__(cls)

    def __init__(self, run: Run, stream: Stream, reseeded: Callable[[Any], Stream]) -> None:
        self.run = run
        self.stream = stream
        self.position = 0
        self._reseeded = reseeded

    def seed(self, a: Any = None, version: int = 2) -> None:
        if hasattr(self, "run"):
            self.stream, self.position = self._reseeded(a), 0

    def random(self) -> Any:
        return new_symbol(self.run, self._read("double"))

    def uniform(self, a: float, b: float) -> Any:
        return self.random() * (b - a) + a

    def expovariate(self, lambd: float = 1.0) -> Any:
        """-log(1 - random()) / lambd, as in CPython's random.py."""
        return new_symbol(self.run, self._read("double"), POWER_E, mirror=True, b=1.0 / lambd)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> Any:
        start, stop = (0, start) if stop is None else (start, stop)
        values = range(int(start), int(stop), int(step))
        if not values:
            raise ValueError(f"empty range for randrange() ({start}, {stop}, {step})")
        return self._among(array(values) if len(values) <= _MAX_INTEGERS else None, len(values), "randrange")

    def randint(self, a: int, b: int) -> Any:
        return self.randrange(a, b + 1)

    def choice(self, seq: Any) -> Any:
        if not len(seq):
            raise IndexError("Cannot choose from an empty sequence")
        return self._among(_objects(seq), len(seq), "choice")

    def choices(self, population: Any, weights: Any = None, *, cum_weights: Any = None, k: int = 1) -> list[Any]:
        values = _objects(population)
        if cum_weights is None:
            weights = [1.0] * len(values) if weights is None else weights
            cum_weights = list(itertools.accumulate(float(weight) for weight in weights))
        elif weights is not None:
            raise TypeError("Cannot specify both weights and cumulative weights")
        if len(cum_weights) != len(values):
            raise ValueError("The number of weights does not match the population")
        total = float(cum_weights[-1])
        if total <= 0.0:
            raise ValueError("Total of weights must be greater than zero")
        if not math.isfinite(total):
            raise ValueError("Total of weights must be finite")
        # bisect(cum_weights, random() * total, 0, n - 1) in CPython's random.py.
        edges = asarray(cum_weights[:-1], dtype=np.float64) / total
        return [shown(Piecewise(self.run, self._read("double"), edges, values, "random.choices")) for _ in range(k)]

    def __copy__(self) -> SymbolicRandom:
        twin = SymbolicRandom(self.run, self.stream, self._reseeded)
        twin.position = self.position
        return twin

    def __deepcopy__(self, memo: Any) -> SymbolicRandom:
        return self.__copy__()

    def _read(self, kind: str) -> int:
        variable = self.run.read_one(self.stream, self.position, kind)
        self.position += 1
        return variable

    def _among(self, values: Any, count: int, operation: str) -> Any:
        if values is None:
            raise self.run.refuse(f"a draw among {count} integers", f"random.{operation}")
        edges = np.arange(1, count) / count
        return shown(Piecewise(self.run, self._read(f"integers:{count}"), edges, values, f"random.{operation}"))


def _refusing(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise self.run.refuse("this draw has no symbolic form", f"random.{name}")

    return method


for _name in dir(_RealRandom):
    if not _name.startswith("_") and _name not in vars(SymbolicRandom) and callable(getattr(_RealRandom, _name)):
        setattr(SymbolicRandom, _name, _refusing(_name))


class PythonFront:
    """Makes the draws of Python's random module symbolic while a law is enumerated."""

    name = "random"
    generator_types: tuple[type, ...] = (_RealRandom,)

    def __init__(self) -> None:
        self._run: Run | None = None
        self._global: SymbolicRandom | None = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        replacements: dict[tuple[Any, str], Any] = {
            (random, name): self._global_function(name) for name in _GLOBAL_FUNCTIONS
        }
        replacements[random, "Random"] = self._random_class()
        replacements.update(math_replacements())
        with replaced(replacements):
            yield

    def begin_run(self, run: Run) -> None:
        self._run = run
        self._global = None

    def end_run(self) -> None:
        self._run = None

    def generator_state(self, generator: Any) -> Any:
        """State of a real generator, to see whether the program drew from it."""
        return generator.getstate()

    def generator(self, run: Run, stream: Stream) -> SymbolicRandom:
        return SymbolicRandom(run, stream, self._seeded)

    def uniforms(self, run: Run, stream: Stream, shape: tuple[int, ...]) -> Any:
        variables = run.read_stream(stream, 0, math.prod(shape), "double")
        return SymbolArray(uniform_symbols(run, variables, shape), is_shared=True)

    def read_output(self, value: Any) -> Any:
        return NotImplemented

    def reseed(self, seed: int) -> None:
        _GLOBAL.seed(seed)

    @contextmanager
    def salted(self, salt: Salt) -> Iterator[None]:
        def seeded(a: Any = None, version: int = 2) -> None:
            _GLOBAL.seed(f"{a!r} {salt.value}")

        class SaltedRandom(_RealRandom):
            def __init__(self, x: Any = None) -> None:
                super().__init__(f"{x!r} {salt.value}")

        with replaced({(random, "seed"): seeded, (random, "Random"): SaltedRandom}):
            yield

    def _global_function(self, name: str) -> Callable[..., Any]:
        real = getattr(random, name)

        def function(*args: Any, **kwargs: Any) -> Any:
            if self._run is None:
                return real(*args, **kwargs)
            if is_library_import(sys._getframe(1)):
                return _left_as_it_was(real, *args, **kwargs)
            if self._global is None:
                self._global = SymbolicRandom(self._run, self._run.streams.seeded("random", "global"), self._seeded)
            return getattr(self._global, name)(*args, **kwargs)

        function.__name__ = name
        return function

    def _seeded(self, seed: Any) -> Stream:
        assert self._run is not None
        if seed is None:
            return self._run.streams.unseeded()
        self._run.notes.add("the program seeds Python's random itself: the law is over its seeds")
        return self._run.streams.seeded("random", repr(seed))

    def _random_class(self) -> type:
        front = self

        class Meta(type):
            def __call__(cls, x: Any = None) -> Any:
                if front._run is None or is_library_import(sys._getframe(1)):
                    return _RealRandom(x)
                return SymbolicRandom(front._run, front._seeded(x), front._seeded)

            def __instancecheck__(cls, instance: Any) -> bool:
                return isinstance(instance, _RealRandom)

        return Meta("Random", (), {"__doc__": _RealRandom.__doc__, "__module__": "random"})


def _left_as_it_was(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A real draw from the global generator, which then goes back to where it stood."""
    state = _GLOBAL.getstate()
    try:
        return real(*args, **kwargs)
    finally:
        _GLOBAL.setstate(state)


def _objects(population: Any) -> Any:
    values = np.empty(len(population), dtype=object)
    for index, value in enumerate(population):
        values[index] = value.item() if isinstance(value, np.generic) else value
    return values
