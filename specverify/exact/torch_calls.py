"""The function mode: calls that read a tensor's memory below the dispatcher, where no dispatch mode sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy import array
from torch.overrides import TorchFunctionMode

from specverify.exact.coarse import Coarse
from specverify.exact.deferred import Deferred
from specverify.exact.numpy_arrays import SymbolArray
from specverify.exact.opaque import Opaque
from specverify.exact.scalar import Symbol
from specverify.exact.torch_memory import UNWATCHED_OPERATIONS, nested, raw_list, to_tensor
from specverify.exact.torch_plain import PLAIN_CALLS, is_plain
from specverify.exact.torch_state import TorchState

_Tensor = torch.Tensor


class SymbolicCalls(TorchFunctionMode):
    """Gives item(), tolist() and the like their undecided numbers, and lets nothing else read placeholders."""

    def __init__(self) -> None:
        super().__init__()
        self.state: TorchState | None = None
        self.defers_items = True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # This is in the way of every call that the program makes to torch: the common case comes first.
        state = self.state
        handler = _CALLS.get(func)
        if state is not None and not state.is_aside:
            if types and any(issubclass(kind, Opaque) for kind in types):
                args, kwargs = _as_tensors(state, args), _as_tensors(state, kwargs or {})
            if handler is not None:
                return handler(self, state, func, args, kwargs or {})
            if func in PLAIN_CALLS and not types and is_plain(args, state.shadows):
                if not kwargs:
                    with UNWATCHED_OPERATIONS():
                        return func(*args)
                if is_plain(kwargs.values(), state.shadows):
                    with UNWATCHED_OPERATIONS():
                        return func(*args, **kwargs)
        return func(*args, **kwargs) if kwargs else func(*args)


def _as_tensors(state: TorchState, value: Any) -> Any:
    if isinstance(value, Opaque):
        return scalar_tensor(state, value)
    if isinstance(value, (tuple, list)):
        return type(value)(_as_tensors(state, part) for part in value)
    if isinstance(value, dict):
        return {name: _as_tensors(state, part) for name, part in value.items()}
    return value


def scalar_tensor(state: TorchState, value: Any) -> torch.Tensor:
    """A random number of Python code as a tensor without dimensions."""
    with state.aside():
        if isinstance(value, Coarse) and not value.is_number:
            value.refuse("use with tensors")
        if isinstance(value, (Symbol, Coarse)):
            return state.put_items(torch.zeros((), dtype=torch.float64), [value])
        number = torch.tensor(value.resolve()) if value.is_decided else torch.zeros((), dtype=torch.int64)
        return number if value.is_decided else state.put_items(number, [value])


def _item(mode: SymbolicCalls, state: TorchState, func: Any, args: Any, kwargs: Any) -> Any:
    if state.store.shadows:
        with state.aside():
            ids = state.ids(args[0])
            if ids is not None and ids.size == 1:
                return _scalar(mode, state, int(ids.reshape(-1)[0]), args[0].dtype)
    return func(*args, **kwargs)


def _scalar(mode: SymbolicCalls, state: TorchState, element: int, dtype: torch.dtype) -> Any:
    number = state.elements.get(element)
    if isinstance(number, Deferred) and (number.is_decided or not mode.defers_items):
        number = number.resolve()
    if isinstance(number, (Symbol, Coarse)):
        return number.item()
    return number if isinstance(number, Deferred) else _typed(number, dtype)


def _typed(number: Any, dtype: torch.dtype) -> Any:
    return bool(number) if dtype is torch.bool else float(number) if dtype.is_floating_point else int(number)


def _as_number(mode: SymbolicCalls, state: TorchState, func: Any, args: Any, kwargs: Any) -> Any:
    """int(), bool() and use as an index: decides one undecided number without a dispatch."""
    value = args[0]
    if state.store.shadows and value.numel() == 1 and not value.dtype.is_floating_point:
        with state.aside():
            state.settle_discrete(value)
            return func(*args, **kwargs)
    return func(*args, **kwargs)


def _tolist(mode: SymbolicCalls, state: TorchState, func: Any, args: Any, kwargs: Any) -> Any:
    if state.store.shadows:
        with state.aside():
            ids = state.ids(args[0])
            if ids is not None:
                plain = raw_list(args[0])
                flat = [
                    _scalar(mode, state, element, args[0].dtype) if element else number
                    for element, number in zip(ids.ravel().tolist(), plain, strict=True)
                ]
                return nested(flat, tuple(args[0].shape))
    return func(*args, **kwargs)


def _memory(mode: SymbolicCalls, state: TorchState, func: Any, args: Any, kwargs: Any) -> Any:
    """Calls that hand the memory to code outside torch: undecided numbers are decided, symbols refused."""
    if state.store.shadows:
        with state.aside():
            state.settle([value for value in args if isinstance(value, _Tensor)], getattr(func, "__name__", func))
    return func(*args, **kwargs)


def _numpy(mode: SymbolicCalls, state: TorchState, func: Any, args: Any, kwargs: Any) -> Any:
    """numpy(): a stand-in for an array of symbols, which numpy's own front end understands."""
    value = args[0]
    if state.store.shadows:
        with state.aside():
            if state.is_continuous(value):
                dtype = {torch.float32: np.float32, torch.float16: np.float16}.get(value.dtype, np.float64)
                return SymbolArray(state.block(value, tuple(value.shape)).copy(), dtype)
    return _memory(mode, state, func, args, kwargs)


