"""How many threads a model computes with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from threadpoolctl import ThreadpoolController


@contextmanager
def threads(num_threads: int | None) -> Iterator[None]:
    """Runs torch and numpy's products with so many threads inside; None leaves them alone. Tiny models want one."""
    if num_threads is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        with _numpy_libraries().limit(limits=num_threads):
            yield
    finally:
        torch.set_num_threads(before)


@cache
def _numpy_libraries() -> ThreadpoolController:
    """Whatever multiplies matrices for numpy here; looked for once, which takes some milliseconds."""
    return ThreadpoolController().select(user_api="blas")
