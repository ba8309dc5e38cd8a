"""Random numbers of half precision in tensors: each operation is run by torch on all values that they can have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy import array
from numpy.typing import NDArray

from specverify.exact.coarse import (
    Coarse,
    even_cells,
    meeting,
    note_half,
    rounded_uniform,
    wrapped_cells,
)
from specverify.exact.columns import Floats
from specverify.exact.deferred import Deferred, resolved
from specverify.exact.leaves import Piecewise
from specverify.exact.opaque import Opaque
from specverify.exact.scalar import Symbol
from specverify.exact.torch_elements import Ids
from specverify.exact.torch_functions import BINARY, UNARY
from specverify.exact.torch_plan import Call
from specverify.exact.torch_state import TorchState

HALVES = (torch.bfloat16, torch.float16)
# Longer rows of weights for torch.multinomial are refused: each weight needs a table of thousands of quotients.
MOST_TIED = 64
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_ELEMENTWISE = (
    *BINARY, *UNARY, *_COMPARISONS, "clamp", "clamp_min", "clamp_max", "clip", "minimum", "maximum", "fmin", "fmax",
     "floor", "ceil", "round", "trunc", "isnan", "isinf", "isposinf", "isneginf", "sigmoid",
)  # fmt: skip
# Draws of both types that show how torch makes one from the other; every value near 1 is among them many times.
_TRIALS = 1 << 15


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# Where they come from -------------------------------------------------------------------------------------------------


def drawn(call: Call, result: torch.Tensor, variables: NDArray[np.int64]) -> Ids:
    """Ids of uniforms drawn in half precision."""
    state, dtype = call.state, result.dtype
    if call["from"] is not None and (float(call["from"]), float(call["to"])) != (0.0, 1.0):
        raise call.refuse("uniforms of half precision are modelled on [0, 1) only")
    cells = _drawn_cells(dtype, result.device.type)
    if cells is None:
        raise call.refuse("this version of torch draws uniforms of half precision in a way that is not modelled")
    edges, table = cells
    note_half(state.run, name_of(dtype))
    add = state.elements.add_coarse
    ids = [add(Coarse(state.run, variable, edges, table)) for variable in variables.ravel().tolist()]
    return array(ids, dtype=np.int64).reshape(variables.shape)


@functools.cache
def _drawn_cells(dtype: torch.dtype, device: str) -> tuple[Floats, torch.Tensor] | None:
    """Cells and values of such a uniform, found out by drawing some; None where they are neither kind known.

    Sources: since 2.13 torch rounds a float32 uniform and returns 0 for 1, on the CPU as on CUDA; before, the CPU took
    as many bits as the significand has, 8 or 11 (uniform_kernel in ATen/native/cpu/DistributionTemplates.h).
    """
    single, half = (
        torch.rand(_TRIALS, dtype=kind, device=device, generator=torch.Generator(device).manual_seed(1))
        for kind in (torch.float32, dtype)
    )
    rounded = single.to(dtype)
    bits = {torch.bfloat16: 8, torch.float16: 11}[dtype]
    multiples = half.double() * 2**bits
    if torch.equal(half, torch.where(rounded == 1.0, 0.0, rounded).to(dtype)):
        edges, values = wrapped_cells(name_of(dtype))
    elif torch.equal(multiples, multiples.floor()) and bool((half < 1.0).all()):
        edges, values = even_cells(bits)
    else:
        return None
    return edges, torch.from_numpy(values).to(dtype)


def converted(state: TorchState, ids: Ids, source: torch.dtype, target: torch.dtype) -> Ids:
    """Ids of the same elements in another type, for those that are or become coarse; the others keep theirs."""
    becomes_half = target in HALVES and source not in HALVES and not state.run.halves_are_fine
    result = ids.copy()
    for position in map(tuple, np.argwhere(ids > 0).tolist()):
        number = state.elements.get(int(ids[position]))
        if isinstance(number, Coarse):
            if number.is_number:
                number.refuse("a type conversion")
            table = number.table.to(target)
            own, number = number, number.with_table(table if target.is_floating_point else table.numpy())
        elif becomes_half:
            own = number = rounded_uniform(
                number, name_of(target), is_single=source is torch.float32, via_single=True,
                table=lambda values: torch.from_numpy(values).to(target),
            )  # fmt: skip
        else:
            continue
        result[position] = _filed(state, own, number)
    return result


def _filed(state: TorchState, first: Coarse, number: Any) -> int:
    if isinstance(number, Coarse):
        return state.elements.add_coarse(number)
    if not isinstance(number, Deferred):
        number = Piecewise(first.run, first.variable, np.zeros(0), array([number]), "type conversion")
    return state.elements.add(number)


# What is done with them -----------------------------------------------------------------------------------------------


def holds_coarse(call: Call) -> bool:
    """Whether an element of any argument is coarse."""
    get = call.state.elements.get
    every = (call.state.ids(value) for value in call.values.values())
    return any(isinstance(get(int(one)), Coarse) for ids in every if ids is not None for one in np.unique(ids[ids > 0]))


def tabled(call: Call) -> Any:
    """An elementwise operation: element by element, on all values at once."""
    state, result = call.state, call.native()
    shape = tuple(result.shape)
    tensors = {id(value): value for value in call.values.values() if isinstance(value, torch.Tensor)}
    columns = [state.items(value, shape) for value in tensors.values()]
    items = [_element(call, tensors, parts, result.dtype) for parts in zip(*columns, strict=True)]
    return state.put_items(result, items, are_truths=result.dtype is torch.bool)


def _element(call: Call, tensors: dict[int, torch.Tensor], parts: tuple[Any, ...], dtype: torch.dtype) -> Any:
    """One element of the result; None where nothing random goes in. parts: of each tensor."""
    if not any(isinstance(part, Opaque) for part in parts):
        return None
    if any(isinstance(part, Symbol) for part in parts):
        raise call.refuse("random numbers of half precision are combined with others")
    coarse = [part for part in parts if isinstance(part, Coarse)]
    is_flat = not any(value.dim() for value in tensors.values())
    operands: dict[int, torch.Tensor] = {}
    for (key, value), part in zip(tensors.items(), parts, strict=True):
        if isinstance(part, Coarse):
            others = [other for other in tensors.values() if other is not value]
            operands[key] = _table(call, part, value, others, is_wide=is_flat or value.dim() > 0)
        else:
            number = torch.tensor(resolved(part), dtype=value.dtype)
            operands[key] = number.reshape(1) if is_flat or value.dim() else number
    table = _run(call, operands)
    if table.dtype is not dtype:
        raise call.refuse(f"an operation on random numbers of half precision gives {table.dtype} and not {dtype}")
    if not coarse:
        return table.item()
    return meeting(coarse).with_table(table if dtype.is_floating_point else table.numpy())


def _table(
    call: Call, number: Coarse, value: torch.Tensor, others: list[torch.Tensor], *, is_wide: bool
) -> torch.Tensor:
    """All values, as a tensor that torch promotes as it promotes the operand itself.

    A tensor without dimensions, or a Python float, would take the type of the other operand; a table has one
    dimension. So it is given that type here, where this rounds nothing.
    """
    table: torch.Tensor = torch.from_numpy(number.table) if number.is_number else number.table
    if not others or (is_wide and not number.is_number):
        return table
    common = others[0].dtype if number.is_number else torch.result_type(value, others[0])
    is_known = call.name in _COMPARISONS if number.is_number else len(others) == 1
    if not is_known or not common.is_floating_point or not torch.equal(table.to(common).double(), table.double()):
        raise call.refuse(f"a single random number of half precision meets a tensor of {others[0].dtype}")
    return table.to(common)


def _run(call: Call, operands: dict[int, torch.Tensor]) -> torch.Tensor:
    """The operation with other tensors in the places of its own."""

    def swapped(value: Any) -> Any:
        return operands.get(id(value), value)

    result: torch.Tensor = call.func(*map(swapped, call.args), **{key: swapped(v) for key, v in call.kwargs.items()})
    return result


def searched(call: Call) -> Any:
    """searchsorted and bucketize of coarse numbers in a row of plain ones."""
    state, wanted = call.state, call["self"]
    row = call["sorted_sequence" if call.name == "searchsorted" else "boundaries"]
    if state.is_symbolic(row) or call["sorter"] is not None:
        raise call.refuse("a search in a sequence of random values, or with a sorter, is not modelled")
    result = call.native()
    items: list[Any] = []
    for position, item in zip(np.ndindex(*wanted.shape), state.items(wanted, tuple(wanted.shape)), strict=True):
        if not isinstance(item, Coarse):
            raise call.refuse("random numbers of half precision are searched for together with others")
        own = row[position[:-1]] if row.dim() > 1 else row
        items.append(item.with_table(_run(call, {id(wanted): item.table, id(row): own}).numpy()))
    return state.put_items(result, items)


COARSE_HANDLERS: dict[str, Callable[[Call], Any]] = {
    **dict.fromkeys(_ELEMENTWISE, tabled),
    **dict.fromkeys(("searchsorted", "bucketize"), searched),
}
"""By name of the operation, as HANDLERS: what to do where an argument is coarse. Others refuse such an argument."""


# torch.multinomial ----------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def multinomial_law(row: tuple[float, ...], dtype: torch.dtype) -> Floats:
    """Law of one draw of torch.multinomial from weights of half precision: the first of the largest weight / noise.

    row: weights as float64. The noise is exponential, rounded to the type; so is the quotient, and ties are common.
    Source: multinomial in ATen/native/Distributions.cpp, exponential_kernel in cpu/DistributionTemplates.h.
    """
    noise, chances = _rounded_exponentials(dtype)
    weights = torch.tensor(row, dtype=dtype)
    scores = [np.nan_to_num((weight / noise).double().numpy(), nan=np.inf, posinf=1e300) for weight in weights]
    levels = np.unique(np.concatenate(scores))
    # at[i, j]: probability that token i scores level j.
    at = np.stack([np.bincount(np.searchsorted(levels, one), chances, len(levels)) for one in scores])
    below = np.cumsum(at, axis=1) - at
    law = np.empty(len(row))
    for token in range(len(row)):
        rivals = np.prod(below[:token], axis=0) * np.prod(below[token + 1 :] + at[token + 1 :], axis=0)
        law[token] = float((at[token] * rivals).sum())
    shares: Floats = law / law.sum()
    return shares


@functools.cache
def _rounded_exponentials(dtype: torch.dtype) -> tuple[torch.Tensor, Floats]:
    """Exponentials rounded to half precision: values and probabilities."""
    values = torch.arange(0x7F80 if dtype is torch.bfloat16 else 0x7C00, dtype=torch.int16).view(dtype)
    exact = values.double().numpy()
    tails = np.exp(-0.5 * (exact[1:] + exact[:-1]))
    chances = -np.diff(tails, prepend=1.0, append=0.0)
    kept = chances > 0.0
    return values[torch.from_numpy(kept)], chances[kept]
