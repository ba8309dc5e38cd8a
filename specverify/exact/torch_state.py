"""The state of one symbolic run of torch code, and the moves between tensors and random numbers.

A tensor that holds random values is an ordinary tensor with poison in memory and ids in a mirror. Handlers of single
operations (the torch_ops_* modules) read random numbers out of tensors, compute with them and put them back: one by
one where there are few, in blocks where there are many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy import array, count_nonzero
from numpy.typing import NDArray

from specverify.exact.coarse import Coarse
from specverify.exact.conditions import Conditions
from specverify.exact.deferred import Deferred
from specverify.exact.run import Run
from specverify.exact.scalar import Symbol
from specverify.exact.symbols import Symbols, constant_symbols, where
from specverify.exact.torch_elements import SMALL, Elements, Ids, block_of_items
from specverify.exact.torch_focus import FocusRow
from specverify.exact.torch_memory import Unwatched, assign, assign_some, memory_of, raw_list, to_numbers, to_tensor
from specverify.exact.torch_shadow import ShadowStore, poison, raw
from specverify.exact.torch_streams import TorchStreams

Shape = tuple[int, ...]


class Aside(Unwatched):
    """See TorchState.aside."""

    __slots__ = ("_before", "_state")

    def __init__(self, state: TorchState) -> None:
        self._state = state

    def __enter__(self) -> None:
        super().__enter__()
        self._before = self._state.is_aside
        self._state.is_aside = True

    def __exit__(self, *error: object) -> None:
        self._state.is_aside = self._before
        super().__exit__(*error)


class TorchState:
    """Mirrors, random numbers and generator streams of one run."""

    def __init__(self, run: Run, focus: FocusRow | None = None) -> None:
        self.run = run
        self.focus = focus
        self.variant = run.poison_seed
        self.store = ShadowStore()
        self.shadows = self.store.shadows
        self.elements = Elements(run)
        self.streams = TorchStreams(run)
        self.is_aside = False

    def aside(self) -> Aside:
        """Within, torch operations are ours and not the program's."""
        return Aside(self)

    # Reading --------------------------------------------------------------------------------------------------

    def ids(self, value: Any, shape: Shape | None = None) -> Ids | None:
        """The ids behind a tensor's elements, broadcast to shape; None where nothing is symbolic."""
        if not isinstance(value, torch.Tensor):
            return None
        ids = self.store.read(value)
        return ids if ids is None or shape is None or ids.shape == shape else np.broadcast_to(ids, shape)

    def is_symbolic(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and self.store.read(value) is not None

    def is_continuous(self, value: Any) -> bool:
        """Whether any element is a symbol, as opposed to a number that only waits to be decided."""
        if not isinstance(value, torch.Tensor):
            return False
        ids = self.store.read(value)
        return ids is not None and int(ids.max()) > 0

    def items(self, value: Any, shape: Shape) -> list[Any]:
        """Elements in order: plain numbers, Symbols and undecided Deferreds."""
        if not isinstance(value, torch.Tensor):
            return [value] * _size(shape)
        plain = raw_list(value if value.shape == shape else value.expand(shape))
        ids = self.ids(value, shape)
        return plain if ids is None else self.objects(ids.ravel().tolist(), plain)

    def objects(self, ids: list[int], plain: list[Any]) -> list[Any]:
        """The random numbers behind ids, or the plain number where the id is 0 (decided ones are plain too)."""
        get = self.elements.get
        found = []
        for element, number in zip(ids, plain, strict=True):
            if element:
                number = get(element)
                if element < 0 and number.is_decided:
                    number = number.resolve()
            found.append(number)
        return found

    def block(self, value: Any, shape: Shape) -> Symbols:
        """A tensor or number as symbols of that shape; undecided numbers in it are decided."""
        if not isinstance(value, torch.Tensor):
            return _widened(constant_symbols(self.run, float(value)), shape)
        ids = self.ids(value)
        if ids is not None and int(ids.min()) < 0:
            self.settle_discrete(value)
            ids = self.ids(value)
        if ids is not None and ids.all():
            return _widened(self.elements.symbols(ids), shape)
        return _widened(self.block_of(ids, to_numbers(value)), shape)

    def block_of(self, ids: Ids | None, numbers: NDArray[Any]) -> Symbols:
        """Symbols where ids are above 0, plain numbers elsewhere."""
        if ids is None or not count_nonzero(ids > 0):
            return constant_symbols(self.run, numbers)
        if ids.size <= SMALL:
            get = self.elements.get
            pairs = zip(ids.ravel().tolist(), numbers.ravel().tolist(), strict=True)
            items = [get(element) if element > 0 else number for element, number in pairs]
            return block_of_items(self.run, items, ids.shape)
        plain, symbolic = constant_symbols(self.run, numbers), ids > 0
        first = int(ids[symbolic][0])
        return where(symbolic, self.elements.symbols(np.where(symbolic, ids, first)), plain)

    def conditions(self, value: torch.Tensor) -> Conditions | None:
        """A tensor of conditions and plain truth values as a block; None where it holds anything else."""
        ids, numbers = self.ids(value), to_numbers(value)
        if ids is None:
            ids = np.zeros(numbers.shape, dtype=np.int64)
        return self.conditions_of(ids, numbers)

    def conditions_of(self, ids: Ids, numbers: NDArray[Any]) -> Conditions | None:
        """The same, from ids and the numbers in memory."""
        if bool(((numbers != 0.0) & (numbers != 1.0) & (ids == 0)).any()):
            return None
        return self.elements.conditions(ids, numbers == 1.0)

    # Writing --------------------------------------------------------------------------------------------------

    def put_symbols(self, result: torch.Tensor, block: Symbols, plain: NDArray[np.bool_] | None = None) -> torch.Tensor:
        """Makes result hold the block. plain: entries whose native value in result is right already."""
        known = block.is_constant
        if plain is not None:
            known = known & ~plain
        if known.any():
            assign(result, known, block.a)
        return self.put_ids(result, self.elements.add_symbols(block))

    def put_conditions(self, result: torch.Tensor, block: Conditions) -> torch.Tensor:
        """Makes result hold the block; plain entries are written as they are in the block."""
        assign(result, block.variable < 0, block.below)
        return self.put_ids(result, self.elements.add_conditions(block))

    def put_items(self, result: torch.Tensor, items: Sequence[Any], *, are_truths: bool = False) -> torch.Tensor:
        """Makes result hold numbers, Symbols and Deferreds, given in order. None keeps what is in memory."""
        shape = tuple(result.shape)
        ids = [0] * len(items)
        known: list[tuple[int, Any]] = []
        add = self.elements.add
        for position, item in enumerate(items):
            if type(item) is Symbol:
                ids[position] = add(item)
            elif isinstance(item, Deferred):
                if item.is_decided:
                    known.append((position, item.resolve()))
                else:
                    ids[position] = add(item, is_truth=are_truths)
            elif type(item) is Coarse:
                ids[position] = self.elements.add_coarse(item)
            elif item is not None:
                known.append((position, item))
        if known:
            assign_some(result, known)
        return self.put_ids(result, array(ids, dtype=np.int64).reshape(shape))

    def put_ids(self, result: torch.Tensor, ids: Ids) -> torch.Tensor:
        """Files ids behind result's elements and poisons what they stand for."""
        num_symbolic = count_nonzero(ids)
        if num_symbolic:
            placeholder = poison(result.dtype, self.variant)
            memory = memory_of(result)
            if memory is not None:
                memory[... if num_symbolic == ids.size == memory.size else ids != 0] = placeholder
            else:
                result.masked_fill_(to_tensor(ids != 0).to(result.device), placeholder)
            self.store.write(result, ids)
        elif self.shadows:
            self.store.clear(result)
        return result

    # Deciding -------------------------------------------------------------------------------------------------

    def settle(self, values: Iterable[Any], operation: Any) -> None:
        """Decides every undecided number in these tensors. Refuses continuous symbols."""
        for value in values:
            if not isinstance(value, torch.Tensor):
                continue
            ids = self.store.read(value)
            if ids is None:
                continue
            if int(ids.max()) > 0:
                raise self.run.refuse("a random value goes into an operation that is not modelled", str(operation))
            self._settle(value, ids)

    def settle_discrete(self, tensor: torch.Tensor) -> None:
        """Decides the undecided numbers among the tensor's elements, in order, and writes them into memory."""
        ids = self.store.read(tensor)
        if ids is not None:
            self._settle(tensor, ids)

    def _settle(self, tensor: torch.Tensor, ids: Ids) -> None:
        if ids.size == 1 and (memory := memory_of(tensor)) is not None:
            memory[...] = self.elements.get(int(ids.item())).resolve()
            ids[...] = 0
            self.store.drop_if_clear(tensor)
            return
        plain: Any = memory_of(tensor)
        if plain is None:
            plain = raw(tensor)
        for position in map(tuple, np.argwhere(ids < 0).tolist()):
            element = int(ids[position])
            if element:  # an expanded tensor shows one element many times
                plain[position] = self.elements.get(element).resolve()
                ids[position] = 0
        self.store.drop_if_clear(tensor)


def _widened(block: Symbols, shape: Shape) -> Symbols:
    return block if block.shape == shape else block.broadcast(shape)


def _size(shape: Shape) -> int:
    size = 1
    for length in shape:
        size *= length
    return size
