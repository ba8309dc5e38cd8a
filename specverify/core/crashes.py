"""What a reader is told of an exception that the subject raised: its name, what it said, and where."""

from __future__ import annotations

import traceback
from pathlib import Path

from specverify.core.errors import SubjectCrashed

_PACKAGE = str(Path(__file__).parent.parent)


def crash_sentence(error: BaseException) -> str:
    """Names the exception and the innermost line outside this package, which is where the subject gave up.

    A SubjectCrashed already is a sentence about the subject: it is repeated, with the place of what caused it. Where
    nothing did (the subject returned something wrong), no line of ours is given as the culprit.
    """
    if isinstance(error, SubjectCrashed):
        cause = error.__cause__
        place = "" if cause is None or _place(cause) in str(error) else f" ({_place(cause)})"
        return f"{error}{place}"
    text = (str(error).strip().splitlines() or ["no message"])[0]
    return f"{type(error).__name__}: {text} ({_place(error)})"


def subject_crashed(doing: str, error: BaseException) -> SubjectCrashed:
    """The exception to raise from error where the subject raised outside a check.

    doing: who did what, such as "my_engine:make" or "my engine, asked for request 3,".
    """
    return SubjectCrashed(f"{doing} raised {crash_sentence(error)}")


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "raised nowhere"
    outside = [frame for frame in frames if not frame.filename.startswith(_PACKAGE)] or list(frames)
    last = outside[-1]
    return f"raised at {last.filename}:{last.lineno}, in {last.name}"
