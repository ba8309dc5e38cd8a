"""A program's output as plain tuples of numbers, with the law of what was left undecided."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from specverify.exact.deferred import Deferred, opened
from specverify.exact.leaves import Leaf
from specverify.exact.program import FrontEnd
from specverify.exact.run import Run

Cells = list[tuple[Any, float]]
_FEW = 24
_SCALARS = (bool, int, float, str)
_OPEN = (Deferred, tuple)
_ARRAYS = (np.generic, np.ndarray)


class UnreadableOutput(TypeError):
    """The program returned something that is neither a number nor a collection of numbers."""


def normalised(value: Any, front_ends: Sequence[FrontEnd]) -> Any:
    """Nested tuples of Python ints, bools, floats, strings, None and Deferreds."""
    kind = type(value)
    if kind is list or kind is tuple:
        # The common case, a list of tokens.
        return tuple([part if type(part) is int else normalised(part, front_ends) for part in value])
    if kind is np.int64:
        return int(value)
    if isinstance(value, Deferred):
        return value
    if value is None or isinstance(value, _SCALARS):
        return value
    if isinstance(value, _ARRAYS) and value.dtype != object:
        return _tuples(value.tolist())
    for front_end in front_ends:
        read = front_end.read_output(value)
        if read is not NotImplemented:
            return read
    if isinstance(value, np.ndarray):
        return normalised(value.tolist(), front_ends)
    if isinstance(value, tuple | list):
        return tuple(normalised(part, front_ends) for part in value)
    if isinstance(value, dict):
        return tuple((key, normalised(part, front_ends)) for key, part in value.items())
    if hasattr(value, "__dataclass_fields__"):
        return tuple(normalised(getattr(value, name), front_ends) for name in value.__dataclass_fields__)
    raise UnreadableOutput(
        f"the program returned a {type(value).__name__}; return ints, or tuples, lists, arrays or tensors of ints"
    )


def expanded(run: Run, output: Any) -> Cells:
    """Every output that this path can still have, with its probability given the path.

    What depends on more than one draw, or shares a variable with another draw, is decided first: that forks.
    """
    if type(output) is tuple and set(map(type, output)) == {int}:
        return [(output, 1.0)]
    undecided = [part for part in _parts(output) if isinstance(part, Deferred) and not part.is_decided]
    if len(undecided) == 1 and isinstance(undecided[0], Leaf):
        leaves: list[Leaf] = [undecided[0]]  # the common case, one last draw, without a search
    else:
        for part in undecided:
            if len({id(leaf) for leaf in part.leaves()}) > 1:
                part.resolve()
        leaves = _independent(list({id(leaf): leaf for part in undecided for leaf in part.leaves()}.values()))
    laws = []
    num_cells = 1
    for leaf in leaves:
        law = _possible(*leaf.law())
        num_cells *= len(law)
        if num_cells > run.budget.max_cells:
            raise run.refuse(
                f"one path has {num_cells} different outputs, more than {run.budget.max_cells}", leaf.operation
            )
        laws.append(law)
    if not leaves:
        return [(_filled(output, {}), 1.0)]
    if len(leaves) == 1:
        return list(_one_draw(output, leaves[0], laws[0]))
    return [
        (
            _filled(output, {id(leaf): value for leaf, (value, _) in zip(leaves, cell, strict=True)}),
            math.prod(weight for _, weight in cell),
        )
        for cell in itertools.product(*laws)
    ]


def _possible(values: Any, weights: Any) -> list[tuple[Any, float]]:
    """Values as plain numbers, with their weights where these are not zero."""
    if isinstance(weights, np.ndarray):
        if len(weights) <= _FEW and isinstance(values, np.ndarray):
            return [(value, weight) for value, weight in zip(values.tolist(), weights.tolist(), strict=True) if weight]
        positive = np.flatnonzero(weights)
        if isinstance(values, np.ndarray):
            return list(zip(values[positive].tolist(), weights[positive].tolist(), strict=True))
        return [(_plain(values[index]), float(weights[index])) for index in positive.tolist()]
    listed = values.tolist() if isinstance(values, np.ndarray) else [_plain(value) for value in values]
    return [(value, weight) for value, weight in zip(listed, weights, strict=True) if weight]


def _one_draw(output: Any, leaf: Leaf, law: list[tuple[Any, float]]) -> Iterator[tuple[Any, float]]:
    if isinstance(output, tuple):
        # The common case, a flat tuple with one open place, without a walk for each of up to 10^5 values.
        parts = [opened(part) for part in output]
        is_open = [isinstance(part, _OPEN) for part in parts]
        place = is_open.index(True)
        if is_open.count(True) == 1 and parts[place] is leaf:
            before, after = tuple(parts[:place]), tuple(parts[place + 1 :])
            for value, weight in law:
                yield (*before, value, *after), weight
            return
    for value, weight in law:
        yield _filled(output, {id(leaf): value}), weight


def _independent(leaves: list[Leaf]) -> list[Leaf]:
    """The leaves that share no variable with another; those that do are decided, in order."""
    owners: dict[int, list[Leaf]] = {}
    if len(leaves) > 1:
        for leaf in leaves:
            for variable in leaf.variables.tolist():
                owners.setdefault(variable, []).append(leaf)
    shared = {id(leaf) for group in owners.values() if len(group) > 1 for leaf in group}
    for leaf in leaves:
        if id(leaf) in shared:
            leaf.resolve()
    return [leaf for leaf in leaves if not leaf.is_decided]


def _parts(output: Any) -> Iterator[Any]:
    if isinstance(output, tuple):
        for part in output:
            yield from _parts(part)
    else:
        yield output


def _filled(output: Any, values: dict[int, Any]) -> Any:
    if isinstance(output, tuple):
        return tuple(_filled(part, values) for part in output)
    return output.value_given(values) if isinstance(output, Deferred) else output


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
