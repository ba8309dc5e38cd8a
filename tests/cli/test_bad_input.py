"""Wrong calls: each ends in one clear sentence and the right exit status, none in a traceback of ours."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from specverify import __version__
from specverify.catalogue import check_by_id
from specverify.cli import main
from specverify.report.commands import check_command

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
    (tmp_path / "key.toml").write_text(f"{RECIPE}eos = 3\n")
    (tmp_path / "options.toml").write_text(f"[engine]\nproposer = 'n-gram'\n{RECIPE}")
    (tmp_path / "bad.toml").write_text("not toml at all")
    (tmp_path / "empty.toml").write_text("")
    (tmp_path / "unknown.toml").write_text('"kv.no-such-check" = "issue 1"')
    (tmp_path / "noreason.toml").write_text('"kv.rows-equal-prefill" = ""')
    (tmp_path / "text.jsonl").write_text("hello\n")
    (tmp_path / "void.jsonl").write_text("")
    golden = (Path(__file__).parent.parent.parent / "golden" / "greedy.trace.jsonl").read_text().splitlines()
    (tmp_path / "cut.trace.jsonl").write_text("\n".join(golden[:5]) + "\n")
    whole = next(number for number, line in enumerate(golden) if '"type":"result"' in line)
    (tmp_path / "whole-and-cut.trace.jsonl").write_text("\n".join(golden[: whole + 3]) + "\n")
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
    (("check", f"{BROKEN}:wants_a_model"), "a factory needs no argument, except perhaps one called probe"),
    (("check", f"{BROKEN}:declares_names"), "give Capability."),
    (("check", f"{BROKEN}:verify", "--option", "a=1"), "is a verify function, which takes no options; it was given a"),
    (("check", "golden/greedy.trace.jsonl", "--option", "a=1"), "is a trace file, which takes no options"),
    (("check", "verify-ratio-inverted", "--option", "a=1"), "takes no options"),
    (("record", "reference", "TMP/key.toml"), "eos is unknown; there are prompt_token_ids, max_new_tokens, seed"),
    (("record", f"{BROKEN}:raises", "TMP/options.toml"), "(the options come from [engine] of"),
    (("check", "reference", "--select", "kv.no-such"), "no check is called 'kv.no-such'"),
    (("check", "reference", "--select", "kv"), "no check is called 'kv'; `specverify list` shows all"),
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


RAISES = "RuntimeError: no GPU here (raised at "
POOL = "MemoryError: the pool is empty (raised at "
SUBJECTS_THAT_RAISE = [
    (("check", f"{BROKEN}:raises", "--select", "tokens.at-most-max-tokens"), POOL),
    (("check", f"{BROKEN}:returns_too_few", "--select", "tokens.at-most-max-tokens"), "0 traces for"),
    (
        ("check", f"{BROKEN}:knows_eight_tokens", "--select", "greedy.on-equals-off"),
        "made up, since the adapter brings none: if the engine knows no such tokens, set `prompts` (and `vocab_size`)",
    ),
    (
        ("check", f"{BROKEN}:records_nothing_sound", "--select", "draft.declared-law-sampled"),
        "Step.target_probs[0] of request 0, step 0 does not sum to 1 (sum -111): are these log-probabilities?",
    ),
    (("check", f"{BROKEN}:has_no_gpu"), f"{BROKEN}:has_no_gpu raised {RAISES}"),
    (("record", f"{BROKEN}:has_no_gpu", "TMP/recipe.toml"), RAISES),
    (("record", f"{BROKEN}:raises", "TMP/recipe.toml"), f"broken engine, asked for request 0, raised {POOL}"),
    (("replay", "golden", "--engine", f"{BROKEN}:raises"), f"broken engine, asked for request 0, raised {POOL[:11]}"),
    (("replay", "golden", "--engine", f"{BROKEN}:has_no_gpu"), f"{BROKEN}:has_no_gpu raised"),
    (("check", "tests.cli.broken_module:make"), "importing tests.cli.broken_module raised ZeroDivisionError"),
]


@pytest.mark.parametrize(
    ("arguments", "sentence"), SUBJECTS_THAT_RAISE, ids=[" ".join(a) for a, _ in SUBJECTS_THAT_RAISE]
)
def test_a_subject_that_raises_is_named_with_status_four(call, arguments, sentence):
    """Wherever it happens: within a check, in the factory, while recording or replaying."""
    status, text = call(*arguments)

    assert status == 4
    assert " ".join(sentence.split()) in " ".join(text.split())
    assert "Traceback" not in text


def test_a_crash_in_one_replay_keeps_the_results_of_the_others(call, tmp_path):
    """Each golden trace is reported, as crashed."""
    _, text = call("replay", "golden", "--engine", f"{BROKEN}:raises")

    assert text.count("crashed  golden.decisions-repeat") == 3
    assert "Next  specverify explain golden.decisions-repeat" in text


def test_a_file_that_was_cut_short_is_judged_on_request(call):
    """The command that the message names does what it says."""
    _, text = call("check", "TMP/whole-and-cut.trace.jsonl")
    assert "--salvage" in text

    status, text = call("check", "TMP/whole-and-cut.trace.jsonl", "--salvage", "--select", "tokens.prefix-termination")

    assert status == 0, text


def test_a_rerun_line_has_every_option_that_changes_a_verdict():
    """Effort, false-alarm budget and known failures; defaults are left out."""
    assert check_command("a:b") == "specverify check a:b"
    assert (
        check_command("a:b", {"model": "m", "k": "v w"}, alpha=1e-6, effort=0.5, known_failures=Path("known.toml"))
    ) == "specverify check a:b --model m --option 'k=v w' --alpha 1e-06 --effort 0.5 --known-failures known.toml"


def test_the_rerun_line_of_a_failure_repeats_it(call):
    """Copied as it is, the line ends in the same verdict: names of planted faults are subjects too."""
    status, text = call("check", "verify-ratio-inverted", "--select", "lossless.step-law", "--effort", "0.5")
    rerun = next(line for line in text.splitlines() if line.startswith("  Rerun")).split()[1:]

    assert (status, float(rerun[rerun.index("--effort") + 1])) == (1, 0.5)
    assert call(*rerun[1:])[0] == 1


@pytest.mark.parametrize("check_id", ["lossless.step-law", "kv.rejected-rows-dropped", "golden.decisions-repeat"])
def test_the_command_after_an_explanation_judges_something(call, check_id):
    """It decides the check that was explained."""
    status, text = call("explain", check_id)
    following = text.split("Next  ")[1].split("    ")[0].split()

    assert status == 0
    assert call(*following[1:])[0] in (0, 1)


def test_after_a_crash_comes_the_report_with_the_traceback(call, tmp_path):
    """Whatever else was undecided."""
    _, text = call("check", f"{BROKEN}:raises")
    following = text.split("Next  ")[1]

    assert following.startswith(f"specverify check {BROKEN}:raises --html report.html")
    call("check", f"{BROKEN}:raises", "--html", "TMP/report.html")
    assert "Traceback" in (tmp_path / "report.html").read_text()


def test_prompts_stay_within_a_vocabulary_that_is_told(call):
    """However small it is."""
    assert call("check", f"{BROKEN}:says_eight_tokens", "--select", "greedy.on-equals-off")[0] == 0


def test_what_would_unlock_the_rest_is_said_once(call):
    """By ability; checks of the profile were printed one by one, and those for other subjects need nothing."""
    _, text = call("check", f"{BROKEN}:says_eight_tokens", "--profile", "engine-1")
    words = " ".join(text.split())
    counted = int(re.search(r"unsupported (\d+) checks: \d+ for verify functions", words)[1])
    listed = len(re.findall(r"^unsupported  [a-z]+\.", text, re.MULTILINE))

    assert f"{counted + listed} unsupported in" in words
    assert re.search(r"TOKENIZER to unlock 4, [A-Z_]+ \d,", words)


def test_one_check_is_no_plural(call):
    """English."""
    _, text = call("check", f"{BROKEN}:says_eight_tokens", "--select", "seed.repeats")

    assert "unsupported  1 check: declare SEED to unlock 1" in text


def test_a_negative_number_of_processes_is_refused(call):
    """By the parser."""
    status, text = call("check", "golden/greedy.trace.jsonl", "--jobs", "-3")

    assert status == 2
    assert "--jobs" in text


def test_after_playing_a_file_that_was_cut_short_the_next_command_works(call):
    """It says --salvage."""
    _, text = call("play", "TMP/whole-and-cut.trace.jsonl", "--out", "TMP/play.html")
    following = text.split("Next  ")[1].split()

    assert "--salvage" in following
    assert call(*following[1:])[0] in (0, 3)


def test_the_version_can_be_asked(call):
    """For bug reports."""
    assert call("--version") == (0, f"specverify {__version__}\n")


def test_names_of_faults_are_not_broken_in_an_explanation(call):
    """They are copied into commands."""
    _, text = call("explain", "lossless.step-law")

    names = text.split("Catches   ")[1].split("Source")[0].replace(",", " ").split()
    assert set(names) == set(check_by_id("lossless.step-law").catches)


def test_the_page_says_which_version_wrote_it_when_and_on_which_command(call, tmp_path):
    """Whoever is sent the page can repeat it."""
    call("check", "golden/greedy.trace.jsonl", "--html", "TMP/report.html")
    page = (tmp_path / "report.html").read_text()

    assert f"specverify {__version__}, 20" in page
    assert "specverify check golden/greedy.trace.jsonl --html" in page


def test_an_unknown_command_is_the_parsers_business(call):
    """Status 2 with the parser's own words."""
    status, text = call("chekc", "reference")

    assert status == 2
    assert "chekc" in text
