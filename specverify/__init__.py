"""specverify: the conformance suite for speculative decoding.

Importing this package imports neither torch nor numpy: the pytest plugin loads it in every session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["parametrize_with_checks", "verified"]

if TYPE_CHECKING:
    from specverify.decorator import verified
    from specverify.pytest_plugin import parametrize_with_checks

_HOMES = {"verified": "specverify.decorator", "parametrize_with_checks": "specverify.pytest_plugin"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'specverify' has no attribute {name!r}; it has {', '.join(__all__)}")
