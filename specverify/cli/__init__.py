"""The command line: check, list, explain, record, replay, selftest, probe, play, sweep, train."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from specverify import __version__
from specverify.core.errors import SubjectCrashed, UsageError

app = typer.Typer(
    name="specverify",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"specverify {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Does speculative decoding really change nothing? Judges engines, verify functions and traces."""


JsonOption = Annotated[Path | None, typer.Option("--json", help="Write the report as JSON to this file.")]
HtmlOption = Annotated[Path | None, typer.Option("--html", help="Write the report as one HTML page to this file.")]
SeedOption = Annotated[int, typer.Option(help="Root of every random stream of the run.")]

JobsOption = Annotated[int, typer.Option(min=0, help="Processes; 0 is one per core.")]


@app.command()
def check(
    subject: Annotated[
        str, typer.Argument(help="transformers, reference, MODULE:FACTORY, MODULE:FUNCTION, or a trace file.")
    ],
    select: Annotated[list[str] | None, typer.Option(help="Check id or wildcard (kv.*); may be repeated.")] = None,
    seed: SeedOption = 0,
    alpha: Annotated[float, typer.Option(help="Chance of one false alarm in the whole run.")] = 1e-9,
    effort: Annotated[float, typer.Option(help="Scales the amount of sampling; 1 is the default.")] = 1.0,
    profile: Annotated[
        str | None, typer.Option(help="verifier-1, engine-1 or traced-engine-1: must be decided.")
    ] = None,
    known_failures: Annotated[
        Path | None, typer.Option(help="TOML file that maps check ids to reasons; strict both ways.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Built-in engines: probe (default), smollm2; reference also tiny.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE for the engine or factory; may be repeated.")
    ] = None,
    jobs: JobsOption = 0,
    salvage: Annotated[
        bool, typer.Option("--salvage", help="Of a trace file that was cut short, judge the whole traces.")
    ] = False,
    json_file: JsonOption = None,
    html_file: HtmlOption = None,
) -> None:
    """Judge an engine, a verify function or a recorded trace."""
    if subject in ("transformers", "reference"):
        _one_thread_each()
    from specverify.adapters.resolve import parse_options
    from specverify.cli.check import run_check

    options = parse_options(option or ())
    if model is not None:
        options["model"] = model
    raise typer.Exit(
        run_check(
            subject, select=select or None, seed=seed, alpha=alpha, effort=effort, profile=profile,
            known_failures=known_failures, options=options, jobs=jobs, salvage=salvage, json_file=json_file,
            html_file=html_file,
        )
    )  # fmt: skip


@app.command("list")
def list_checks(json_file: JsonOption = None) -> None:
    """List every check, its kind and its claim."""
    from specverify.cli.catalogue import print_list

    print_list(json_file)


@app.command()
def explain(check_id: Annotated[str, typer.Argument(help="A check id; see `specverify list`.")]) -> None:
    """Explain one check: its claim, what it needs, when it is inconclusive, which bugs it catches."""
    from specverify.cli.catalogue import print_explanation

    print_explanation(check_id)


@app.command()
def record(
    engine: Annotated[str, typer.Argument(help="Built-in engine or MODULE:FACTORY.")],
    recipe: Annotated[Path, typer.Argument(help="TOML file that says what to run; the trace is written beside it.")],
    update: Annotated[bool, typer.Option("--update", help="Replace an existing golden trace.")] = False,
) -> None:
    """Record a golden trace."""
    from specverify.cli.golden import run_record

    raise typer.Exit(run_record(engine, recipe, update=update))


@app.command()
def replay(
    traces: Annotated[Path, typer.Argument(help="A golden trace, or a folder of them.")],
    engine: Annotated[str, typer.Option(help="Built-in engine or MODULE:FACTORY; the recorded one by default.")] = "",
    json_file: JsonOption = None,
    html_file: HtmlOption = None,
) -> None:
    """Replay golden traces and name the component that changed first."""
    from specverify.cli.golden import run_replay

    raise typer.Exit(run_replay(traces, engine, json_file=json_file, html_file=html_file))