def _deepcopy(mode: SymbolicCalls, state: TorchState, func: Any, args: Any, kwargs: Any) -> Any:
    if state.store.shadows and state.store.holds(args[0]) and state.is_symbolic(args[0]):
        copy = args[0].detach().clone()
        if len(args) > 1 and isinstance(args[1], dict):
            args[1][id(args[0])] = copy
        return copy
    return func(*args, **kwargs)


def _from_data(mode: SymbolicCalls, state: TorchState, func: Any, args: Any, kwargs: Any) -> Any:
    """torch.tensor, as_tensor, asarray, new_tensor: they read tensors inside lists below every dispatch mode."""
    is_method = func is _Tensor.new_tensor
    data = kwargs.get("data", kwargs.get("obj")) if len(args) <= is_method else args[is_method]
    if isinstance(data, _Tensor):
        if not state.store.shadows or not state.store.holds(data) or not state.is_symbolic(data):
            return func(*args, **kwargs)
        return _copied(func, args, kwargs, data)
    leaves: list[Any] = []
    stripped = _strip(state, data, leaves)
    if not leaves:
        with UNWATCHED_OPERATIONS():
            return func(*args, **kwargs)
    if "data" in kwargs or "obj" in kwargs:
        kwargs = {**kwargs, ("data" if "data" in kwargs else "obj"): stripped}
    else:
        args = (*args[:is_method], stripped, *args[is_method + 1 :])
    result = func(*args, **kwargs)
    with state.aside():
        ids = array([element for part in _flatten(state, data) for element in part], dtype=np.int64)
        from specverify.exact.torch_ops_move import converted_ids

        if not result.dtype.is_floating_point and (ids > 0).any():
            ids = converted_ids(state, ids, torch.float64, result.dtype, "torch.tensor")
        return state.put_ids(result, ids.reshape(tuple(result.shape)))


def _copied(func: Any, args: Any, kwargs: Any, data: torch.Tensor) -> torch.Tensor:
    copy = data.detach()
    if func is not torch.as_tensor and func is not torch.asarray:
        copy = copy.clone()
    dtype = kwargs.get("dtype")
    if dtype is None and func is _Tensor.new_tensor:
        dtype = args[0].dtype
    return copy.to(dtype=dtype or copy.dtype, device=kwargs.get("device") or copy.device)


def _strip(state: TorchState, data: Any, leaves: list[Any]) -> Any:
    """The data with plain numbers in place of what torch cannot read, which goes into leaves."""
    if isinstance(data, (list, tuple)):
        return [_strip(state, part, leaves) for part in data]
    if isinstance(data, _Tensor):
        with state.aside():
            if state.store.shadows and state.is_symbolic(data):
                leaves.append(data)
                mask = to_tensor(state.ids(data) != 0).to(data.device)
                return data.detach().clone().masked_fill_(mask, 0)
        return data
    if isinstance(data, Symbol):
        leaves.append(data)
        return 0.0
    if isinstance(data, Deferred):
        leaves.append(data)
        return data.resolve() if data.is_decided else 0
    return data


def _flatten(state: TorchState, data: Any) -> Any:
    """Ids of the elements of nested data, in order."""
    if isinstance(data, (list, tuple)):
        for part in data:
            yield from _flatten(state, part)
    elif isinstance(data, _Tensor):
        ids = state.ids(data) if state.store.shadows else None
        yield [0] * data.numel() if ids is None else ids.ravel().tolist()
    elif isinstance(data, Symbol) or (isinstance(data, Deferred) and not data.is_decided):
        yield [state.elements.add(data)]
    elif isinstance(data, np.ndarray):
        yield [0] * data.size
    else:
        yield [0]


def _finite(mode: SymbolicCalls, state: TorchState, func: Any, args: Any, kwargs: Any) -> Any:
    """isfinite, isinf, isnan of a symbol: it is finite with probability 1."""
    if state.store.shadows and not state.elements.has_coarse:
        with state.aside():
            ids = state.ids(args[0])
            if ids is not None and (ids > 0).any():
                result = func(*args, **kwargs)
                symbolic = to_tensor(ids > 0).to(result.device)
                return result.masked_fill_(symbolic, func is torch.isfinite or func is _Tensor.isfinite)
    return func(*args, **kwargs)


_CALLS: dict[Any, Callable[[SymbolicCalls, TorchState, Any, Any, Any], Any]] = {
    _Tensor.item: _item,
    _Tensor.tolist: _tolist,
    **dict.fromkeys((_Tensor.__int__, _Tensor.__bool__, _Tensor.__index__), _as_number),
    _Tensor.__deepcopy__: _deepcopy,
    _Tensor.numpy: _numpy,
    **dict.fromkeys((torch.tensor, torch.as_tensor, torch.asarray, _Tensor.new_tensor), _from_data),
    **dict.fromkeys(
        (
            _Tensor.__array__, _Tensor.data_ptr, _Tensor.untyped_storage, _Tensor.storage,
            _Tensor.__dlpack__, _Tensor.__reduce_ex__, _Tensor.__repr__, _Tensor.share_memory_,
        ),
        _memory,
    ),
    **dict.fromkeys(
        (torch.isfinite, torch.isinf, torch.isnan, _Tensor.isfinite, _Tensor.isinf, _Tensor.isnan), _finite
    ),
}  # fmt: skip
