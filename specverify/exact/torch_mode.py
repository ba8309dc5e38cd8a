"""The dispatch mode: sees every torch operation of the program and hands those on symbolic elements to a handler.

An operation that touches nothing symbolic runs as it is. One that does goes to its handler, or, where all that is
symbolic about it are undecided numbers, these are decided first. Anything else is refused: no operation ever
computes with a placeholder unless its handler puts the true result in its place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from specverify.exact.torch_coarse import COARSE_HANDLERS, holds_coarse
from specverify.exact.torch_plan import HANDLERS, HAS_DROPOUT, PLANS, Call, Plan, plan_of
from specverify.exact.torch_state import TorchState

_Tensor = torch.Tensor


class SymbolicMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs torch operations on tensors whose elements may be random values yet to be decided."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.state: TorchState | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The wrapper that True asks for costs more than the rest of an ordinary dispatch; compiled functions are
        # run uncompiled anyway while the mode is on.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # This is in the way of every operation, thousands for one call of an engine: the common case comes first.
        state = self.state
        if state is None or state.is_aside:
            return func(*args, **kwargs) if kwargs else func(*args)
        plan = PLANS.get(id(func)) or plan_of(func)
        kwargs = kwargs or {}
        if not plan.needs_care and not (state.shadows and _touches(args, kwargs, state.shadows)):
            return func(*args, **kwargs)
        if plan.is_composite and plan.draw is None:
            # Inference tensors bring such operations here whole: their parts are what the handlers know.
            with self:
                return func.decompose(*args, **kwargs)
        state.is_aside = True
        try:
            return (draw if plan.is_random else evaluate)(state, plan, func, args, kwargs)
        finally:
            state.is_aside = False


def _touches(args: Any, kwargs: Any, shadows: Any) -> bool:
    """Whether any argument's storage has a mirror. This is all that an ordinary operation pays for being watched."""
    for value in args:
        if isinstance(value, _Tensor):
            if _key(value) in shadows:
                return True
        elif isinstance(value, (list, tuple)) and _any_touches(value, shadows):
            return True
    return bool(kwargs) and _any_touches(kwargs.values(), shadows)


def _key(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage()._cdata  # type: ignore[no-any-return]
    except (NotImplementedError, RuntimeError):
        return 0  # sparse, meta-like and wrapped tensors have no storage, hence no symbols


def _any_touches(values: Any, shadows: Any) -> bool:
    for value in values:
        if isinstance(value, _Tensor):
            if _key(value) in shadows:
                return True
        elif isinstance(value, (list, tuple)) and _any_touches(value, shadows):
            return True
    return False


def evaluate(state: TorchState, plan: Plan, func: Any, args: Any, kwargs: Any) -> Any:
    """One operation of which some argument's storage holds symbols."""
    if plan.is_view:
        return _require_views(state, func, func(*args, **kwargs))
    is_symbolic = _any_symbolic(state, args) or (bool(kwargs) and _any_symbolic(state, kwargs.values()))
    if plan.is_mutable:
        return _evaluate_in_place(state, plan, func, args, kwargs, is_symbolic)
    if not is_symbolic or plan.reads_no_data:
        return func(*args, **kwargs)
    if state.elements.has_coarse and plan.name in COARSE_HANDLERS:
        call = Call(state, plan, func, args, kwargs)
        if holds_coarse(call):
            return COARSE_HANDLERS[plan.name](call)
    handler = HANDLERS.get(plan.name)
    if handler is not None:
        return handler(Call(state, plan, func, args, kwargs))
    state.settle(_tensors((args, kwargs)), func)
    return func(*args, **kwargs)


def _any_symbolic(state: TorchState, values: Any) -> bool:
    for value in values:
        if isinstance(value, _Tensor):
            if state.store.read(value) is not None:
                return True
        elif isinstance(value, (list, tuple)) and _any_symbolic(state, value):
            return True
    return False


def _require_views(state: TorchState, func: Any, result: Any) -> Any:
    """The result of an operation that shares memory with its argument, after a check that it does."""
    for tensor in [result] if isinstance(result, torch.Tensor) else result:
        if _key(tensor) not in state.shadows and tensor.numel():
            raise state.run.refuse("an operation that should give a view of random values gave a copy", str(func))
    return result


def _evaluate_in_place(state: TorchState, plan: Plan, func: Any, args: Any, kwargs: Any, is_symbolic: bool) -> Any:
    values = plan.values(args, kwargs)
    targets = [values[name] for name in plan.written if isinstance(values.get(name), torch.Tensor)]
    if not is_symbolic or plan.reads_no_data:
        if plan.name in ("set", "resize"):
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        for target in targets:
            state.store.clear(target)
        return result
    if plan.functional is None or len(targets) != 1:
        state.settle(_tensors((args, kwargs)), func)
        return func(*args, **kwargs)
    (target,) = targets
    if plan.written == ("out",):
        kwargs = {name: value for name, value in kwargs.items() if name != "out"}
    functional = plan_of(plan.functional)
    if _touches(args, kwargs, state.shadows):
        result = evaluate(state, functional, plan.functional, args, kwargs)
    else:
        result = plan.functional(*args, **kwargs)
    if plan.written == ("out",) and target.shape != result.shape:
        state.store.clear(target)
        target.resize_(result.shape)
    return overwrite(state, target, result)


def overwrite(state: TorchState, target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """target.copy_(source), symbols included."""
    from specverify.exact.torch_ops_move import converted_ids

    ids = state.ids(source, tuple(target.shape))
    if ids is None:
        target.copy_(source)
        state.store.clear(target)
        return target
    ids = converted_ids(state, ids, source.dtype, target.dtype, "copy_").copy()
    target.copy_(source)
    return state.put_ids(target, ids)


def draw(state: TorchState, plan: Plan, func: Any, args: Any, kwargs: Any) -> Any:
    """One operation that torch marks as random."""
    if plan.draw is not None:
        return plan.draw(Call(state, plan, func, args, kwargs))
    values = plan.values(args, kwargs)
    dropout = next((values[name] for name in HAS_DROPOUT if name in values), None)
    if dropout == 0.0 or values.get("train") is False or values.get("training") is False:
        return evaluate(state, plan, func, args, kwargs) if state.store.shadows else func(*args, **kwargs)
    raise state.run.refuse("a kind of random draw that is not modelled", str(func))


def _tensors(values: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple, dict)):
            found.extend(_tensors(value))
    return found
