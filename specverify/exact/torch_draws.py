"""Random draws of torch: each is run natively, which moves its generator, and its numbers are replaced by symbols."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy import array

from specverify.exact import algebra
from specverify.exact.coarse import note_half
from specverify.exact.conditions import Conditions
from specverify.exact.deferred import Deferred
from specverify.exact.leaves import Categorical
from specverify.exact.scalar import Symbol, new_symbol
from specverify.exact.symbols import POWER_E, exponential_symbols, uniform_symbols
from specverify.exact.torch_coarse import HALVES, MOST_TIED, drawn, multinomial_law, name_of
from specverify.exact.torch_elements import SMALL, Ids
from specverify.exact.torch_memory import to_numbers
from specverify.exact.torch_plan import DRAWS, Call
from specverify.exact.torch_successive import Rank, SuccessiveDraws

# Uniform integers from a wider range are refused: they are seeds, not tokens.
_MAX_RANGE = 1 << 17


def _generator(call: Call, device: torch.device) -> torch.Generator:
    generator = call["generator"]
    if generator is not None:
        return generator  # type: ignore[no-any-return]
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]
        return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    return torch.default_generator


def _device(call: Call) -> torch.device:
    owner = call["self"]
    if call["device"] is not None:
        return torch.device(call["device"])
    return owner.device if isinstance(owner, torch.Tensor) else torch.get_default_device()


def _drawn(call: Call) -> tuple[torch.Tensor, Any]:
    return call.state.streams.run_natively(_generator(call, _device(call)), call.native)


def _variables(call: Call, result: torch.Tensor, reading: Any, kind: tuple[object, ...]) -> Ids:
    """The uniform variables behind the elements of a random tensor, in its shape."""
    run = call.state.run

    def make(count: int) -> Ids:
        first = run.unseeded_variables(count)
        return np.arange(first, first + count, dtype=np.int64)

    variables = call.state.streams.numbers(reading, kind=kind, count=result.numel(), dtype=result.dtype, make=make)
    return variables.reshape(tuple(result.shape))


def _put(call: Call, result: torch.Tensor, ids: Ids) -> torch.Tensor:
    """Files the ids, but only for the focus row where there is one; other rows keep what was drawn natively."""
    focus = call.state.focus
    own = focus.mask(tuple(result.shape)) if focus is not None else None
    return call.state.put_ids(result, ids if own is None else np.where(own, ids, 0))


def _uniform(call: Call) -> Any:
    result, reading = _drawn(call)
    if not result.dtype.is_floating_point:
        raise call.refuse("uniform draws of this type are not modelled")
    state, shape = call.state, tuple(result.shape)
    is_half = result.dtype in HALVES
    variables = _variables(call, result, reading, (f"uniform of {name_of(result.dtype)}" if is_half else "uniform",))
    if is_half and not state.run.halves_are_fine:
        return _put(call, result, drawn(call, result, variables))
    low, high = (0.0, 1.0) if call["from"] is None else (float(call["from"]), float(call["to"]))
    _note_single(call, result.dtype)
    if variables.size <= SMALL:
        symbols = (new_symbol(state.run, variable, a=low, b=high - low) for variable in variables.ravel().tolist())
        return _put(call, result, _filed(call, symbols, shape))
    block = uniform_symbols(state.run, variables, shape)
    if (low, high) != (0.0, 1.0):
        block = algebra.shift(algebra.scale(block, high - low), low)
    return _put(call, result, state.elements.add_symbols(block))


def _filed(call: Call, symbols: Iterable[Symbol], shape: tuple[int, ...]) -> Ids:
    return array([call.state.elements.add(symbol) for symbol in symbols], dtype=np.int64).reshape(shape)


def _require_fine(call: Call, dtype: torch.dtype) -> None:
    """Refuses exponentials of half precision, for a race knows no ties. Notes those of single precision."""
    if dtype in HALVES:
        raise call.refuse(f"exponentials of type {dtype} tie, and a race with ties is not modelled")
    _note_single(call, dtype)


def _note_single(call: Call, dtype: torch.dtype) -> None:
    if dtype is torch.float32:
        call.state.run.notes.add(
            "random numbers of type torch.float32 have 24 bits: the probability of a comparison is off by up to 2^-24 "
            "from this law"
        )


def _exponential(call: Call) -> Any:
    result, reading = _drawn(call)
    rate = float(call["lambd"])
    _require_fine(call, result.dtype)
    variables = _variables(call, result, reading, ("exponential", result.dtype))
    state, shape = call.state, tuple(result.shape)
    if variables.size <= SMALL:
        symbols = (new_symbol(state.run, variable, POWER_E, b=1.0 / rate) for variable in variables.ravel().tolist())
        return _put(call, result, _filed(call, symbols, shape))
    block = exponential_symbols(state.run, variables, shape, scale=1.0 / rate)
    return _put(call, result, state.elements.add_symbols(block))


def _bernoulli(call: Call) -> Any:
    state = call.state
    source, p = call["self"], call["p"]
    chances = source if p is None else p
    if state.is_continuous(chances):
        raise call.refuse("a coin whose probability is a random value is not modelled")
    state.settle([chances], call.func)
    result, reading = _drawn(call)
    shape = tuple(result.shape)
    variables = _variables(call, result, reading, ("bernoulli", result.dtype))
    numbers = to_numbers(chances) if isinstance(chances, torch.Tensor) else array(float(chances))
    threshold = np.broadcast_to(numbers, shape).astype(np.float64)
    block = Conditions(state.run, variables, threshold, np.ones(shape, dtype=np.bool_))
    return _put(call, result, state.elements.add_conditions(block))


def _multinomial(call: Call) -> Any:
    state, source = call.state, call["self"]
    if state.is_continuous(source):
        raise call.refuse("multinomial weights that are random values are not modelled")
    state.settle([source], call.func)
    weights = to_numbers(source).reshape(-1, source.shape[-1])
    result, reading = _drawn(call)
    num_draws, replacement = int(call["num_samples"]), bool(call["replacement"])
    operation = "multinomial"
    has_ties = (
        source.dtype in HALVES and num_draws == 1 and weights.shape[1] <= MOST_TIED and source.device.type == "cpu"
        and not state.run.halves_are_fine
    )  # fmt: skip
    if has_ties:
        note_half(state.run, name_of(source.dtype))
    elif (num_draws == 1 or not replacement) and not state.run.halves_are_fine:
        # Source: torch divides the weights by exponentials of their own type, and takes the largest.
        _require_fine(call, source.dtype)

    def make(count: int) -> Ids:
        state.run.num_random_calls += 1
        nodes: list[Deferred] = []
        for row in weights:
            if num_draws == 1 or replacement:
                law = multinomial_law(tuple(row.tolist()), source.dtype) if has_ties else row / row.sum()
                nodes.extend(Categorical(state.run, np.arange(len(row)), law, operation) for _ in range(num_draws))
            else:
                draws = SuccessiveDraws(state.run, row, operation)
                nodes.extend(Rank(state.run, draws, number) for number in range(num_draws))
        return array([state.elements.add(node) for node in nodes], dtype=np.int64)

    kind = (operation, num_draws, replacement, source.dtype, weights.tobytes())
    ids = state.streams.numbers(reading, kind=kind, count=result.numel(), dtype=result.dtype, make=make)
    return _put(call, result, ids.reshape(tuple(result.shape)))


def _randint(call: Call) -> Any:
    low = int(call["low"] or 0) if "low" in call.values else 0
    return _integers(call, low, int(call["high"]))


def _random_(call: Call) -> Any:
    low = int(call["from"] or 0)
    if call["to"] is None:
        raise call.refuse("random integers over the whole range of their type are not modelled")
    return _integers(call, low, int(call["to"]))


def _integers(call: Call, low: int, high: int) -> Any:
    state = call.state
    if high - low > _MAX_RANGE:
        raise call.refuse(f"random integers from a range of {high - low} are not modelled (at most {_MAX_RANGE})")
    result, reading = _drawn(call)
    values = np.arange(low, high)
    law = np.full(len(values), 1.0 / len(values))

    def make(count: int) -> Ids:
        state.run.num_random_calls += 1
        nodes = (Categorical(state.run, values, law, "randint") for _ in range(count))
        return array([state.elements.add(node) for node in nodes], dtype=np.int64)

    ids = state.streams.numbers(
        reading, kind=("randint", low, high), count=result.numel(), dtype=result.dtype, make=make
    )
    return _put(call, result, ids.reshape(tuple(result.shape)))


def _randperm(call: Call) -> Any:
    state = call.state
    result, reading = _drawn(call)

    def make(count: int) -> Ids:
        state.run.num_random_calls += 1
        draws = SuccessiveDraws(state.run, np.ones(count), "randperm")
        nodes = (Rank(state.run, draws, number) for number in range(count))
        return array([state.elements.add(node) for node in nodes], dtype=np.int64)

    ids = state.streams.numbers(reading, kind=("randperm",), count=result.numel(), dtype=result.dtype, make=make)
    return _put(call, result, ids)


DRAWS.update(dict.fromkeys(("rand", "rand_like", "uniform_", "uniform"), _uniform))
DRAWS.update(dict.fromkeys(("exponential_", "exponential"), _exponential))
DRAWS.update(dict.fromkeys(("bernoulli", "bernoulli_"), _bernoulli))
DRAWS.update({"multinomial": _multinomial, "randint": _randint, "randperm": _randperm})
DRAWS.update(dict.fromkeys(("random_", "random"), _random_))
