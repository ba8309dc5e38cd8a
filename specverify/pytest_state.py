"""Which test is running, so that a check can hand it what its pass was worth."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

_stack: list[pytest.Item] = []


@contextlib.contextmanager
def running(item: pytest.Item) -> Iterator[None]:
    """Marks item as the running test while the block runs."""
    _stack.append(item)
    try:
        yield
    finally:
        _stack.pop()


def current_item() -> pytest.Item | None:
    """The test that is running, if any."""
    return _stack[-1] if _stack else None
