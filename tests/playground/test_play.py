"""`specverify play` and the files it is made of."""

from __future__ import annotations

import sys
import tempfile
import webbrowser
from pathlib import Path

import pytest

from specverify.cli import main

ROOT = Path(__file__).parent.parent.parent
GOLDEN = ROOT / "golden" / "sampled.trace.jsonl"


@pytest.fixture
def play(monkeypatch, capsys, tmp_path):
    """Runs the command; gives the exit status, what it printed and what it opened."""
    opened: list[str] = []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)

    def run(*arguments: object) -> tuple[int, str, list[str]]:
        monkeypatch.setattr(sys, "argv", ["specverify", "play", *(str(one) for one in arguments)])
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsys.readouterr()
        return int(exit_info.value.code or 0), captured.out + captured.err, opened

    return run


def test_out_only_writes(play, tmp_path):
    """--out writes one file and opens nothing."""
    status, text, opened = play("--out", tmp_path / "page.html")

    assert (status, opened) == (0, [])
    assert "Next  specverify play TRACE_FILE" in text
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_opens_the_browser(play):
    """Without --out the page is opened, from a file that stays."""
    _, _, opened = play()

    path = Path(opened[0].removeprefix("file://"))
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_no_browser(play, monkeypatch):
    """Where no browser can be opened the page is still there, and the output says what to do."""
    monkeypatch.setattr(webbrowser, "open", lambda address: False)

    status, text, _ = play()

    assert status == 0
    assert "open that file in one" in text


def test_with_a_trace(play, tmp_path):
    """A trace file goes into the page, and the next command judges it."""
    _, text, _ = play(GOLDEN, "--out", tmp_path / "page.html")

    assert "2 requests, 12 steps" in text
    assert f"Next  specverify check {GOLDEN}" in text
    assert '"request_id": "0"' in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_cut_trace(play, tmp_path):
    """A run that died is shown as far as it went."""
    (tmp_path / "cut.jsonl").write_text(GOLDEN.read_text()[:20_000])

    status, text, _ = play(tmp_path / "cut.jsonl", "--out", tmp_path / "page.html")

    assert status == 0
    assert "the file was cut short" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none.jsonl",), "is not there"),
        (("bad.jsonl",), "is not a trace file"),
        (("--out", "no-such-folder/page.html"), "cannot write"),
    ],
)
def test_wrong_calls(play, tmp_path, monkeypatch, arguments, message):
    """One sentence and status 2."""
    monkeypatch.chdir(tmp_path)
    Path("bad.jsonl").write_text("hello\n")
    out = () if "--out" in arguments else ("--out", "page.html")

    status, text, opened = play(*arguments, *out)

    assert (status, opened) == (2, [])
    assert message in text
    assert not Path("page.html").exists()


def test_page_is_self_contained(play, tmp_path):
    """No address of anything outside, and a policy that would refuse to fetch it."""
    play("--out", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")

    assert "default-src 'none'" in text
    assert not any(word in text for word in ("http://", "https://", 'src="', "@import", "url("))


def test_files_ship_in_the_wheel():
    """Every file that the page is made of is package data."""
    declared = (ROOT / "pyproject.toml").read_text()

    folder = ROOT / "specverify" / "playground"
    suffixes = {file.suffix for file in folder.iterdir() if file.is_file()} - {".py"}

    assert suffixes == {".html", ".css", ".js"}
    assert all(f'"playground/*{suffix}"' in declared for suffix in suffixes)
    assert '"specverify.playground"' in declared
