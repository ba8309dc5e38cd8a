"""What symbols and undecided numbers have in common: numpy and torch hand calls on them to the front ends."""

from __future__ import annotations

from typing import Any

from specverify.exact.run import Run


class Opaque:
    """A random number. It is no float: C code reads a float subclass silently."""

    __slots__ = ("run",)
    run: Run

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from specverify.exact.numpy_ufuncs import apply_ufunc

        return apply_ufunc(self.run, ufunc, method, inputs, kwargs)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Makes torch's argument parsers accept it; the function mode in torch_calls.py turns it into a tensor."""
        return NotImplemented

    def item(self) -> Any:
        """As of numpy and torch scalars: the number itself, still open."""
        return self
