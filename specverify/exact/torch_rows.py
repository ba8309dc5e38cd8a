"""Rows of random numbers: what a reduction along a dimension sees, and the winner of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from specverify.exact import selections
from specverify.exact.conditions import Conditions
from specverify.exact.deferred import Deferred, resolved
from specverify.exact.leaves import Leaf
from specverify.exact.run import Run
from specverify.exact.symbols import Symbols
from specverify.exact.torch_elements import SMALL, one_variable
from specverify.exact.torch_memory import to_numbers
from specverify.exact.torch_state import TorchState


class Unreadable(Deferred):
    """The value of the winner of a race: its law has no closed form, so looking at it is refused."""

    __slots__ = ()

    def _decide(self) -> Any:
        raise self.run.refuse(
            "the value of the largest or smallest random number is used, not only its position", "max"
        )

    def leaves(self) -> Any:
        return iter((self.resolve(),))

    def value_given(self, values: dict[int, Any]) -> Any:
        return self.resolve()


class Winner(Deferred):
    """The position of a row's largest or smallest random number. Its weights are worked out when it is looked at.

    Verifiers race over all rows and look at one.
    """

    __slots__ = ("_found", "entries", "largest", "operation")

    def __init__(self, run: Run, entries: Callable[[], Symbols], *, largest: bool, operation: str) -> None:
        super().__init__(run)
        self.entries = entries
        self.largest = largest
        self.operation = operation
        self._found: Any = None

    def found(self) -> Any:
        """The race, or the position where it is certain."""
        if self._found is None:
            self._found = selections.winner(self.entries(), largest=self.largest, operation=self.operation)
        return self._found

    def _decide(self) -> Any:
        return resolved(self.found())

    def leaves(self) -> Iterator[Leaf]:
        found = self.found()
        return found.leaves() if isinstance(found, Deferred) else iter(())

    def value_given(self, values: dict[int, Any]) -> Any:
        found = self.found()
        return found.value_given(values) if isinstance(found, Deferred) else found


class Rows:
    """A tensor as rows along the reduced dimensions: ids and the numbers in memory, [rows, length]."""

    def __init__(self, state: TorchState, value: torch.Tensor, dims: Sequence[int] | int | None) -> None:
        self.state = state
        self.is_bool = value.dtype is torch.bool
        ids = state.ids(value)
        assert ids is not None
        if value.dim() <= 1:
            self.length = value.numel()
            self.ids = ids.reshape(1, self.length)
            self.numbers = value.reshape(1, self.length)
        else:
            wanted = range(value.dim()) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
            reduced = sorted({dim % value.dim() for dim in wanted})
            order = [dim for dim in range(value.dim()) if dim not in reduced] + reduced
            self.length = int(np.prod([value.shape[dim] for dim in reduced]))
            self.ids = ids.transpose(order).reshape(-1, self.length)
            self.numbers = value.permute(order).reshape(-1, self.length)
        self.count = len(self.ids)

    def are_truths(self, row: int) -> bool:
        """Whether every entry of the row can only be 0 or 1."""
        if self.is_bool:
            return True
        ids = self.ids[row].tolist()
        is_truth = self.state.elements.is_truth
        return all(
            number in (0, 1) if element == 0 else element < 0 and is_truth(element)
            for element, number in zip(ids, self.numbers[row].tolist(), strict=True)
        )

    def items(self, row: int) -> list[Any]:
        return self.state.objects(self.ids[row].tolist(), self.numbers[row].tolist())

    def entries(self, row: int) -> Callable[[], Symbols]:
        """The row as it is now, to be made a block when it is wanted. Undecided numbers in it are decided then."""
        state, ids, numbers = self.state, self.ids[row].copy(), to_numbers(self.numbers[row]).copy()

        def block() -> Symbols:
            for position in np.flatnonzero(ids < 0).tolist():
                numbers[position] = state.elements.get(int(ids[position])).resolve()
            return state.block_of(ids, numbers)

        return block

    def conditions(self, row: int) -> Conditions | None:
        """A row of truth values as a block, where it is large or all on one variable; else None."""
        if self.length > SMALL or one_variable(self.items(row)):
            return self.state.conditions_of(self.ids[row], to_numbers(self.numbers[row]))
        return None
