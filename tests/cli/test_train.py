"""`specverify train` from end to end, on little text."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from specverify.adapters.reference import reference_engine
from specverify.cli import app
from specverify.core.errors import UsageError
from specverify.core.types import Request, SamplingParams

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    for index in range(30):
        body = "".join(f"def f{n}(x):\n    return x + {n * index}\n\n" for n in range(20))
        (folder / f"part{index}.py").write_text(body, encoding="utf-8")
    return folder


def train(kind: str, text: Path, out: Path, *options: str, target: str = "tiny"):  # type: ignore[no-untyped-def]
    given = ["train", kind, target, "--text", str(text), "--out", str(out), "--steps", "2", "--rows", "2"]
    return RUNNER.invoke(app, [*given, "--length", "48", *options])


@pytest.mark.parametrize("kind", ["draft", "eagle", "medusa"])
def test_what_is_trained_can_be_put_to_use(kind: str, text: Path, tmp_path: Path) -> None:
    """It is written, measured, and named in the next command, whose arguments make an engine that decodes the same."""
    done = train(kind, text, tmp_path)

    assert done.exit_code == 0, done.output
    assert f"{kind} for tiny" in done.output
    assert "of the draft tokens that were judged were accepted" in done.output
    options = dict(part.split("=", 1) for part in done.output.split("Next  ")[1].split() if "=" in part)
    engine = reference_engine(**options)
    request = Request((5, 6, 7, 8), 12, SamplingParams(0.0))
    on, off = (engine.generate([request], speculate=speculate)[0].token_ids for speculate in (True, False))
    assert off == on


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "lookahead"}, "choose from draft, eagle, medusa"),
        ({"kind": "draft", "target": "/nowhere"}, "holds no tokenizer.json"),
        ({"kind": "eagle", "options": ("--resume",)}, "start without --resume"),
        ({"kind": "draft", "options": ("--hidden", "50")}, "no multiple of the target's head size"),
        ({"kind": "medusa", "options": ("--heads", "0")}, "at least 1 layer"),
    ],
)
def test_what_cannot_be_trained_is_said(arguments: dict, message: str, text: Path, tmp_path: Path) -> None:  # type: ignore[type-arg]
    options = arguments.pop("options", ())
    done = train(arguments.pop("kind"), text, tmp_path, *options, **arguments)

    assert isinstance(done.exception, UsageError)
    assert message in str(done.exception)
