"""The result on disk: sweep.json is the truth, sweep.csv the same rows as a table, both whole after every cell."""

from __future__ import annotations

import csv
import io
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from specverify.core.errors import UsageError
from specverify.sweep.passes import PassCost, PassCosts
from specverify.sweep.rows import Row

FORMAT = "specverify-sweep"
# Raise it when a field changes its meaning: older files are then measured anew.
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Sweep:
    """Everything that was measured. about: family, machine, versions and effort, alike for all rows."""

    about: Mapping[str, Any]
    rows: Sequence[Row] = ()
    passes: PassCosts | None = None

    def axis(self, name: str) -> list[Row]:
        return [row for row in self.rows if row.axis == name]


@dataclass
class Store:
    """A folder that a sweep is written to as it grows."""

    folder: Path
    sweep: Sweep = field(init=False)

    def open(self, about: Mapping[str, Any]) -> None:
        """Takes up what is there of the same sweep, or starts anew. Raises UsageError where the folder is not ours."""
        self.sweep = Sweep(about)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            found = read_sweep(self.json_file) if self.json_file.exists() else None
        except OSError as error:
            raise UsageError(f"cannot use {self.folder} ({error.strerror}); give --out another folder") from error
        if found is not None and dict(found.about) == dict(about):
            self.sweep = found
        elif found is not None:
            was = ", ".join(f"{k} {v}" for k, v in found.about.items() if about.get(k) != v)
            raise UsageError(f"{self.folder} holds another sweep ({was}); give --out another folder, or delete it")

    @property
    def json_file(self) -> Path:
        return self.folder / "sweep.json"

    @property
    def csv_file(self) -> Path:
        return self.folder / "sweep.csv"

    @property
    def page_file(self) -> Path:
        return self.folder / "sweep.html"

    def add(self, row: Row, order: Sequence[str]) -> None:
        """Writes the sweep with this row in the place of an older one of its name. order: names, as to be listed."""
        rows = {old.name: old for old in self.sweep.rows} | {row.name: row}
        places = {name: place for place, name in enumerate(order)}
        kept = sorted(rows.values(), key=lambda one: places.get(one.name, len(places)))
        self._write(Sweep(self.sweep.about, kept, self.sweep.passes))

    def add_passes(self, passes: PassCosts) -> None:
        self._write(Sweep(self.sweep.about, self.sweep.rows, passes))

    def _write(self, sweep: Sweep) -> None:
        self.sweep = sweep
        _replace(self.json_file, as_json(sweep))
        _replace(self.csv_file, as_csv(sweep.rows))


def as_json(sweep: Sweep) -> str:
    """One row a line, so that two sweeps can be compared line by line."""
    passes = None if sweep.passes is None else asdict(sweep.passes)
    head = {"format": FORMAT, "version": FORMAT_VERSION, "about": sweep.about, "passes": passes}
    lines = ",\n".join(json.dumps(asdict(row)) for row in sweep.rows)
    return f'{json.dumps(head)[:-1]},\n"rows": [\n{lines}\n]}}\n'


def as_csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [one.name for one in fields(Row)], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in asdict(row).items()})
    return text.getvalue()


def read_sweep(path: Path) -> Sweep:
    """What sweep.json holds. Raises UsageError for any other file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if (content["format"], content["version"]) != (FORMAT, FORMAT_VERSION):
            raise ValueError(f"{content['format']} version {content['version']}")
        passes = content["passes"]
        if passes is not None:
            passes = PassCosts(**passes | {"passes": [PassCost(**one) for one in passes["passes"]]})
        return Sweep(content["about"], [Row(**row) for row in content["rows"]], passes)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is no sweep of version {FORMAT_VERSION} ({error}); move it out of the way") from error


def machine() -> str:
    """The processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _replace(path: Path, text: str) -> None:
    """Written aside and moved into place: an interrupted sweep leaves the last whole file."""
    fresh = path.with_name(path.name + ".part")
    fresh.write_text(text, encoding="utf-8", newline="")
    fresh.replace(path)
