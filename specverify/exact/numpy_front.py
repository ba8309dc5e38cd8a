"""Front end for numpy: its generators, its global functions, and the array functions that would read symbols."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from specverify.core.errors import UsageError
from specverify.exact.coarse import Coarse
from specverify.exact.numpy_arrays import SymbolArray, constructed, holds_standin
from specverify.exact.numpy_coarse import CoarseArray
from specverify.exact.numpy_deferred import DeferredArray, decided
from specverify.exact.numpy_draws import Draws
from specverify.exact.numpy_generators import SymbolicGenerator, SymbolicRandomState
from specverify.exact.patching import is_own_caller, replaced
from specverify.exact.program import Salt
from specverify.exact.run import Run
from specverify.exact.scalar import Symbol
from specverify.exact.streams import Stream
from specverify.exact.symbols import uniform_symbols

_Real = Callable[..., Any]
_real_array = np.array
_real_default_rng = np.random.default_rng
_RealGenerator = np.random.Generator
_RealRandomState = np.random.RandomState
_real_seed = np.random.seed
_REAL_BITS = {name: getattr(np.random, name) for name in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")}
# Bytes of its state: 624 words and the position (numpy/random/src/mt19937/mt19937.h).
_MT19937_SIZE = 624 * 4 + 4
# All that numpy.random offers besides classes: methods of the global RandomState, and functions that reach it.
_GLOBAL_FUNCTIONS = [
    name
    for name, value in sorted(vars(np.random).items())
    if not name.startswith("_") and name not in ("default_rng", "test") and callable(value) and type(value) is not type
]
_ALIASES = {"ranf": "random_sample", "sample": "random_sample"}
_CONSTRUCTORS = ("array", "asarray", "asanyarray", "ascontiguousarray", "asfarray")


class NumpyFront:
    """Makes numpy's random draws symbolic while a law is enumerated."""

    name = "numpy"
    generator_types: tuple[type, ...] = (_RealGenerator, _RealRandomState)

    def __init__(self) -> None:
        self.defers_items = True
        self._run: Run | None = None
        self._global: SymbolicRandomState | None = None
        self._bit_generators: dict[int, tuple[Any, Draws]] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        replacements: dict[tuple[Any, str], Any] = {
            (np.random, name): self._global_function(name) for name in _GLOBAL_FUNCTIONS
        }
        replacements[np.random, "default_rng"] = self._default_rng
        replacements[np.random, "Generator"] = _standin_class(_RealGenerator, SymbolicGenerator, self._from_bits)
        replacements[np.random, "RandomState"] = _standin_class(_RealRandomState, SymbolicRandomState, self._legacy)
        constructors = {
            (np, name): self._array_constructor(getattr(np, name)) for name in _CONSTRUCTORS if hasattr(np, name)
        }
        with replaced(replacements), replaced(constructors, everywhere=False):
            yield

    def begin_run(self, run: Run) -> None:
        self._run = run
        run.defers_items = self.defers_items
        self._bit_generators = {}
        self._global = None

    def end_run(self) -> None:
        self._run = None

    def generator_state(self, generator: Any) -> Any:
        """State of a real generator, to see whether the program drew from it."""
        bits = generator.bit_generator if isinstance(generator, _RealGenerator) else generator._bit_generator
        if type(bits) is _REAL_BITS["MT19937"]:
            # Its memory: numpy takes 40 us to make a dictionary of it, and every enumeration asks a dozen times.
            return ctypes.string_at(bits.ctypes.state_address, _MT19937_SIZE)
        return tuple(part.tobytes() if isinstance(part, np.ndarray) else part for part in _flat(bits.state))

    def generator(self, run: Run, stream: Stream) -> SymbolicGenerator:
        return SymbolicGenerator(Draws(run, stream))

    def uniforms(self, run: Run, stream: Stream, shape: tuple[int, ...]) -> SymbolArray:
        variables = run.read_stream(stream, 0, int(np.prod(shape)), "double")
        return SymbolArray(uniform_symbols(run, variables, shape), is_shared=True)

    def read_output(self, value: Any) -> Any:
        if isinstance(value, DeferredArray):
            return _tuples(value.values.tolist())
        if isinstance(value, Symbol | SymbolArray | Coarse | CoarseArray):
            raise value.run.refuse(
                "the program returns a random number; only its decisions have a discrete law", "return"
            )
        return NotImplemented

    def reseed(self, seed: int) -> None:
        _real_seed(seed % 2**32)

    @contextmanager
    def salted(self, salt: Salt) -> Iterator[None]:
        # Generators without a seed take theirs from a count, so that ordinary calls can be repeated.
        unseeded = itertools.count()

        def words(seed: Any) -> list[int]:
            return [next(unseeded), salt.value, 1] if seed is None else [_number(seed), salt.value]

        def default_rng(seed: Any = None) -> Any:
            if isinstance(seed, _RealGenerator | np.random.BitGenerator):
                return _real_default_rng(seed)
            return _RealGenerator(_REAL_BITS["PCG64"](words(seed)))

        def bit_generator(real: Any) -> Any:
            def make(seed: Any = None, **options: Any) -> Any:
                # A counter-based generator may be told its key in place of a seed, and where to begin.
                key = options.pop("key", None)
                return real(words(seed if key is None else key), **options)

            return make

        def seeded(seed: Any = None) -> None:
            _real_seed([word % 2**32 for word in words(seed)])

        class SaltedRandomState(_RealRandomState):
            def __init__(self, seed: Any = None) -> None:
                super().__init__([word % 2**32 for word in words(seed)])

        with ExitStack() as stack:
            stack.enter_context(
                replaced(
                    {
                        (np.random, "default_rng"): default_rng,
                        (np.random, "seed"): seeded,
                        (np.random, "RandomState"): SaltedRandomState,
                        **{(np.random, name): bit_generator(real) for name, real in _REAL_BITS.items()},
                    }
                )
            )
            yield

    # What the program meets in place of numpy's own -----------------------------------------------------------

    def _global_function(self, name: str) -> _Real:
        real = getattr(np.random, name)

        def function(*args: Any, **kwargs: Any) -> Any:
            if self._run is None:
                return real(*args, **kwargs)
            if self._global is None:
                draws = Draws(self._run, self._run.streams.seeded("numpy", "global"))
                self._global = SymbolicRandomState(draws, self._seeded_legacy)
            method = getattr(self._global, _ALIASES.get(name, name), None)
            if method is None:
                raise self._run.refuse("the program reaches for the global generator", f"numpy.random.{name}")
            return method(*args, **kwargs)

        function.__name__ = name
        return function

    def _default_rng(self, seed: Any = None) -> Any:
        if self._run is None or is_own_caller(sys._getframe(1)):
            return _real_default_rng(seed)
        if isinstance(seed, SymbolicGenerator):
            return seed
        if seed is None:
            return SymbolicGenerator(Draws(self._run, self._run.streams.unseeded()))
        if isinstance(seed, np.random.BitGenerator):
            return self._from_bits(seed)
        return self._from_bits(np.random.PCG64(_plain_seed(seed)))

    def _from_bits(self, bits: Any) -> Any:
        if self._run is None or is_own_caller(sys._getframe(2)):
            return _RealGenerator(bits)
        run = self._run
        if id(bits) not in self._bit_generators:
            # Two bit generators in one state read one stream, each at its own place.
            run.notes.add(f"the program seeds its own numpy {type(bits).__name__}: the law is over its seeds")
            stream = run.streams.seeded("numpy", type(bits).__name__, str(bits.state))
            self._bit_generators[id(bits)] = (bits, Draws(run, stream))
        return SymbolicGenerator(self._bit_generators[id(bits)][1])

    def _legacy(self, seed: Any = None) -> Any:
        if self._run is None or is_own_caller(sys._getframe(2)):
            return _RealRandomState(seed)
        run = self._run
        if isinstance(seed, np.random.BitGenerator):
            raise run.refuse("a RandomState on a given bit generator", "numpy.random.RandomState")
        return SymbolicRandomState(self._seeded_legacy(seed), self._seeded_legacy)

    def _seeded_legacy(self, seed: Any) -> Draws:
        run = self._run
        if run is None:
            raise UsageError("numpy.random.seed was called outside the program while its law is enumerated")
        if seed is None:
            return Draws(run, run.streams.unseeded())
        run.notes.add("the program seeds numpy's legacy generator itself: the law is over its seeds")
        return Draws(run, run.streams.seeded("numpy", "legacy", repr(_plain_seed(seed))))

    def _array_constructor(self, real: _Real) -> _Real:
        def constructor(value: Any, *args: Any, **kwargs: Any) -> Any:
            if type(value) is np.ndarray or self._run is None or not holds_standin(value):
                return real(value, *args, **kwargs)
            return constructed(self._run, real, value, *args, **kwargs)

        constructor.__name__ = real.__name__
        return constructor


def _standin_class(real: type, standin: type, make: Callable[..., Any]) -> type:
    """What the program finds under the class's name: calling it makes a stand-in, isinstance works as before."""

    class Meta(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return make(*args, **kwargs)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, real)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, real)

    return Meta(real.__name__, (), {"__doc__": real.__doc__, "__module__": real.__module__})


def _flat(state: Any) -> Iterator[Any]:
    for part in state.values():
        if isinstance(part, dict):
            yield from _flat(part)
        else:
            yield part


def _plain_seed(seed: Any) -> Any:
    seed = decided(seed)
    return seed.tolist() if isinstance(seed, np.ndarray | np.generic) else seed


def _number(seed: Any) -> int:
    import zlib

    return zlib.crc32(repr(_plain_seed(seed)).encode())


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value
