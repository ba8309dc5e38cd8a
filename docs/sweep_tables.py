"""Writes the measured tables of docs/economics.md from the sweeps in docs/sweeps.

Run from the repository root, after `specverify sweep --family tiny` and `--family smollm2`:
python docs/sweep_tables.py [SWEEP_JSON ...]    (files named are copied into docs/sweeps first)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from specverify.sweep.advice import advice
from specverify.sweep.plan import AXES
from specverify.sweep.rows import Row
from specverify.sweep.store import Sweep, as_json, read_sweep

DOCS = Path(__file__).parent
SWEEPS = DOCS / "sweeps"
TARGET = DOCS / "economics.md"
NAMES = {"tiny": "tiny family", "smollm2": "SmolLM2-135M", "probe": "probe pair"}
# Where plain decoding itself changes along the axis, the rates are told, too.
_WITH_RATES = ("batch-size", "quantisation")
_BLOCK = re.compile(r"(<!-- sweep: ([a-z-]+) -->\n)(.*?)(<!-- /sweep -->)", re.DOTALL)


def main() -> None:
    """Takes up the named sweeps and writes every block anew."""
    for path in map(Path, sys.argv[1:]):
        sweep = read_sweep(path)
        (SWEEPS / f"{sweep.about['family']}.json").write_text(as_json(sweep), encoding="utf-8")
    text = TARGET.read_text(encoding="utf-8")
    TARGET.write_text(filled(text, stored()), encoding="utf-8")


def stored() -> list[Sweep]:
    """The sweeps of docs/sweeps, in the order of NAMES."""
    files = [SWEEPS / f"{name}.json" for name in NAMES]
    return [read_sweep(file) for file in files if file.exists()]


def filled(text: str, sweeps: Sequence[Sweep]) -> str:
    """The page with every block between its markers made anew."""
    return _BLOCK.sub(
        lambda found: found[1] + "".join(f"{line}\n" for line in block(found[2], sweeps)) + found[4], text
    )


def block(name: str, sweeps: Sequence[Sweep]) -> Iterator[str]:
    """The lines of one block: an axis, "setting", "advice" or "pass-cost"."""
    if name in AXES:
        yield from axis_table(name, sweeps)
    else:
        yield from {"setting": settings, "advice": advices, "pass-cost": pass_table}[name](sweeps)


def settings(sweeps: Sequence[Sweep]) -> Iterator[str]:
    """What was measured on what."""
    for sweep in sweeps:
        about = sweep.about
        kind = "`specverify sweep --family {}{}`".format(about["family"], " --quick" if about["quick"] else "")
        yield (f"* {about['label']}: {kind}, {about['machine']}, {about['threads']} thread, torch {about['torch']}, "
               f"specverify {about['specverify']}")  # fmt: skip


def advices(sweeps: Sequence[Sweep]) -> Iterator[str]:
    """Which k to use, and why, in the sweep's own words."""
    for sweep in sweeps:
        for one in advice(sweep):
            yield f"* {NAMES[sweep.about['family']]}, **{one.headline}**. {' '.join(one.reasons)}".replace("+-", "±")


def axis_table(name: str, sweeps: Sequence[Sweep]) -> Iterator[str]:
    """One line per setting; in each family acceptance, tokens a pass and speed-up, the closed form in brackets."""
    having = [sweep for sweep in sweeps if sweep.axis(name)]
    if not having:
        return
    heads = [f"{NAMES[sweep.about['family']]}: acceptance | tokens a pass | speed-up" for sweep in having]
    yield f"| {AXES[name].title.lower()} | {' | '.join(heads)} |"
    yield f"|---|{'---|---|---|' * len(having)}"
    tables = [{_label(row): row for row in sweep.axis(name)} for sweep in having]
    labels = dict.fromkeys(label for table in tables for label in table)
    for label in sorted(labels, key=float) if all(_is_number(label) for label in labels) else labels:
        yield f"| {label} | {' | '.join(_figures(table.get(label)) for table in tables)} |"


def pass_table(sweeps: Sequence[Sweep]) -> Iterator[str]:
    """Cost of a pass over n tokens against one token, and the memory's share of one token's pass."""
    if not sweeps:
        return
    counts = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
    yield f"| tokens in one pass | {' | '.join(map(str, counts))} | floor |"
    yield f"|---|{'---|' * (len(counts) + 1)}"
    for sweep in sweeps:
        if sweep.passes is not None:
            relative = {one.num_tokens: one.relative for one in sweep.passes.passes}
            costs = " | ".join(f"{relative[num]:.2f}" for num in counts)
            yield f"| {NAMES[sweep.about['family']]} | {costs} | {sweep.passes.share_of_floor:.2f} |"


def _figures(row: Row | None) -> str:
    if row is None:
        return " | | "
    accepted = "" if row.acceptance is None else f"{row.acceptance:.2f}"
    tokens = f"{row.tokens_per_pass:.2f} ({row.tokens_per_pass_theory:.2f})"
    speed = f"{row.speedup:.2f}x ({row.speedup_theory:.2f}x)"
    if row.axis in _WITH_RATES:
        speed += f", {row.plain_tokens_per_second:.0f} to {row.tokens_per_second:.0f}/s"
    return f"{accepted} | {tokens} | {speed}"


def _label(row: Row) -> str:
    return f"k {row.value}, {row.proposer}, {row.workload}" if row.axis == "draft-length" else row.value


def _is_number(label: str) -> bool:
    return label.replace(".", "", 1).isdigit()


if __name__ == "__main__":
    main()
