"""`specverify selftest`: the kill matrix, fault by fault."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from specverify.report.json import write_json
from specverify.selftest import SelfTest, Trial
from specverify.selftest import run_selftest as run_matrix


def run_selftest(*, json_file: Path | None, seed: int, select: Sequence[str] | None, jobs: int) -> int:
    """Runs the matrix, prints it, and returns its exit status."""
    out = Console(highlight=False, soft_wrap=True)
    err = Console(stderr=True, highlight=False)
    with Progress(console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task("specimens", total=None)

        def on_trial(trial: Trial, done: int, total: int) -> None:
            progress.update(task, completed=done, total=total, description=trial.name)

        matrix = run_matrix(select=select, seed=seed, jobs=jobs, on_trial=on_trial)
    out.print(Text("Planted faults: every check that names a fault must fail on it", style="bold"))
    for trial in matrix.faults:
        out.print(_fault_line(trial))
    out.print(Text("\nCorrect subjects: no check may fail on one", style="bold"))
    for trial in matrix.correct_subjects:
        out.print(_correct_line(trial))
    out.print(f"\n{summary(matrix)}")
    if json_file is not None:
        write_json(matrix_as_dict(matrix), json_file)
    out.print(Text.assemble(("Next  ", "bold"), _next(matrix)))
    return matrix.exit_status


def summary(matrix: SelfTest) -> str:
    """Killed, survivors, false alarms, in one line."""
    killed = len(matrix.faults) - len(matrix.survivors)
    return (
        f"{killed} of {len(matrix.faults)} faults killed, {len(matrix.false_alarms)} false alarms on "
        f"{len(matrix.correct_subjects)} correct subjects, in {matrix.seconds:.1f} s"
    )


def matrix_as_dict(matrix: SelfTest) -> dict[str, object]:
    """The JSON report: names of faults, killed, survivors, correct_subjects, false_alarms, and every cell."""
    survivors = {trial.name: list(trial.missed_by) for trial in matrix.survivors}
    return {
        "format_version": 1,
        "faults": [trial.name for trial in matrix.faults],
        "killed": [trial.name for trial in matrix.faults if trial.name not in survivors],
        "survivors": survivors,
        "correct_subjects": [trial.name for trial in matrix.correct_subjects],
        "false_alarms": {trial.name: list(trial.false_alarms) for trial in matrix.false_alarms},
        "idle_subjects": [trial.name for trial in matrix.idle_subjects],
        "matrix": {
            trial.name: {
                "report": trial.report,
                "sentence": trial.sentence,
                "seconds": round(trial.seconds, 2),
                "checks": {check: outcome.value for check, outcome in trial.outcomes.items()},
                "reasons": trial.reasons,
            }
            for trial in matrix.trials
        },
        "seconds": round(matrix.seconds, 1),
    }


def _fault_line(trial: Trial) -> Text:
    if not trial.outcomes:
        return Text.assemble(("SURVIVED", "bold red"), f"  {trial.name}  no check names it")
    word = ("SURVIVED", "bold red") if trial.missed_by else ("killed  ", "green")
    cells = [
        (check + (f" [{trial.outcomes[check].value}: {trial.reasons[check]}]" if check in trial.missed_by else ""))
        for check in trial.outcomes
    ]
    return Text.assemble(word, f"  {trial.name:40} ", (f"{', '.join(cells)}", "dim"))


def _correct_line(trial: Trial) -> Text:
    if trial.false_alarms:
        alarms = ", ".join(f"{check}: {trial.reasons[check]}" for check in trial.false_alarms)
        return Text.assemble(("FALSE ALARM", "bold red"), f"  {trial.name}  {alarms}")
    passed = sum(1 for outcome in trial.outcomes.values() if outcome.value == "passed")
    if not passed:
        return Text.assemble(("IDLE", "bold red"), f"  {trial.name}  no check could be decided on it")
    return Text.assemble(("clean   ", "green"), f"  {trial.name:40} ", (f"{passed} checks passed", "dim"))


def _next(matrix: SelfTest) -> str:
    wrong = [*matrix.survivors, *matrix.false_alarms, *matrix.idle_subjects]
    if wrong:
        return f"specverify selftest --select {wrong[0].name} --json selftest.json"
    return "specverify check transformers"
