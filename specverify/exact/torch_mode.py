"""The dispatch mode: sees every torch operation of the program and hands those on symbolic elements to a handler.

An operation that touches nothing symbolic runs as it is. One that does goes to its handler, or, where all that is
symbolic about it are undecided numbers, these are decided first. Anything else is refused: no operation ever
computes with a placeholder unless its handler puts the true result in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from specverify.exact.torch_state import TorchState

Handler = Callable[["Call"], Any]

HANDLERS: dict[str, Handler] = {}
"""By name of the operation without its trailing underscore: what to do where an argument is symbolic."""

DRAWS: dict[str, Handler] = {}
"""By name of the operation with its underscore: what to do where torch draws random numbers."""

# Their result depends on the argument's shape and type only.
_READS_NO_DATA = frozenset(
    "empty_like zeros_like ones_like full_like new_empty new_zeros new_ones new_full new_empty_strided empty_strided "
    "rand_like is_same_size sym_size sym_numel sym_stride sym_storage_offset set_ resize_ zero_".split()
)
# Views that share their argument's storage although their schema does not say so.
_UNDECLARED_VIEWS = frozenset(["_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "lift"])
# Random by their tag, or missing it; judged by their dropout arguments.
_HAS_DROPOUT = ("dropout_p", "dropout", "p")
_RANDOM_WITHOUT_TAG = frozenset(["_sample_dirichlet", "binomial", "random", "random_", "rrelu"])


@dataclass(frozen=True)
class Plan:
    """What is known about one operation overload; made on first sight."""

    name: str
    argument_names: tuple[str, ...]
    defaults: dict[str, Any]
    draw: Handler | None
    is_random: bool
    is_view: bool
    reads_no_data: bool
    is_mutable: bool
    written: tuple[str, ...]
    functional: Any


@dataclass
class Call:
    """One operation on symbolic arguments, with its arguments by name."""

    state: TorchState
    plan: Plan
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    values: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = {**self.plan.defaults, **dict(zip(self.plan.argument_names, self.args, strict=False)), **self.kwargs}

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    @property
    def name(self) -> str:
        return self.plan.name

    def native(self) -> Any:
        """The operation's own result: right where nothing symbolic went in, poisoned elsewhere."""
        return self.func(*self.args, **self.kwargs)

    def refuse(self, reason: str) -> Exception:
        return self.state.run.refuse(reason, str(self.func))


class SymbolicMode(TorchDispatchMode):
    """Runs torch operations on tensors whose elements may be random values yet to be decided."""

    def __init__(self) -> None:
        super().__init__()
        self.state: TorchState | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The wrapper that True asks for costs more than the rest of an ordinary dispatch; compiled functions are
        # run uncompiled anyway while the mode is on.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        state = self.state
        kwargs = kwargs or {}
        if state is None or state.is_aside:
            return func(*args, **kwargs)
        plan = _PLANS.get(func) or plan_of(func)
        if not plan.is_random and not (state.shadows and _touches(args, kwargs, state.shadows)):
            return func(*args, **kwargs)
        state.is_aside = True
        try:
            return (draw if plan.is_random else evaluate)(state, plan, func, args, kwargs)
        finally:
            state.is_aside = False


def _touches(args: Any, kwargs: Any, shadows: Any) -> bool:
    """Whether any argument's storage has a mirror. This is all that an ordinary operation pays for being watched."""
    for value in args:
        if isinstance(value, torch.Tensor):
            if _key(value) in shadows:
                return True
        elif isinstance(value, (list, tuple)) and _any_touches(value, shadows):
            return True
    return bool(kwargs) and _any_touches(kwargs.values(), shadows)


def _key(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return 0  # sparse, meta-like and wrapped tensors have no storage, hence no symbols


def _any_touches(values: Any, shadows: Any) -> bool:
    for value in values:
        if isinstance(value, torch.Tensor):
            if _key(value) in shadows:
                return True
        elif isinstance(value, (list, tuple)) and _any_touches(value, shadows):
            return True
    return False


def evaluate(state: TorchState, plan: Plan, func: Any, args: Any, kwargs: Any) -> Any:
    """One operation of which some argument's storage holds symbols."""
    if plan.is_view:
        return func(*args, **kwargs)
    symbolic = [value for value in _tensors((args, kwargs)) if state.is_symbolic(value)]
    if plan.is_mutable:
        return _evaluate_in_place(state, plan, func, args, kwargs, bool(symbolic))
    if not symbolic or plan.reads_no_data:
        return func(*args, **kwargs)
    handler = HANDLERS.get(plan.name)
    if handler is not None:
        return handler(Call(state, plan, func, args, kwargs))
    state.settle(symbolic, str(func))
    return func(*args, **kwargs)


def _evaluate_in_place(state: TorchState, plan: Plan, func: Any, args: Any, kwargs: Any, is_symbolic: bool) -> Any:
    values = dict(zip(plan.argument_names, args, strict=False)) | kwargs
    targets = [values[name] for name in plan.written if isinstance(values.get(name), torch.Tensor)]
    if not is_symbolic or plan.reads_no_data:
        if plan.name in ("set", "resize"):
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        for target in targets:
            state.store.clear(target)
        return result
    if plan.functional is None or len(targets) != 1:
        state.settle([value for value in _tensors((args, kwargs))], str(func))
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
    values = plan.defaults | dict(zip(plan.argument_names, args, strict=False)) | kwargs
    if plan.draw is not None:
        return plan.draw(Call(state, plan, func, args, kwargs))
    dropout = next((values[name] for name in _HAS_DROPOUT if name in values), None)
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


_PLANS: dict[Any, Plan] = {}


def plan_of(func: Any) -> Plan:
    """The plan of an operation overload, made on first sight."""
    plan = _PLANS.get(func)
    if plan is None:
        plan = _PLANS[func] = _make_plan(func)
    return plan


def _make_plan(func: Any) -> Plan:
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order operator: never random by itself, refused on symbols
        return Plan(str(func), (), {}, None, False, False, False, False, (), None)
    packet_name = func._overloadpacket.__name__
    name = packet_name[:-1] if packet_name.endswith("_") and not packet_name.startswith("__") else packet_name
    written = tuple(a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write)
    is_random = (
        torch.Tag.nondeterministic_seeded in func.tags
        or packet_name in _RANDOM_WITHOUT_TAG
        or any("Generator" in str(argument.type) for argument in schema.arguments)
    )
    aliases = any(r.alias_info is not None for r in schema.returns)
    return Plan(
        name=name,
        argument_names=tuple(argument.name for argument in schema.arguments),
        defaults={a.name: a.default_value for a in schema.arguments if a.has_default_value()},
        draw=DRAWS.get(packet_name) if is_random else None,
        is_random=is_random,
        is_view=(aliases and not schema.is_mutable) or packet_name in _UNDECLARED_VIEWS,
        reads_no_data=packet_name in _READS_NO_DATA,
        is_mutable=schema.is_mutable,
        written=written,
        functional=_functional(func, packet_name, name) if written else None,
    )


def _functional(func: Any, packet_name: str, name: str) -> Any:
    """The overload that computes what this one writes in place or into out, or None."""
    arguments = [(a.name, str(a.type)) for a in func._schema.arguments if a.name != "out"]
    packet = getattr(torch.ops.aten, name, None) if func.namespace == "aten" else None
    if packet is None:
        return None
    for overload_name in packet.overloads():
        overload = getattr(packet, overload_name)
        if overload._schema.is_mutable or not overload._schema.returns:
            continue
        if [(a.name, str(a.type)) for a in overload._schema.arguments][: len(arguments)] == arguments:
            return overload
    return None
