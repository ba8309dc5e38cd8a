"""Known failures: check id to reason, from a TOML file. Strict both ways; see runner.run_checks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from specverify.core.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: Path) -> Mapping[str, object]:
    """The contents of a TOML file. Raises UsageError where it is missing or malformed."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; give a TOML file that exists") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error


def read_known_failures(path: Path) -> Mapping[str, str]:
    """The table [known-failures] of the file, or its top level: "check.id" = "reason"."""
    contents = read_toml(path)
    table = contents.get("known-failures", contents)
    if not isinstance(table, Mapping):
        raise UsageError(f'{path}: [known-failures] must hold lines such as "kv.rows-equal-prefill" = "issue 412"')
    for check_id, reason in table.items():
        if not isinstance(reason, str) or not reason.strip():
            raise UsageError(f"{path}: the reason for {check_id} is {reason!r}; give a sentence or a link")
    return dict(table)
