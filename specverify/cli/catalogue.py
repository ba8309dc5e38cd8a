"""`specverify list`, `explain` and `probe`: what there is, without running anything."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from specverify.catalogue import all_checks, check_by_id
from specverify.checks.registry import Check
from specverify.cli.screen import Screen
from specverify.golden import DECISIONS_REPEAT_CHECK
from specverify.report.explain import explanation
from specverify.report.json import write_json


def print_list(json_file: Path | None) -> None:
    """One line a check: id, kind, claim."""
    checks = all_checks()
    if json_file is not None:
        write_json({"checks": [check_as_dict(one) for one in checks]}, json_file)
    console = Console(highlight=False, soft_wrap=True)
    width = max(len(one.id) for one in checks)
    for one in checks:
        console.print(Text.assemble((one.id.ljust(width), "bold"), f"  {one.kind.value:11}  {one.claim}"))
    console.print(f"\n{len(checks)} checks.")
    console.print(Text.assemble(("Next  ", "bold"), f"specverify explain {checks[0].id}"))


def check_as_dict(one: Check) -> dict[str, object]:
    return {
        "id": one.id,
        "claim": one.claim,
        "kind": one.kind.value,
        "needs": sorted(capability.name for capability in one.needs),
        "catches": list(one.catches),
        "source": one.source,
        "origin": one.origin,
    }


def print_explanation(check_id: str) -> None:
    """Everything the declaration of one check says."""
    one = DECISIONS_REPEAT_CHECK if check_id == DECISIONS_REPEAT_CHECK.id else check_by_id(check_id)
    console = Console(highlight=False, soft_wrap=True)
    console.print(explanation(one))
    console.print(Text.assemble(("\nNext  ", "bold"), _next_command(one)))


def _next_command(one: Check) -> str:
    """Sees the check at work: on the first fault that it names, which is of the kind of subject that it needs."""
    if one is DECISIONS_REPEAT_CHECK:
        return "specverify replay golden/ --engine reference"
    return f"specverify check {one.catches[0]} --select {one.id}    (a planted fault: see it fail)"


def print_probe(directory: Path, seed: int) -> None:
    """Writes the probe pair and says what it is good for."""
    from specverify.probe import summary, write_probe

    with Screen().status(f"writing {directory}, and measuring what it shows (about 15 s)"):
        pair = write_probe(directory, seed=seed)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"target  {pair.target_dir}")
    console.print(f"draft   {pair.draft_dir}")
    for title, rows in summary(pair).items():
        console.print(Text(title, style="bold"))
        for label, value in rows:
            console.print(f"  {label:44} {value}")
    console.print(Text.assemble(("Next  ", "bold"), f"specverify check reference --option probe={directory}"))
