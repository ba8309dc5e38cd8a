"""The state of one symbolic run of torch code, and the moves between tensors and blocks of symbols.

A tensor that holds random values is an ordinary tensor with poison in memory and symbol ids in a mirror. Handlers
of single operations (the torch_ops_* modules) read blocks out of tensors, compute with blocks and put them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from specverify.exact.conditions import Conditions
from specverify.exact.deferred import Deferred
from specverify.exact.leaves import Condition
from specverify.exact.run import Run
from specverify.exact.selections import condition_at
from specverify.exact.symbols import CONSTANT, Symbols, constant_symbols, where
from specverify.exact.torch_elements import Elements, Ids, is_node
from specverify.exact.torch_shadow import ShadowStore, poison, raw
from specverify.exact.torch_streams import TorchStreams

Shape = tuple[int, ...]


@dataclass(frozen=True)
class FocusRow:
    """One row of a batch: its randomness is symbolic, that of the other rows is drawn natively from a fixed seed.

    A random tensor belongs to the batch where its first dimension is a multiple of num_rows.
    """

    row: int
    num_rows: int

    def mask(self, shape: Shape) -> NDArray[np.bool_] | None:
        """Which elements are the row's own; None where the tensor has no batch dimension, so that all are."""
        if not shape or shape[0] == 0 or shape[0] % self.num_rows:
            return None
        each = shape[0] // self.num_rows
        own = np.zeros(shape, dtype=np.bool_)
        own[self.row * each : (self.row + 1) * each] = True
        return own


