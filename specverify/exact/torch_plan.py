"""What is known about each torch operation: whether it is random, a view, writes in place, and who handles it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from specverify.exact.torch_state import TorchState

Handler = Callable[["Call"], Any]

HANDLERS: dict[str, Handler] = {}
"""By name of the operation without its trailing underscore: what to do where an argument is symbolic."""

DRAWS: dict[str, Handler] = {}
"""By name of the operation with its underscore: what to do where torch draws random numbers."""

# Their result depends on the argument's shape and type only.
_READS_NO_DATA = frozenset(
    """empty_like zeros_like ones_like full_like new_empty new_zeros new_ones new_full new_empty_strided empty_strided
    rand_like is_same_size sym_size sym_numel sym_stride sym_storage_offset set_ resize_ zero_""".split()  # noqa: SIM905
)
# Views that share their argument's storage although their schema does not say so.
_UNDECLARED_VIEWS = frozenset(["_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "lift"])
# Random by their tag, or missing it; judged by their dropout arguments.
HAS_DROPOUT = ("dropout_p", "dropout", "p")
_RANDOM_WITHOUT_TAG = frozenset(["_sample_dirichlet", "binomial", "random", "random_", "rrelu"])


@dataclass(frozen=True, eq=False)
class Plan:
    """What is known about one operation overload; made on first sight."""

    name: str
    argument_names: tuple[str, ...]
    positional: tuple[str, ...]
    defaults: dict[str, Any]
    draw: Handler | None
    is_random: bool
    is_view: bool
    is_composite: bool
    has_dropout: bool
    reads_no_data: bool
    is_mutable: bool
    written: tuple[str, ...]
    functional: Any
    func: Any

    @functools.cached_property
    def needs_care(self) -> bool:
        """Whether to look at it even where nothing symbolic goes in: it may draw random numbers."""
        return self.is_random or (self.is_composite and self.has_dropout)

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, defaults filled in."""
        return {**self.defaults, **dict(zip(self.argument_names, args, strict=False)), **kwargs}


class Call:
    """One operation on symbolic arguments, with its arguments by name."""

    __slots__ = ("args", "func", "kwargs", "name", "plan", "state", "values")

    def __init__(self, state: TorchState, plan: Plan, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.state = state
        self.plan = plan
        self.name = plan.name
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.values = plan.values(args, kwargs)

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    def native(self) -> Any:
        """The operation's own result: right where nothing symbolic went in, poisoned elsewhere."""
        return self.func(*self.args, **self.kwargs)

    def refuse(self, reason: str) -> Exception:
        return self.state.run.refuse(reason, str(self.func))


# By id, as an overload's own hash is slow; a plan keeps its overload alive.
PLANS: dict[int, Plan] = {}


def plan_of(func: Any) -> Plan:
    """The plan of an operation overload, made on first sight."""
    plan = PLANS.get(id(func))
    if plan is None:
        plan = PLANS[id(func)] = _make_plan(func)
    return plan


def _make_plan(func: Any) -> Plan:
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order operator: never random by itself, refused on symbols
        return Plan(str(func), (), (), {}, None, False, False, False, False, False, False, (), None, func)
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
        positional=tuple(argument.name for argument in schema.arguments if not argument.kwarg_only),
        defaults={a.name: a.default_value for a in schema.arguments if a.has_default_value()},
        draw=DRAWS.get(packet_name) if is_random else None,
        is_random=is_random,
        is_view=(aliases and not schema.is_mutable) or packet_name in _UNDECLARED_VIEWS,
        is_composite=torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"),
        has_dropout=any(argument.name in HAS_DROPOUT for argument in schema.arguments),
        reads_no_data=packet_name in _READS_NO_DATA,
        is_mutable=schema.is_mutable,
        written=written,
        functional=_functional(func, packet_name, name) if written else None,
        func=func,
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
