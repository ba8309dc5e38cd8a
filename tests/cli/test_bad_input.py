"""Wrong calls: each ends in one clear sentence and the right exit status, none in a traceback of ours."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from specverify.cli import main

BROKEN = "tests.cli.broken_subjects"
RECIPE = "[[request]]\nprompt_token_ids = [5, 9]\nmax_new_tokens = 4\n"


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    """Runs the command line in this process; gives the exit status and everything it printed."""
    monkeypatch.chdir(Path(__file__).parent.parent.parent)

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["specverify", *(text.replace("TMP", str(tmp_path)) for text in arguments)])
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsys.readouterr()
        return int(exit_info.value.code or 0), captured.err + captured.out

    (tmp_path / "recipe.toml").write_text(RECIPE)
    (tmp_path / "bad.toml").write_text("not toml at all")
    (tmp_path / "empty.toml").write_text("")
    (tmp_path / "unknown.toml").write_text('"kv.no-such-check" = "issue 1"')
    (tmp_path / "noreason.toml").write_text('"kv.rows-equal-prefill" = ""')
    (tmp_path / "text.jsonl").write_text("hello\n")
    (tmp_path / "void.jsonl").write_text("")
    golden = (Path(__file__).parent.parent.parent / "golden" / "greedy.trace.jsonl").read_text().splitlines()
    (tmp_path / "cut.trace.jsonl").write_text("\n".join(golden[:5]) + "\n")
    (tmp_path / "version.jsonl").write_text(re.sub(r'"version":\d+', '"version":99', golden[0]) + "\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    return run


WRONG_CALLS = [
    (("check", "no-such-thing"), "names nothing to check"),
    (("check", "no_such_module:make"), "cannot import no_such_module"),
    (("check", f"{BROKEN}:nothing"), "has no nothing"),
    (("check", f"{BROKEN}:"), "is not of the form MODULE:NAME"),
    (("check", f"{BROKEN}:not_callable"), "is a int; give an engine"),
    (("check", f"{BROKEN}:returns_nothing"), "without 'name'"),
    (("check", f"{BROKEN}:returns_a_list_of_numbers"), "without 'name'"),
    (("check", f"{BROKEN}:returns_no_engines"), "returned no engine"),
    (("check", f"{BROKEN}:ambiguous"), "first"),
    (("check", f"{BROKEN}:no_parameters_that_fit"), "cannot tell the parameters"),
    (("check", "reference", "--select", "kv.no-such"), "no check is called 'kv.no-such'"),
    (("check", "reference", "--alpha", "2"), "--alpha is 2"),
    (("check", "reference", "--effort", "0"), "--effort is 0"),
    (("check", "reference", "--profile", "engine-99"), "no profile is called 'engine-99'"),
    (("check", "reference", "--known-failures", "TMP/none.toml"), "cannot read"),
    (("check", "reference", "--known-failures", "TMP/bad.toml"), "is not TOML"),
    (("check", "reference", "--known-failures", "TMP/unknown.toml"), "no check is called 'kv.no-such-check'"),
    (("check", "reference", "--known-failures", "TMP/noreason.toml"), "give a sentence or a link"),
    (("check", "reference", "--option", "proposer"), "is not of the form KEY=VALUE"),
    (("check", "reference", "--option", "proposer=telepathy"), "choose from"),
    (("check", "reference", "--option", "dtype=float7"), "float7"),
    (("check", "reference", "--option", "colour=red"), "colour"),
    (("check", "reference", "--option", "probe=TMP/none"), "holds no probe pair"),
    (("check", "reference", "--model", "gpt-5"), "gpt-5"),
    (("check", "reference", "--model", "tiny", "--option", "probe=TMP/none"), "were both given"),
    (("check", "transformers", "--option", "modes=telepathy"), "telepathy"),
    (("check", "reference", "--json", "TMP/none/report.json"), "there is no folder"),
    (("explain", "kv.rejected-rows-droped"), "did you mean kv.rejected-rows-dropped"),
    (("replay", "TMP/none.jsonl"), "is not there"),
    (("replay", "TMP/cut.trace.jsonl"), "is truncated at line 5"),
    (("replay", "TMP/text.jsonl"), "is not a trace file"),
    (("replay", "TMP/void.jsonl"), "is empty"),
    (("replay", "TMP/version.jsonl"), "format version 99"),
    (("replay", "TMP/full"), "holds no .jsonl file"),
    (("check", "TMP/cut.trace.jsonl"), "is truncated at line 5"),
    (("record", "reference", "TMP/none.toml"), "cannot read"),
    (("record", "reference", "TMP/empty.toml"), "has no [[request]]"),
    (("record", f"{BROKEN}:returns_nothing", "TMP/recipe.toml"), "without 'name'"),
    (("probe", "TMP/full"), "is not empty and holds no probe pair"),
    (("probe", "TMP/recipe.toml"), "is a file"),
    (("selftest", "--select", "no-such-fault"), "no fault or correct subject is called"),
]


@pytest.mark.parametrize(("arguments", "sentence"), WRONG_CALLS, ids=[" ".join(a) for a, _ in WRONG_CALLS])
def test_a_wrong_call_ends_in_one_sentence_and_status_two(call, arguments, sentence):
    """What the user can fix is said once, without a traceback, and the status is the parser's."""
    status, text = call(*arguments)

    assert status == 2
    assert sentence in text
    assert "Traceback" not in text
    assert len([line for line in text.splitlines() if line.startswith("specverify: ")]) == 1


@pytest.mark.parametrize(("factory", "sentence"), [("raises", "MemoryError"), ("returns_too_few", "0 traces for")])
def test_an_engine_that_misbehaves_is_named(call, factory, sentence):
    """An engine that raises or loses requests crashes its checks, not the suite."""
    status, text = call("check", f"{BROKEN}:{factory}", "--select", "tokens.at-most-max-tokens")

    assert status in (2, 4)
    assert sentence in text
    assert "Traceback" not in text


def test_an_unknown_command_is_the_parsers_business(call):
    """Status 2 with the parser's own words."""
    status, text = call("chekc", "reference")

    assert status == 2
    assert "chekc" in text
