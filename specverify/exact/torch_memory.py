"""Between tensors and arrays: reading and writing the memory of tensors, placeholders included."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy import array
from numpy.typing import NDArray

UNWATCHED_OPERATIONS = torch._C._DisableTorchDispatch
"""A context in which no dispatch mode sees torch operations."""


class Unwatched:
    """Within, torch operations pass neither of the two modes: they are ours, or known to touch nothing symbolic."""

    __slots__ = ("_calls", "_operations")
    _calls: Any
    _operations: Any

    def __enter__(self) -> None:
        self._operations = UNWATCHED_OPERATIONS()
        self._calls = torch._C.DisableTorchFunction()
        self._operations.__enter__()
        self._calls.__enter__()

    def __exit__(self, *error: object) -> None:
        self._calls.__exit__(*error)
        self._operations.__exit__(*error)


def raw_list(tensor: torch.Tensor) -> list[Any]:
    """The elements in memory, placeholders included, in order."""
    flat = tensor if tensor.dim() == 1 else tensor.reshape(-1)
    return flat.tolist()


def to_tensor(values: Any) -> torch.Tensor:
    """A copy of an array (numpy's own scalars included) as a tensor of the same shape."""
    return torch.from_numpy(array(values))


def to_numbers(tensor: torch.Tensor) -> NDArray[Any]:
    """A plain tensor's values in float64."""
    return tensor.detach().to(device="cpu", dtype=torch.float64).numpy()


def assign(result: torch.Tensor, mask: NDArray[np.bool_], numbers: NDArray[Any]) -> None:
    """Writes numbers into result where mask; all three have one shape."""
    if not np.any(mask):
        return
    memory = memory_of(result)
    if memory is not None:
        memory[mask] = numbers[mask]
        return
    values = to_tensor(numbers).to(device=result.device, dtype=result.dtype)
    result.copy_(torch.where(to_tensor(mask).to(result.device), values, result))


def assign_some(result: torch.Tensor, known: list[tuple[int, Any]]) -> None:
    memory = memory_of(result)
    shape = tuple(result.shape)
    if memory is not None:
        if memory.ndim == 1:
            for position, number in known:
                memory[position] = number
        else:
            for position, number in known:
                memory[np.unravel_index(position, shape)] = number
        return
    for position, number in known:
        result[tuple(int(index) for index in np.unravel_index(position, shape))] = number


def memory_of(result: torch.Tensor) -> NDArray[Any] | None:
    """The tensor's memory as an array, where numpy can see it."""
    if not result.is_cpu or result.dtype is torch.bfloat16 or result.requires_grad:
        return None
    return result.numpy()


def nested(flat: list[Any], shape: tuple[int, ...]) -> Any:
    """The elements as nested lists of the given shape; a bare element for no dimensions."""
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return flat
    each = len(flat) // shape[0] if shape[0] else 0
    return [nested(flat[i * each : (i + 1) * each], shape[1:]) for i in range(shape[0])]
