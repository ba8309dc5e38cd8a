"""torch under enumeration: every random call becomes symbols, every operation on them is seen or refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from specverify.exact import torch_draws, torch_ops_move, torch_ops_real, torch_ops_reduce
from specverify.exact.deferred import Deferred, combined
from specverify.exact.events import Condition
from specverify.exact.program import Salt
from specverify.exact.run import Run
from specverify.exact.streams import Stream
from specverify.exact.symbols import uniform_symbols
from specverify.exact.torch_calls import SymbolicCalls
from specverify.exact.torch_focus import FocusRow
from specverify.exact.torch_memory import Unwatched, nested, raw_list
from specverify.exact.torch_mode import SymbolicMode
from specverify.exact.torch_state import TorchState

__all__ = ["FocusRow", "TorchFront"]

# Loading these modules files their handlers.
_HANDLERS = (torch_draws, torch_ops_move, torch_ops_real, torch_ops_reduce)
_AMBIENT_SEED = 1_750_031
_SOURCE_SEED = 7_368_787
_MIX = 0x9E3779B97F4A7C15


class TorchFront:
    """The front end for torch; one object serves one enumeration.

    focus: the row of a batch whose law is wanted. The random draws of the other rows are then made natively, from
    the same fixed seeds in every run, so that the number of runs does not depend on the size of the batch.
    defers_items: item() and tolist() give integers that decide themselves when looked at; otherwise they are decided
    at once, which costs more runs but suits code that insists on Python ints (the enumerator tries that second).
    """

    name = "torch"

    def __init__(self, *, focus: FocusRow | None = None, defers_items: bool = True) -> None:
        self.focus = focus
        self.mode = SymbolicMode()
        self.calls = SymbolicCalls()
        self.defers_items = defers_items
        self._generators: dict[int, tuple[torch.Generator, torch.Tensor]] = {}
        self._num_sources = 0
        self._kept: list[Any] = []
        # The first dispatch under a mode imports a part of torch that draws random numbers of its own.
        with SymbolicMode():
            torch.zeros(1).add_(1)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Both modes, for the whole enumeration; generators are put back as they were."""
        ambient = torch.get_rng_state()
        has_cuda = _has_cuda()
        ambient_cuda = torch.cuda.get_rng_state_all() if has_cuda else []
        try:
            with _uncompiled(), self.mode, self.calls:
                yield
        finally:
            torch.set_rng_state(ambient)
            if has_cuda:
                torch.cuda.set_rng_state_all(ambient_cuda)
            self._restore_generators()

    def begin_run(self, run: Run) -> None:
        self.reseed(_AMBIENT_SEED + run.poison_seed)
        self._restore_generators()
        self._num_sources = 0
        state = TorchState(run, self.focus)
        state.streams.on_first_sight = self._remember
        with Unwatched():
            state.streams.begin(torch.default_generator)
        self._kept = [shadow for shadow in self._kept if shadow.is_held_elsewhere]
        if self._kept:
            state.store.adopt(self._kept, state.elements.add(Leftover(run)))
        self.calls.defers_items = self.defers_items
        self.mode.state = self.calls.state = state

    def end_run(self) -> None:
        state = self.mode.state
        self.mode.state = self.calls.state = None
        if state is not None:
            # Filed with the run rather than raised: this also runs after a failure, which must not be hidden.
            with Unwatched():
                state.streams.note_unseen_moves()
            self._kept = state.store.outlive()
            self._forget_finished_generators()

    def generator(self, run: Run, stream: Stream) -> torch.Generator:
        self._num_sources += 1
        return torch.Generator().manual_seed(_SOURCE_SEED + self._num_sources)

    def uniforms(self, run: Run, stream: Stream, shape: tuple[int, ...]) -> torch.Tensor:
        state = self.mode.state
        assert state is not None
        with state.aside():
            result = torch.zeros(shape, dtype=torch.float64)
            variables = run.read_stream(stream, stream.length, result.numel(), "uniform")
            return state.put_symbols(result, uniform_symbols(run, variables, shape))

    def read_output(self, value: Any) -> Any:
        """A tensor as nested tuples of numbers and undecided numbers."""
        if not isinstance(value, torch.Tensor):
            return NotImplemented
        state = self.mode.state
        if state is None:
            return _tuples(value.tolist())
        with state.aside():
            ids = state.ids(value)
            plain = raw_list(value)
            if ids is not None:
                if (ids > 0).any():
                    raise state.run.refuse("the program returns a continuous random value", "output")
                plain = state.objects(ids.ravel().tolist(), plain)
                if value.dtype is not torch.bool:
                    plain = [combined(int, item) if isinstance(item, Condition) else item for item in plain]
            return _tuples(nested(plain, tuple(value.shape)))

    def reseed(self, seed: int) -> None:
        # Not torch.manual_seed: where CUDA is not yet in use it keeps a stack trace of every call.
        torch.default_generator.manual_seed(seed)
        if _has_cuda():
            torch.cuda.manual_seed_all(seed)

    @contextmanager
    def salted(self, salt: Salt) -> Iterator[None]:
        """For ordinary calls: seeds that the program sets are mixed with the salt."""
        generator_type, manual_seed = torch.Generator, torch.manual_seed

        class SaltedGenerator(generator_type):  # type: ignore[misc, valid-type]
            def __init__(self, device: Any = "cpu") -> None:
                # Without a seed a generator starts from a constant, the same in every process.
                self.manual_seed(self.initial_seed())

            def manual_seed(self, seed: int) -> Any:
                return super().manual_seed(_mixed(seed, salt.value))

        def salted_manual_seed(seed: int) -> Any:
            return manual_seed(_mixed(seed, salt.value))

        torch.Generator = SaltedGenerator  # type: ignore[misc]
        torch.manual_seed = torch.random.manual_seed = salted_manual_seed
        try:
            yield
        finally:
            torch.Generator = generator_type  # type: ignore[misc]
            torch.manual_seed = torch.random.manual_seed = manual_seed

    def _remember(self, generator: torch.Generator) -> None:
        if generator is not torch.default_generator and id(generator) not in self._generators:
            self._generators[id(generator)] = (generator, generator.get_state())

    def _restore_generators(self) -> None:
        """Puts generators that the subject keeps between calls back to where the first run found them."""
        for generator, state in self._generators.values():
            generator.set_state(state)

    def _forget_finished_generators(self) -> None:
        """Drops generators that nobody else holds: the program made them for one call."""
        # Held here by the tuple, the loop variable and the argument of getrefcount.
        for key in [key for key, (generator, _) in self._generators.items() if sys.getrefcount(generator) <= 3]:
            del self._generators[key]


def _has_cuda() -> bool:
    """Whether CUDA is in use: asking more of it would start it."""
    return torch.cuda.is_initialized() and torch.cuda.is_available()  # type: ignore[no-untyped-call]


class Leftover(Deferred):
    """A random number of an earlier call, in memory that the program keeps between calls."""

    __slots__ = ()

    def _decide(self) -> Any:
        raise self.run.refuse(
            "a random value of an earlier call is used again: the program keeps state", "a kept tensor"
        )

    def leaves(self) -> Any:
        return iter((self.resolve(),))

    def value_given(self, values: dict[int, Any]) -> Any:
        return self.resolve()


@contextmanager
def _uncompiled() -> Iterator[None]:
    """torch.compile'd functions run as the Python code that they were made from, which the modes can see."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def _mixed(seed: int, salt: int) -> int:
    return (int(seed) * _MIX + salt * 0xD1B54A32D192ED03 + 12345) % (1 << 63)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value
