"""`specverify sweep`: measures when speculation pays, prints a table, and says which k to use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from specverify.sweep.advice import advice
from specverify.sweep.families import load_family
from specverify.sweep.page import write_page
from specverify.sweep.passes import PassCosts
from specverify.sweep.plan import AXES
from specverify.sweep.rows import Row
from specverify.sweep.run import about, run
from specverify.sweep.store import Store, Sweep


def run_sweep(family_name: str, *, is_quick: bool, out: Path | None, only: Sequence[str]) -> None:
    """Measures into the folder `out`, by default one in the current folder that is named after the family."""
    family = load_family(family_name)
    store = Store(out or Path(f"specverify-sweep-{family_name}"))
    store.open(about(family, is_quick=is_quick))
    screen, errors = Console(highlight=False), Console(stderr=True, highlight=False)
    with Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=30), TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(), TimeRemainingColumn(), console=errors, transient=True, disable=not errors.is_terminal,
    ) as progress:  # fmt: skip
        task = progress.add_task("sweep", total=None)

        def report(label: str, done: int, total: int) -> None:
            progress.update(task, description=label, completed=done, total=total)
            if not errors.is_terminal:
                errors.print(f"{done}/{total}  {label}", soft_wrap=True)

        try:
            num_known = run(store, family, is_quick=is_quick, only=only, progress=report)
        except KeyboardInterrupt:
            progress.stop()
            write_page(store.sweep, store.page_file)
            errors.print(f"Interrupted; {len(store.sweep.rows)} rows are in {store.folder}. The same command goes on.")
            raise SystemExit(130) from None
    write_page(store.sweep, store.page_file)
    print_sweep(store.sweep, screen)
    if num_known:
        screen.print(f"{num_known} of these were measured before and taken from {store.folder}.\n")
    screen.print(f"\npage   {store.page_file}   one file, no network", soft_wrap=True)
    screen.print(f"rows   {store.csv_file}, {store.json_file}", soft_wrap=True)
    again = f"specverify sweep --family {family_name}    (more of everything, a draft length at a time)"
    hint = again if is_quick else "specverify play    (the same curve, with sliders)"
    screen.print(Text.assemble(("Next   ", "bold"), hint), soft_wrap=True)


def print_sweep(sweep: Sweep, screen: Console) -> None:
    """Tables axis by axis, then pass costs, then which k to use."""
    for name, axis in AXES.items():
        rows = sweep.axis(name)
        if rows:
            screen.print(_table(axis.title, rows))
    if sweep.passes is not None:
        for line in pass_lines(sweep.passes):
            screen.print(line, soft_wrap=True)
        screen.print()
    for one in advice(sweep):
        screen.print(Text(one.headline, style="bold" if one.best_k else "bold yellow"), soft_wrap=True)
        for reason in one.reasons:
            screen.print(f"  {reason}", soft_wrap=True)
        screen.print()


def _table(title: str, rows: Sequence[Row]) -> Table:
    title = f"\n{title}"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1))
    for heading in ("", "acceptance", "per pass", "theory", "speed-up", "theory", "best k"):
        table.add_column(heading, justify="right" if heading else "left", header_style="dim", no_wrap=True)
    for row in rows:
        table.add_row(
            f"{row.value}, {row.proposer}" if row.axis == "draft-length" else row.value,
            "" if row.acceptance is None else f"{row.acceptance:.3f}",
            f"{row.tokens_per_pass:.2f}",
            f"{row.tokens_per_pass_theory:.2f}",
            f"{row.speedup:.2f}x",
            f"{row.speedup_theory:.2f}x",
            "" if row.best_k is None else str(row.best_k),
        )
    return table


def pass_lines(passes: PassCosts) -> Iterator[str]:
    """What checking several tokens in one pass costs, and how near that is to what the memory allows."""
    relative = {p.num_tokens: p.relative for p in passes.passes}
    yield "One target pass over n tokens, against one token"
    yield "  " + ", ".join(f"{n}: {relative[n]:.2f}" for n in (1, 2, 4, 5, 8, 12, 16))
    one, size = passes.passes[0].seconds * 1e3, passes.weight_bytes / 1e6
    yield (
        f"  Reading the weights ({size:.1f} MB) once takes {passes.floor_seconds * 1e3:.3g} ms here, "
        f"a pass over one token {one:.3g} ms: {passes.share_of_floor:.0%} of that is the memory's."
    )
