"""The two errors a user can meet. Anything else that escapes is a defect of specverify."""

from __future__ import annotations


class SpecverifyError(Exception):
    """Base of the errors that specverify raises on purpose."""


class UsageError(SpecverifyError):
    """The caller can fix this: it says what came, what was wanted and what to do."""


class CheckFailed(SpecverifyError, AssertionError):
    """The subject broke a claim. An AssertionError too, so that test runners print it as one."""


class SubjectCrashed(SpecverifyError):
    """The subject raised while it was being judged; the cause is chained."""
