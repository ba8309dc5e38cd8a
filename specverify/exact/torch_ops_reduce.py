"""Reductions and scans over rows that hold random values: races, inverse CDFs, first rejections, counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from specverify.exact import selections
from specverify.exact.deferred import Deferred, Function, Get, conjunction, disjunction, total
from specverify.exact.run import Run
from specverify.exact.torch_elements import Ids
from specverify.exact.torch_mode import HANDLERS, Call
from specverify.exact.torch_ops_discrete import CountOfTruths
from specverify.exact.torch_state import TorchState, to_tensor

# Scans over longer rows are decided at once: each entry of a scan is an object that knows all before it.
_MAX_SCAN = 256


class Unreadable(Deferred):
    """The value of the winner of a race: its law has no closed form, so looking at it is refused."""

    __slots__ = ()

    def _decide(self) -> Any:
        raise self.run.refuse("the value of the largest or smallest random number is used, not only its position", "max")

    def leaves(self) -> Any:
        self.resolve()

    def value_given(self, values: dict[int, Any]) -> Any:
        return self.resolve()


class Rows:
    """A tensor as rows along the reduced dimensions, and the way back to the result's shape."""

    def __init__(self, state: TorchState, value: torch.Tensor, dims: Sequence[int] | int | None) -> None:
        if dims is None or dims == []:
            dims = range(value.dim())
        wanted = sorted({d % max(value.dim(), 1) for d in ([dims] if isinstance(dims, int) else dims)})
        kept = [d for d in range(value.dim()) if d not in wanted]
        self.state = state
        moved = value.permute(*kept, *wanted) if value.dim() > 1 else value
        self.length = int(np.prod([value.shape[d] for d in wanted], dtype=np.int64)) if value.dim() else 1
        self.count = value.numel() // self.length if self.length else int(np.prod([value.shape[d] for d in kept]))
        self.moved = moved
        ids = state.ids(value)
        assert ids is not None
        self.ids: Ids = np.ascontiguousarray(np.transpose(ids, (*kept, *wanted))).reshape(self.count, self.length)
        self.is_bool = value.dtype is torch.bool
        self._flat: torch.Tensor | None = None

    @property
    def flat(self) -> torch.Tensor:
        """The elements as a tensor [rows, length] that shares no memory with the argument; plain entries are right."""
        if self._flat is None:
            self._flat = self.moved.reshape(self.count, self.length).clone()
            self.state.store.write(self._flat, self.ids)
        return self._flat

    def are_truths(self, row: int) -> bool:
        """Whether every entry of the row can only be 0 or 1."""
        if self.is_bool:
            return True
        if not all(self.state.elements.is_truth(element) for element in self.ids[row][self.ids[row] < 0].tolist()):
            return False
        numbers = self.flat[row][to_tensor(self.ids[row] == 0)]
        return bool(((numbers == 0) | (numbers == 1)).all())

    def items(self, row: int) -> list[Any]:
        return self.state.items(self.flat[row], (self.length,))


def _results(call: Call, rows: Rows, native: torch.Tensor, one: Callable[[int], Any], *, are_truths: bool = False) -> Any:
    """Puts one(row) where the row holds anything symbolic, and keeps the native result elsewhere."""
    plain = native.reshape(-1).tolist()
    symbolic = (rows.ids != 0).any(axis=1)
    items = [one(row) if symbolic[row] else plain[row] for row in range(rows.count)]
    return call.state.put_items(native, items, are_truths=are_truths)


def _position(call: Call, rows: Rows, row: int, *, largest: bool) -> Any:
    """Position of the largest or smallest entry of a row."""
    state = call.state
    if (rows.ids[row] > 0).any():
        return selections.winner(state.block(rows.flat[row], (rows.length,)), largest=largest, operation=call.name)
    if rows.are_truths(row):
        block = state.conditions(rows.flat[row])
        if block is not None:
            return selections.first_true(block if largest else block.inverted())
        items = rows.items(row)

        def first(get: Get) -> int:
            return next((index for index in range(len(items)) if bool(get(index)) is largest), 0)

        return Function(state.run, items, first)
    items = rows.items(row)
    best = max if largest else min

    def function(get: Get) -> int:
        numbers = [get(index) for index in range(len(items))]
        return numbers.index(best(numbers))

    return Function(state.run, items, function)


def _argmax(call: Call) -> Any:
    rows = Rows(call.state, call["self"], call["dim"])
    return _results(call, rows, call.native(), lambda row: _position(call, rows, row, largest=call.name == "argmax"))


def _max(call: Call) -> Any:
    """max and min: over a dimension (values and positions), over everything, or of two tensors."""
    from specverify.exact.torch_ops_real import extreme

    if "other" in call.values:
        return extreme(call)
    largest = call.name in ("max", "amax")
    rows = Rows(call.state, call["self"], call["dim"])
    if "dim" not in call.values or call.name in ("amax", "amin"):
        return _results(call, rows, call.native(), lambda row: _value(call, rows, row, largest=largest))
    values, positions = call.native()
    _results(call, rows, positions, lambda row: _position(call, rows, row, largest=largest))
    _results(call, rows, values, lambda row: _value(call, rows, row, largest=largest))
    return torch.return_types.max((values, positions)) if largest else torch.return_types.min((values, positions))


def _value(call: Call, rows: Rows, row: int, *, largest: bool) -> Any:
    if (rows.ids[row] > 0).any():
        return Unreadable(call.state.run)
    items, best = rows.items(row), max if largest else min
    if rows.are_truths(row):
        connect = disjunction if largest else conjunction
        return connect(call.state.run, items)
    return Function(call.state.run, items, lambda get: best(get(index) for index in range(len(items))))


