"""Lets `int(token)` in the program's own code keep a deferred draw open, so that a last draw costs one run, not V.

int() must return an int, so it decides the draw. But the usual last line of a verify function is
`tokens.append(int(rng.choice(vocab, p=residual)))`, where nothing looks at the number again. So where the program's own
code calls the builtin on a deferred draw, that function's code is replaced, while its law is enumerated, by a copy
that calls whole_number instead. Everything that looks at the number later still decides it.
"""

from __future__ import annotations

import dis
import functools
import sys
from types import CodeType, FrameType, FunctionType
from typing import Any

from specverify.exact.deferred import Deferred, Function, combined

_NAME = "__specverify_whole_number__"
# The meaning of LOAD_GLOBAL's argument that _rewritten relies on (a name index, and one bit for "is called").
IS_SUPPORTED = sys.implementation.name == "cpython" and (3, 11) <= sys.version_info[:2] <= (3, 13)


def whole_number(*args: Any) -> Any:
    """int(), but a deferred draw stays one."""
    if len(args) != 1 or not isinstance(args[0], Deferred) or args[0].is_decided:
        return int(*args)
    number = args[0]
    if isinstance(number, Function) and number.only_leaf() is None:
        # It depends on several draws: even at the end of the run these would have to be decided.
        return int(number.resolve())
    return number if getattr(number, "is_whole", False) else combined(int, number)


class IntCalls:
    """The functions whose int() calls were redirected; undo() puts their own code back."""

    def __init__(self, *, is_enabled: bool = True) -> None:
        self.is_enabled = is_enabled and IS_SUPPORTED
        self._replaced: list[tuple[FunctionType, CodeType]] = []
        self._seen: set[CodeType] = set()
        self._globals: list[dict[str, Any]] = []

    def redirect(self, frame: FrameType) -> bool:
        """Redirects the int() calls of the function that runs in this frame, if it can be found; says whether."""
        code = frame.f_code
        is_ours = str(frame.f_globals.get("__name__", "")).startswith("specverify.")
        if not self.is_enabled or is_ours or code in self._seen or "int" in frame.f_globals:
            return False
        self._seen.add(code)
        function = _function_of(code, frame.f_globals)
        copy = _rewritten(code, code.co_filename)
        if function is None or copy is None:
            return False
        self._replaced.append((function, code))
        self._seen.add(copy)
        self._globals.append(frame.f_globals)
        frame.f_globals[_NAME] = whole_number
        function.__code__ = copy
        return True

    def undo(self) -> None:
        """Restores every function."""
        for function, code in reversed(self._replaced):
            function.__code__ = code
        for names in self._globals:
            names.pop(_NAME, None)
        self._replaced.clear()
        self._globals.clear()


def _function_of(code: CodeType, names: dict[str, Any]) -> FunctionType | None:
    """The function with this code among a module's functions and methods."""
    for value in list(names.values()):
        for candidate in (value, *vars(value).values()) if isinstance(value, type) else (value,):
            candidate = getattr(candidate, "__func__", candidate)
            while candidate is not None:
                if isinstance(candidate, FunctionType) and candidate.__code__ is code:
                    return candidate
                candidate = getattr(candidate, "__wrapped__", None)
    return None


@functools.lru_cache(maxsize=256)
def _rewritten(code: CodeType, file_name: str) -> CodeType | None:
    """The code with every call of the global name int led to whole_number; None where there is none.

    Remembered by the file too, which equal codes do not share.
    """
    argument = len(code.co_names) << 1 | 1
    if argument > 255:
        return None
    raw = bytearray(code.co_code)
    found = False
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL" and instruction.argval == "int" and instruction.arg & 1:  # type: ignore[operator]
            if instruction.arg > 255:  # type: ignore[operator]
                return None
            raw[instruction.offset + 1] = argument
            found = True
    return code.replace(co_code=bytes(raw), co_names=(*code.co_names, _NAME)) if found else None
