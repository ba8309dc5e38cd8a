"""A report as JSON: stable keys, plain types, everything that the text leaves out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specverify.core.errors import UsageError
from specverify.core.outcomes import CheckResult, Outcome, Report

FORMAT_VERSION = 1


def report_as_dict(report: Report) -> dict[str, Any]:
    """The report in JSON types. Infinite and undefined numbers become strings, which JSON lacks."""
    return {
        "format_version": FORMAT_VERSION,
        "seed": report.seed,
        "alpha": report.alpha,
        "seconds": round(report.seconds, 3),
        "exit_status": report.exit_status,
        "interrupted": report.interrupted,
        "counts": {outcome.value: report.count(outcome) for outcome in Outcome},
        "results": [_result_as_dict(result) for result in report.results],
    }


def write_json(data: Mapping[str, Any], path: Path) -> None:
    """Writes data to path. Raises UsageError where the path cannot be written."""
    try:
        path.write_text(json.dumps(plain(data), indent=2, sort_keys=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}; give --json a file in a folder that exists"
        ) from error


def _result_as_dict(result: CheckResult) -> dict[str, Any]:
    fields = asdict(result)
    fields["outcome"] = result.outcome.value
    return dict(plain(fields))


def plain(value: Any) -> Any:
    """value in JSON types: numpy scalars and arrays become numbers and lists, tuples lists, the rest text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return str(value)