def _require_discrete(call: Call, rows: Rows) -> None:
    if (rows.ids > 0).any():
        raise call.refuse("a sum or product of random values has no closed form")


def _sum(call: Call) -> Any:
    state = call.state
    rows = Rows(state, call["self"], call["dim"])
    _require_discrete(call, rows)

    def one(row: int) -> Any:
        if not rows.are_truths(row):
            return total(state.run, rows.items(row))
        block = state.conditions(rows.flat[row])
        if block is not None and len(np.unique(block.variable[block.variable >= 0])) == 1:
            return selections.count_true(block)
        return CountOfTruths(state.run, rows.items(row))

    return _results(call, rows, call.native(), one)


def _count_nonzero(call: Call) -> Any:
    state = call.state
    rows = Rows(state, call["self"], call["dim"])
    _require_discrete(call, rows)
    return _results(call, rows, call.native(), lambda row: CountOfTruths(state.run, rows.items(row)))


def _all(call: Call) -> Any:
    state = call.state
    rows = Rows(state, call["self"], call["dim"])
    _require_discrete(call, rows)
    connect = conjunction if call.name == "all" else disjunction
    return _results(call, rows, call.native(), lambda row: connect(state.run, rows.items(row)), are_truths=True)


def _prod(call: Call) -> Any:
    from specverify.exact.deferred import product

    state = call.state
    rows = Rows(state, call["self"], call["dim"])
    _require_discrete(call, rows)
    return _results(call, rows, call.native(), lambda row: product(state.run, rows.items(row)))


def _scan(call: Call) -> Any:
    """cumsum and cumprod: every entry knows those before it, and decides no more of them than it needs."""
    state, value = call.state, call["self"]
    rows = Rows(state, value, call["dim"])
    _require_discrete(call, rows)
    if rows.length > _MAX_SCAN:
        state.settle([value], str(call.func))
        return call.native()
    native = call.native()
    moved = native.movedim(call["dim"], -1) if native.dim() else native
    scan = _products if call.name == "cumprod" else _sums
    items: list[Any] = []
    truths: list[bool] = []
    for row in range(rows.count):
        are_truths = rows.are_truths(row)
        items.extend(scan(state.run, rows.items(row), are_truths))
        truths.append(are_truths)
    return state.put_items(moved, items, are_truths=call.name == "cumprod" and all(truths)) if moved is native else _put_back(
        call, native, moved, items, all(truths)
    )


def _put_back(call: Call, native: torch.Tensor, moved: torch.Tensor, items: list[Any], are_truths: bool) -> torch.Tensor:
    call.state.put_items(moved, items, are_truths=call.name == "cumprod" and are_truths)
    return native


def _products(run: Run, items: list[Any], are_truths: bool) -> list[Any]:
    running: list[Any] = []
    for item in items:
        previous = running[-1] if running else 1
        running.append(_product_of(run, previous, item) if running else item)
    return running


def _product_of(run: Run, previous: Any, item: Any) -> Any:
    if not isinstance(previous, Deferred) and not isinstance(item, Deferred):
        return previous * item
    if not isinstance(previous, Deferred) and previous == 0:
        return 0

    def function(get: Get) -> Any:
        first = get(0)
        return 0 if first == 0 else first * get(1)

    return Function(run, (previous, item), function)


def _sums(run: Run, items: list[Any], are_truths: bool) -> list[Any]:
    if are_truths:
        return [CountOfTruths(run, items[: stop + 1]) if _any_open(items[: stop + 1]) else sum(items[: stop + 1]) for stop in range(len(items))]
    return [total(run, items[: stop + 1]) if _any_open(items[: stop + 1]) else sum(items[: stop + 1]) for stop in range(len(items))]


def _any_open(items: list[Any]) -> bool:
    return any(isinstance(item, Deferred) for item in items)


def _searchsorted(call: Call) -> Any:
    state = call.state
    row_values, wanted = (call["sorted_sequence"], call["self"]) if call.name == "searchsorted" else (call["boundaries"], call["self"])
    if state.is_continuous(row_values):
        raise call.refuse("a search in a sequence of random values is not modelled")
    state.settle([row_values, call["sorter"]], str(call.func))
    if not state.is_continuous(wanted):
        state.settle([wanted], str(call.func))
        return call.native()
    if call["sorter"] is not None:
        raise call.refuse("a search with a sorter is not modelled")
    native = call.native()
    sequence = row_values.detach().cpu().double().numpy()
    ids = state.ids(wanted)
    assert ids is not None
    block, plain = state.block(wanted, tuple(wanted.shape)), native.reshape(-1).tolist()
    items: list[Any] = []
    for number, position in enumerate(np.ndindex(*wanted.shape)):
        if ids[position] == 0:
            items.append(plain[number])
        else:
            row = sequence[position[:-1]] if sequence.ndim > 1 else sequence
            items.append(selections.search(block[position], row, call.name))
    return state.put_items(native, items)


HANDLERS.update(dict.fromkeys(("argmax", "argmin"), _argmax))
HANDLERS.update(dict.fromkeys(("max", "min", "amax", "amin"), _max))
HANDLERS.update(dict.fromkeys(("all", "any"), _all))
HANDLERS.update(dict.fromkeys(("cumsum", "cumprod"), _scan))
HANDLERS.update(dict.fromkeys(("searchsorted", "bucketize"), _searchsorted))
HANDLERS.update({"sum": _sum, "prod": _prod, "count_nonzero": _count_nonzero})
