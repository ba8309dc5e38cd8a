"""A program's output as plain tuples of numbers, with the law of what was left undecided."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from specverify.exact.deferred import Deferred, resolved
from specverify.exact.leaves import Leaf
from specverify.exact.program import FrontEnd
from specverify.exact.run import Run

Cells = list[tuple[Any, float]]


class UnreadableOutput(TypeError):
    """The program returned something that is neither a number nor a collection of numbers."""


def normalised(value: Any, front_ends: Sequence[FrontEnd]) -> Any:
    """Nested tuples of Python ints, bools, floats, strings, None and Deferreds."""
    if isinstance(value, Deferred):
        return value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic | np.ndarray) and value.dtype != object:
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
    undecided = [part for part in _parts(output) if isinstance(part, Deferred) and not part.is_decided]
    for part in undecided:
        if len({id(leaf) for leaf in part.leaves()}) > 1:
            part.resolve()
    leaves = list({id(leaf): leaf for part in undecided for leaf in part.leaves()}.values())
    leaves = _independent(leaves)
    laws = []
    num_cells = 1
    for leaf in leaves:
        values, weights = leaf.law()
        positive = np.flatnonzero(weights)
        num_cells *= len(positive)
        if num_cells > run.budget.max_cells:
            raise run.refuse(
                f"one path has {num_cells} different outputs, more than {run.budget.max_cells}", leaf.operation
            )
        if isinstance(values, np.ndarray):
            kept = values[positive].tolist()
        else:
            kept = [_plain(values[index]) for index in positive.tolist()]
        laws.append(list(zip(kept, np.asarray(weights)[positive].tolist(), strict=True)))
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


def _one_draw(output: Any, leaf: Leaf, law: list[tuple[Any, float]]) -> Iterator[tuple[Any, float]]:
    places = [index for index, part in enumerate(output) if part is leaf] if isinstance(output, tuple) else []
    if len(places) == 1 and not any(isinstance(part, tuple) for part in output):
        # The common case, a flat tuple with one open place, without a walk for each of up to 10^5 values.
        before = tuple(resolved(part) for part in output[: places[0]] if _is_settled(part))
        after = tuple(resolved(part) for part in output[places[0] + 1 :] if _is_settled(part))
        if len(before) + len(after) + 1 == len(output):
            for value, weight in law:
                yield (*before, value, *after), weight
            return
    for value, weight in law:
        yield _filled(output, {id(leaf): value}), weight


def _is_settled(part: Any) -> bool:
    return not isinstance(part, Deferred) or part.is_decided


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
