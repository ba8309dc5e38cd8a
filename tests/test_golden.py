"""Golden traces repeat on the same engine, and name what changed on another."""

from __future__ import annotations

from pathlib import Path

import pytest

from specverify.adapters.recorded import recorded_subjects
from specverify.core.errors import SubjectCrashed, UsageError
from specverify.core.outcomes import Outcome
from specverify.golden import read_recipe, record, replay, replay_file
from specverify.report.text import render_result
from specverify.runner import run_checks
from specverify.trace.files import read_traces

GOLDEN = Path(__file__).parent.parent / "golden"
RECIPE = """
[engine]
num_draft_tokens = 3
[[request]]
prompt_token_ids = [5, 9, 12, 7]
max_new_tokens = 12
temperature = 0.7
seed = 7
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(RECIPE)
    return path


def test_the_shipped_traces_repeat():
    """The reference engine does what it did when golden/ was recorded."""
    report = replay(GOLDEN)

    assert [result.outcome for result in report.results] == [Outcome.PASSED] * 3


def test_a_changed_draft_law_is_named_as_the_first_difference(recipe):
    """The text may differ later; what is named is the component that changed first."""
    path = record("tests.changed_engines:unchanged", recipe)

    results = replay_file(path, engine="tests.changed_engines:wrong_draft_law").results
    (result,) = [one for one in results if one.check_id == "golden.decisions-repeat"]

    assert result.outcome is Outcome.FAILED
    message = render_result(result)
    marked = next(line for line in message.splitlines() if "first difference" in line)
    assert "draft probs" in marked
    assert "--update" in message


def test_what_is_wrong_on_the_replay_itself_names_a_command_that_there_is(recipe):
    """A replay is repeated by a replay, which selects no checks."""
    path = record("tests.changed_engines:unchanged", recipe)

    results = replay_file(path, engine="tests.changed_engines:keeps_rejected_rows").results

    assert "kv.rejected-rows-dropped" in {one.check_id for one in results}
    commands = {one.rerun.splitlines()[0] for one in results}
    assert commands == {f"specverify replay {path} --engine tests.changed_engines:keeps_rejected_rows"}


def test_an_existing_trace_is_replaced_only_on_purpose(recipe):
    """A golden trace is not overwritten by a slip."""
    record("tests.changed_engines:unchanged", recipe)

    with pytest.raises(UsageError, match="--update"):
        record("tests.changed_engines:unchanged", recipe)


def test_an_engine_that_dies_leaves_the_golden_trace_alone(recipe):
    """An update that fails half way loses nothing."""
    path = record("tests.changed_engines:unchanged", recipe)
    before = path.read_bytes()

    with pytest.raises(
        SubjectCrashed, match=r"dying, asked for request 0, raised RuntimeError: out of memory .*changed_engines"
    ):
        record("tests.changed_engines:dies", recipe, update=True)

    assert path.read_bytes() == before
    assert read_traces(path).is_complete


def test_what_was_recorded_before_an_engine_died_is_kept_and_named(tmp_path):
    """The requests that were done can still be judged."""
    recipe = tmp_path / "two.toml"
    recipe.write_text(RECIPE + RECIPE[RECIPE.index("[[request]]") :])

    with pytest.raises(SubjectCrashed, match=r"asked for request 1, .*1 of 2 requests were recorded .*two\.trace\.new"):
        record("tests.changed_engines:dies_at_the_second_request", recipe)

    kept = read_traces(recipe.with_suffix(".trace.new"), salvage=True)
    assert (len(kept.traces), kept.is_complete) == (1, False)


def test_a_constraint_of_a_recipe_is_kept_to_and_replayed(tmp_path):
    """It is in the file, and the replay asks for it again."""
    path = tmp_path / "constrained.toml"
    path.write_text(RECIPE + "constraint = {transitions = [[[4, 1], [5, 1]], [[6, 0]]], accepting = [0]}\n")

    file = record("tests.changed_engines:unchanged", path)

    (trace,) = read_traces(file).traces
    assert set(trace.token_ids[1::2]) == {6}
    assert all(result.outcome is Outcome.PASSED for result in replay_file(file).results)


def test_a_recorded_trace_is_judged_like_a_run():
    """Every check of traces that the file has evidence for is decided on it."""
    subject = recorded_subjects(GOLDEN / "sampled.trace.jsonl")[0]

    report = run_checks(subject)

    outcomes = {result.check_id: result.outcome for result in report.results}
    assert outcomes["tokens.prefix-termination"] is Outcome.PASSED
    assert outcomes["kv.rejected-rows-dropped"] is Outcome.PASSED
    assert Outcome.FAILED not in outcomes.values()
    assert Outcome.CRASHED not in outcomes.values()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no \\[\\[request\\]\\]"),
        ("[[request]]\nmax_new_tokens = 3", "has no prompt_token_ids"),
        ("[[request]]\nprompt_token_ids = [1]\nmax_new_tokens = 3\ntop_q = 1", "top_q is unknown"),
        ("[engines]\nk = 3", "engines; a recipe has"),
        (
            "[[request]]\nprompt_token_ids = [1]\nmax_new_tokens = 3\nconstraint = {accepting = [0]}",
            "request 0: a constraint is",
        ),
        ("not toml", "is not TOML"),
    ],
)
def test_a_malformed_recipe_is_refused_by_name(tmp_path, text, sentence):
    """The request and the key that are wrong are named."""
    path = tmp_path / "bad.toml"
    path.write_text(text)

    with pytest.raises(UsageError, match=sentence):
        read_recipe(path)