@app.command()
def selftest(
    json_file: JsonOption = None,
    seed: SeedOption = 0,
    select: Annotated[
        list[str] | None, typer.Option(help="Fault or subject name, or wildcard; may be repeated.")
    ] = None,
    jobs: JobsOption = 0,
) -> None:
    """Prove the checks: every planted fault must be caught, every correct subject left alone."""
    _one_thread_each()
    from specverify.cli.selftest import run_selftest

    raise typer.Exit(run_selftest(json_file=json_file, seed=seed, select=select, jobs=jobs))


@app.command()
def probe(
    directory: Annotated[Path, typer.Argument(help="Folder for the checkpoint pair; made if missing.")],
    seed: Annotated[int, typer.Option(help="Which pair; the default one is what golden traces and docs mean.")] = 3,
) -> None:
    """Write a tiny target and draft checkpoint whose exact law is known, to load in any engine."""
    from specverify.cli.catalogue import print_probe

    print_probe(directory, seed)


@app.command()
def play(
    trace_file: Annotated[
        Path | None, typer.Argument(metavar="[TRACE_FILE]", help="A recorded run to step through.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Only write the page, to this file.")] = None,
) -> None:
    """Open a page to play with: when does speculation pay, and what happens in each round?"""
    from specverify.cli.play import run_play

    run_play(trace_file, out)


@app.command()
def sweep(
    family: Annotated[str, typer.Option(help="What is measured: tiny, smollm2 or probe.")] = "tiny",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer settings, less of each.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for page, CSV and JSON; an interrupted sweep goes on there.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="One axis, or pass-cost; may be repeated.")] = None,
) -> None:
    """Measure when speculation pays: draft length, temperature, workload and more, beside the closed forms."""
    _one_thread_each()
    from specverify.cli.sweep import run_sweep

    run_sweep(family, is_quick=quick, out=out, only=only or ())


@app.command()
def train(
    kind: Annotated[str, typer.Argument(help="draft, eagle or medusa.")],
    target: Annotated[str, typer.Argument(help="Checkpoint directory with its tokenizer, or tiny, or smollm2.")],
    out: Annotated[Path, typer.Option(help="Folder for what is trained.")],
    text: Annotated[
        list[Path] | None, typer.Option(help="File or folder to train on; Python's standard library by default.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Training steps.")] = 400,
    rows: Annotated[int, typer.Option(help="Texts in a step.")] = 8,
    length: Annotated[int, typer.Option(help="Tokens of each text.")] = 192,
    learning_rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 4e-3,
    temperature: Annotated[float, typer.Option(help="Of both laws that are compared.")] = 1.0,
    layers: Annotated[int, typer.Option(help="Layers of a draft model.")] = 1,
    hidden: Annotated[int | None, typer.Option(help="Width of a draft model; half the target's by default.")] = None,
    heads: Annotated[int, typer.Option(help="Number of Medusa heads.")] = 4,
    last_state_only: Annotated[
        bool, typer.Option("--last-state-only", help="EAGLE reads the target's last state, not several streams.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a training that was stopped in --out.")] = False,
    seed: SeedOption = 0,
) -> None:
    """Train what drafts for one target: a draft model, an EAGLE head or Medusa heads."""
    from specverify.cli.train import TrainOptions, run_train
    from specverify.reference.training.loop import Settings
    from specverify.reference.training.run import Plan

    plan = Plan(
        kind, temperature=temperature, num_layers=layers, hidden_size=hidden, num_heads=heads,
        is_fused=not last_state_only,
    )  # fmt: skip
    settings = Settings(steps, num_rows=rows, length=length, learning_rate=learning_rate, seed=seed)
    run_train(TrainOptions(plan, settings, target, tuple(text or ()), out, resume))


def _one_thread_each() -> None:
    """One process a core runs our own tiny models: threads within them only get in each other's way.

    Read when numpy and torch are first imported, which is why it is said here. The user's own engine is left alone.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def main() -> None:
    """Entry point. What the user can fix ends in one sentence and status 2, like the parser's own errors; a subject
    that raises outside a check, in one that names it, and status 4 as within one.
    """
    try:
        app()
    except UsageError as error:
        typer.echo(f"specverify: {error}", err=True)
        sys.exit(2)
    except SubjectCrashed as error:
        typer.echo(f"specverify: {error}", err=True)
        sys.exit(4)
    except BrokenPipeError:
        sys.exit(0)


if __name__ == "__main__":
    main()
