"""Reductions and scans over rows that hold random values: races, inverse CDFs, first rejections, counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from specverify.exact import selections
from specverify.exact.deferred import Deferred, Function, Get, conjunction, disjunction
from specverify.exact.lazy import product, total
from specverify.exact.races import race
from specverify.exact.run import Run
from specverify.exact.torch_ops_discrete import CountOfTruths
from specverify.exact.torch_plan import HANDLERS, Call
from specverify.exact.torch_rows import Rows, Unreadable, Winner
from specverify.exact.torch_successive import Rank, SuccessiveDraws

# Scans over longer rows are decided at once: each entry of a scan is an object that knows all before it.
_MAX_SCAN = 256


def _results(
    call: Call, rows: Rows, native: torch.Tensor, one: Callable[[int], Any], *, are_truths: bool = False
) -> Any:
    """Puts one(row) where the row holds anything symbolic, and keeps the native result elsewhere."""
    symbolic = (rows.ids != 0).any(axis=1).tolist()
    items = [one(row) if symbolic[row] else None for row in range(rows.count)]
    return call.state.put_items(native, items, are_truths=are_truths)


def _position(call: Call, rows: Rows, row: int, *, largest: bool) -> Any:
    """Position of the largest or smallest entry of a row."""
    run = call.state.run
    if (rows.ids[row] > 0).any():
        return Winner(run, rows.entries(row), largest=largest, operation=call.name)
    if rows.are_truths(row):
        block = rows.conditions(row)
        if block is not None:
            return selections.first_true(block if largest else block.inverted())
        items = rows.items(row)

        def first(get: Get) -> int:
            return next((index for index in range(len(items)) if bool(get(index)) is largest), 0)

        return Function(run, items, first)
    items = rows.items(row)
    best = max if largest else min

    def function(get: Get) -> int:
        numbers = [get(index) for index in range(len(items))]
        return numbers.index(best(numbers))

    return Function(run, items, function)


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


def _discrete_rows(call: Call) -> Rows:
    rows = Rows(call.state, call["self"], call["dim"])
    if (rows.ids > 0).any():
        raise call.refuse("a sum or product of random values has no closed form")
    return rows


def _sum(call: Call) -> Any:
    state = call.state
    rows = _discrete_rows(call)

    def one(row: int) -> Any:
        if not rows.are_truths(row):
            return total(state.run, rows.items(row))
        block = rows.conditions(row)
        if block is not None:
            return selections.count_true(block)
        return CountOfTruths(state.run, rows.items(row))

    return _results(call, rows, call.native(), one)


def _count_nonzero(call: Call) -> Any:
    state = call.state
    rows = _discrete_rows(call)
    return _results(call, rows, call.native(), lambda row: CountOfTruths(state.run, rows.items(row)))


def _all(call: Call) -> Any:
    state = call.state
    rows = _discrete_rows(call)
    connect = conjunction if call.name == "all" else disjunction
    return _results(call, rows, call.native(), lambda row: connect(state.run, rows.items(row)), are_truths=True)


def _prod(call: Call) -> Any:
    state = call.state
    rows = _discrete_rows(call)
    return _results(call, rows, call.native(), lambda row: product(state.run, rows.items(row)))


def _scan(call: Call) -> Any:
    """cumsum and cumprod: every entry knows those before it, and decides no more of them than it needs."""
    state, value = call.state, call["self"]
    rows = _discrete_rows(call)
    if rows.length > _MAX_SCAN:
        state.settle([value], call.func)
        return call.native()
    native = call.native()
    moved = native.movedim(call["dim"], -1) if native.dim() > 1 else native
    scan = _products if call.name == "cumprod" else _sums
    items: list[Any] = []
    are_truths = call.name == "cumprod"
    for row in range(rows.count):
        row_is_truths = rows.are_truths(row)
        items.extend(scan(state.run, rows.items(row), row_is_truths))
        are_truths = are_truths and row_is_truths
    state.put_items(moved, items, are_truths=are_truths)
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
    add: Callable[[Run, list[Any]], Any] = CountOfTruths if are_truths else total
    running = [items[: stop + 1] for stop in range(len(items))]
    return [add(run, parts) if _any_open(parts) else sum(parts) for parts in running]


def _any_open(items: list[Any]) -> bool:
    return any(isinstance(item, Deferred) for item in items)


def _searchsorted(call: Call) -> Any:
    state = call.state
    row_values, wanted = call["sorted_sequence" if call.name == "searchsorted" else "boundaries"], call["self"]
    if state.is_continuous(row_values):
        raise call.refuse("a search in a sequence of random values is not modelled")
    state.settle([row_values, call["sorter"]], call.func)
    if not state.is_continuous(wanted):
        state.settle([wanted], call.func)
        return call.native()
    if call["sorter"] is not None:
        raise call.refuse("a search with a sorter is not modelled")
    native = call.native()
    sequence = row_values.detach().cpu().double().numpy()
    ids = state.ids(wanted)
    assert ids is not None
    block = state.block(wanted, tuple(wanted.shape))
    items: list[Any] = []
    for position in np.ndindex(*wanted.shape):
        if ids[position] == 0:
            items.append(None)
        else:
            row = sequence[position[:-1]] if sequence.ndim > 1 else sequence
            items.append(selections.search(block[position], row, call.name))
    return state.put_items(native, items)


def _sorted(call: Call) -> Any:
    """topk and sort of rows of random numbers: races won one after another. Their values cannot be read."""
    state, value = call.state, call["self"]
    dim = -1 if call["dim"] is None else call["dim"]
    rows = Rows(state, value, dim)
    values, positions = call.native()
    if not (rows.ids > 0).any():
        state.settle([value], call.func)
        return call.native()
    is_topk = call.name == "topk"
    largest = bool(call["largest"]) if is_topk else bool(call["descending"])
    length = positions.shape[dim] if positions.dim() else 1
    items: list[Any] = []
    for row in range(rows.count):
        if not (rows.ids[row] != 0).all():
            raise call.refuse("a ranking of random values together with numbers is not modelled")
        order, variables, weights = race(rows.entries(row)(), largest=largest, operation=call.name)
        draws = SuccessiveDraws(state.run, weights, call.name, variables if len(weights) > 1 else None)
        items.extend(Rank(state.run, draws, number, order) for number in range(length))
    for result in (values, positions):
        moved = result.movedim(dim, -1) if result.dim() > 1 else result
        state.put_items(moved, items if result is positions else [Unreadable(state.run)] * len(items))
    return values, positions


HANDLERS.update(dict.fromkeys(("topk", "sort"), _sorted))
HANDLERS.update(dict.fromkeys(("argmax", "argmin"), _argmax))
HANDLERS.update(dict.fromkeys(("max", "min", "amax", "amin"), _max))
HANDLERS.update(dict.fromkeys(("all", "any"), _all))
HANDLERS.update(dict.fromkeys(("cumsum", "cumprod"), _scan))
HANDLERS.update(dict.fromkeys(("searchsorted", "bucketize"), _searchsorted))
HANDLERS.update({"sum": _sum, "prod": _prod, "count_nonzero": _count_nonzero})