class TorchState:
    """Mirrors, symbols and generator streams of one run."""

    def __init__(self, run: Run, focus: FocusRow | None = None) -> None:
        self.run = run
        self.focus = focus
        self.variant = run.poison_seed
        self.store = ShadowStore()
        self.shadows = self.store.shadows
        self.is_aside = False
        self.elements = Elements(run)
        self.streams = TorchStreams(run)
        self._conditions: dict[int, Condition] = {}

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within, torch operations are ours and not the program's."""
        before = self.is_aside
        self.is_aside = True
        try:
            yield
        finally:
            self.is_aside = before

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
        ids = self.ids(value)
        return ids is not None and bool((ids > 0).any())

    def block(self, value: Any, shape: Shape) -> Symbols:
        """A tensor or number as symbols of that shape; undecided numbers in it are decided."""
        if isinstance(value, torch.Tensor):
            ids = self.ids(value)
            if ids is not None and (ids < 0).any():
                self.settle_discrete(value)
                ids = self.ids(value)
            if ids is None:
                return constant_symbols(self.run, to_numbers(value)).broadcast(shape)
            if ids.all():
                return self.elements.symbols(ids).broadcast(shape)
            symbolic = ids > 0
            symbols = self.elements.symbols(np.where(symbolic, ids, 1))
            return where(symbolic, symbols, constant_symbols(self.run, to_numbers(value))).broadcast(shape)
        return constant_symbols(self.run, float(value)).broadcast(shape)

    def conditions(self, value: torch.Tensor) -> Conditions | None:
        """A tensor of conditions and plain truth values as a block; None where it holds anything else."""
        ids = self.ids(value)
        numbers = to_numbers(value)
        if ids is None:
            ids = np.zeros(numbers.shape, dtype=np.int64)
        symbolic = ids != 0
        if (ids > 0).any() or is_node(ids).any() or ((numbers != 0.0) & (numbers != 1.0) & ~symbolic).any():
            return None
        block = self.elements.conditions(np.where(symbolic, ids, -1))
        return Conditions(
            self.run,
            np.where(symbolic, block.variable, CONSTANT),
            np.where(symbolic, block.threshold, 0.0),
            np.where(symbolic, block.below, numbers == 1.0),
        )

    def items(self, value: Any, shape: Shape) -> list[Any]:
        """Elements in order: plain numbers, and Deferreds where undecided. Refuses symbols."""
        count = int(np.prod(shape))
        if not isinstance(value, torch.Tensor):
            return [value] * count
        ids = self.ids(value, shape)
        plain = value.detach().cpu().expand(shape).reshape(-1).tolist()
        if ids is None:
            return plain  # type: ignore[no-any-return]
        return [self.item(element) if element else number for element, number in zip(ids.ravel().tolist(), plain, strict=True)]

    def item(self, element: int) -> Any:
        """The undecided number behind one id below 0, or its value where it has been decided."""
        if element > 0:
            raise self.run.refuse("a continuous random value is used where a decided number is needed")
        if is_node(element):
            node = self.elements.node(element)
        else:
            node = self._conditions.get(element)
            if node is None:
                node = condition_at(self.elements.conditions(np.array([element])), 0)
                self._conditions[element] = node
        return node.resolve() if node.is_decided else node

    # Writing --------------------------------------------------------------------------------------------------

    def put_symbols(self, result: torch.Tensor, block: Symbols, plain: NDArray[np.bool_] | None = None) -> torch.Tensor:
        """Makes result hold the block. plain: entries whose native value in result is right already."""
        known = block.is_constant
        if plain is not None:
            known = known & ~plain
        if known.any():
            _assign(result, known, block.a)
        return self.put_ids(result, self.elements.add_symbols(block))

    def put_conditions(self, result: torch.Tensor, block: Conditions) -> torch.Tensor:
        """Makes result hold the block; plain entries are written as they are in the block."""
        _assign(result, block.variable < 0, block.below)
        return self.put_ids(result, self.elements.add_conditions(block))

    def put_items(self, result: torch.Tensor, items: Sequence[Any], *, are_truths: bool = False) -> torch.Tensor:
        """Makes result hold plain numbers and Deferreds, given in order."""
        ids = np.zeros(len(items), dtype=np.int64)
        numbers = np.zeros(len(items), dtype=np.float64 if result.dtype.is_floating_point else np.int64)
        for position, item in enumerate(items):
            if isinstance(item, Deferred):
                if item.is_decided:
                    numbers[position] = item.resolve()
                else:
                    ids[position] = self.elements.add_node(item, is_truth=are_truths or isinstance(item, Condition))
            else:
                numbers[position] = item
        shape = tuple(result.shape)
        _assign(result, (ids == 0).reshape(shape), numbers.reshape(shape))
        return self.put_ids(result, ids.reshape(shape))

    def put_ids(self, result: torch.Tensor, ids: Ids) -> torch.Tensor:
        """Files ids behind result's elements and poisons what they stand for."""
        symbolic = ids != 0
        if np.any(symbolic):
            mask = to_tensor(symbolic).to(result.device)
            result.masked_fill_(mask, poison(result.dtype, self.variant))
            self.store.write(result, ids)
        elif self.store.shadows:
            self.store.clear(result)
        return result

    # Deciding -------------------------------------------------------------------------------------------------

    def settle(self, values: Iterable[Any], operation: str) -> None:
        """Decides every undecided number in these tensors. Refuses continuous symbols."""
        for value in values:
            if self.is_continuous(value):
                raise self.run.refuse(
                    "a continuous random value goes into an operation that is not modelled", operation
                )
            if isinstance(value, torch.Tensor):
                self.settle_discrete(value)

    def settle_discrete(self, tensor: torch.Tensor) -> None:
        """Decides the undecided numbers among the tensor's elements, in order, and writes them into memory."""
        ids = self.store.read(tensor)
        if ids is None:
            return
        memory = raw(tensor)
        for position in np.argwhere(ids < 0):
            element = int(ids[tuple(position)])
            if element == 0:
                continue  # an expanded tensor shows one element many times
            item = self.item(element)
            memory[tuple(position.tolist())] = item.resolve() if isinstance(item, Deferred) else item
            ids[tuple(position)] = 0
        self.store.drop_if_clear(tensor)


def to_tensor(array: Any) -> torch.Tensor:
    """A copy of an array (numpy's own scalars included) as a tensor of the same shape."""
    return torch.from_numpy(np.array(array))


def to_numbers(tensor: torch.Tensor) -> NDArray[Any]:
    """A plain tensor's values in float64."""
    return tensor.detach().to(device="cpu", dtype=torch.float64).numpy()


def _assign(result: torch.Tensor, mask: NDArray[np.bool_], numbers: NDArray[Any]) -> None:
    """Writes numbers where mask; both have result's shape."""
    if not np.any(mask):
        return
    values = to_tensor(numbers).to(result.device).to(result.dtype)
    if np.all(mask):
        result.copy_(values)
    else:
        selected = to_tensor(mask).to(result.device)
        result.copy_(torch.where(selected, values, result))
