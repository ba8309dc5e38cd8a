"""Stepping through rounds, simulated and recorded, with real keys and real files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specverify.adapters.reference import reference_engine
from specverify.core.types import Request, SamplingParams, Step, Trace
from specverify.laws.economics import expected_tokens, measured_acceptance
from specverify.playground.page import write_page
from specverify.playground.traces import page_trace
from specverify.trace import read_traces, write_traces
from tests.playground.test_figures import python_uniforms, set_sliders, text_of

GOLDEN = Path(__file__).parent.parent.parent / "golden"
TREE = Step(
    index=0, start_position=3, draft_token_ids=(7, 8, 9, 5, 6), token_ids=(8, 6, 2), num_accepted=2,
    parents=(-1, -1, 0, 1, 1), accepted_nodes=(1, 4), target_probs=np.arange(60.0).reshape(6, 10),
)  # fmt: skip


def shown(browser) -> list[list[str]]:
    """[label, kind] of every token of the round, hidden ones left out."""
    return browser.evaluate(
        "Array.from(document.querySelectorAll('#round .token:not(.hidden)'),"
        "(it) => [it.querySelector('.label').textContent, it.dataset.kind])"
    )


def expected(step: Step) -> list[list[str]]:
    """What a chain's round must look like."""
    accepted, k = step.num_accepted, len(step.draft_token_ids)
    kinds = ["accepted" if i < len(step.token_ids) else "cut" for i in range(accepted)]
    kinds += ["rejected"] * (accepted < k) + ["discarded"] * (k - accepted - 1)
    tokens = [[str(token), kind] for token, kind in zip(step.draft_token_ids, kinds, strict=True)]
    if len(step.token_ids) > accepted:
        tokens.append([str(step.token_ids[accepted]), "plain" if k == 0 else "residual" if accepted < k else "bonus"])
    return tokens


def open_file(browser, path: Path) -> None:
    browser.choose_file("#file", path)
    browser.wait_for("!page.by('trace-box').hidden || !page.by('problem').hidden")


def test_simulated_rounds(browser):
    """Every simulated round shows what its dice say, accepted, first rejected, discarded, residual or bonus."""
    set_sliders(browser, alpha=0.6, k=3)
    dice = python_uniforms(1, 24 * 16).reshape(24, 16)[:, :3]
    browser.evaluate("document.getElementById('stepper').focus()")
    seen = set()

    for row in dice:
        accepted = int(np.cumprod(row < 0.6).sum())
        kinds = ["accepted"] * accepted + ["rejected"] * (accepted < 3) + ["discarded"] * (2 - accepted)
        kinds.append("bonus" if accepted == 3 else "residual")
        assert [kind for _, kind in shown(browser)] == kinds
        seen.update(kinds)
        browser.press("ArrowRight")

    assert seen == {"accepted", "rejected", "discarded", "residual", "bonus"}
    assert text_of(browser, "place-text") == "Round 24 of 24"


def test_keys(browser):
    """Right and left go by rounds, End and Home to the ends; the box has a visible focus ring."""
    browser.evaluate("document.getElementById('origins').querySelector('input').focus()")
    browser.press("Tab")
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.id") == "stepper"
    assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"

    places = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "Home", "ArrowLeft"):
        browser.press(key)
        places.append(text_of(browser, "place-text").split()[1])

    assert places == ["2", "3", "2", "24", "24", "1", "1"]


def test_space_checks_one_token_at_a_time(browser):
    """The space bar starts the next round with everything undecided, then gives one verdict after another."""
    dice = python_uniforms(1, 16 * 24).reshape(24, 16)[1, :4]
    assert int(np.cumprod(dice < 0.75).sum()) == 3  # the second round: three accepted, one rejected
    browser.evaluate("document.getElementById('stepper').focus()")
    scrolled = browser.evaluate("window.scrollY")

    states = []
    for _ in range(6):
        browser.press(" ")
        states.append([kind for _, kind in shown(browser)])

    assert states == [
        ["drafted"] * 4,
        ["accepted", "drafted", "drafted", "drafted"],
        ["accepted", "accepted", "drafted", "drafted"],
        ["accepted", "accepted", "accepted", "drafted"],
        ["accepted", "accepted", "accepted", "rejected"],
        ["accepted", "accepted", "accepted", "rejected", "residual"],
    ]
    assert browser.evaluate("window.scrollY") == scrolled


def test_sliders_answer_the_keyboard(browser):
    """A focused slider moves by arrow keys, and the page follows."""
    browser.evaluate("document.getElementById('k').focus()")

    browser.press("ArrowRight")

    assert text_of(browser, "k-out") == "5"
    assert text_of(browser, "place-text") == "Round 1 of 24"


@pytest.mark.parametrize("proposer", ["draft-model", "n-gram", "sometimes-empty", "self"])
def test_real_run(browser, tmp_path, proposer):
    """A run of the reference engine, opened by the file picker: every token of every round is the right one."""
    prompt = (5, 9, 12, 7, 5, 9, 12, 7, 5, 9)
    requests = [
        Request(prompt, 12, SamplingParams(temperature=0.7), seed=3, request_id="first"),
        Request(prompt[:5], 14, SamplingParams(), seed=4, request_id="second"),
    ]
    traces = reference_engine(proposer=proposer).generate(requests, speculate=True)
    write_traces(tmp_path / "run.jsonl", traces)

    open_file(browser, tmp_path / "run.jsonl")

    assert text_of(browser, "problem") == ""
    for number, trace in enumerate(traces):
        browser.evaluate(f"page.by('request').value = {number}; page.by('request').dispatchEvent(new Event('change'))")
        browser.evaluate("document.getElementById('stepper').focus()")
        rounds = []
        for _ in trace.steps:
            rounds.append(shown(browser))
            browser.press("ArrowRight")
        assert rounds == [expected(step) for step in trace.steps]
        tokens = sum(len(step.token_ids) for step in trace.steps)
        assert f"{len(trace.steps)} rounds, {tokens} tokens" in text_of(browser, "trace-title")
        drafted = [step.num_draft_tokens for step in trace.steps]
        if sum(drafted):
            measured = measured_acceptance([step.num_accepted for step in trace.steps], drafted).value
            theory = np.mean([expected_tokens(measured, k) for k in drafted])
            assert f"acceptance {measured:.2f}" in text_of(browser, "trace-title")
            assert f"theory at that acceptance: {theory:.2f} a pass" in text_of(browser, "trace-title")


def test_dropped_file(browser):
    """A trace file may also be dropped anywhere on the page."""
    browser.evaluate(
        "(() => { const dropped = new DataTransfer();"
        f"dropped.items.add(new File([{json.dumps(''.join(lines_of_golden()))}], 'dropped.jsonl'));"
        "document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: dropped, bubbles: true})); })()"
    )
    browser.wait_for("!page.by('trace-box').hidden")

    assert shown(browser) == expected(read_traces(GOLDEN / "sampled.trace.jsonl").traces[0].steps[0])


def test_trace_feeds_the_model(browser):
    """The measured acceptance and k of a run move the sliders."""
    open_file(browser, GOLDEN / "sampled.trace.jsonl")
    browser.evaluate("page.by('use-trace').click()")

    steps = read_traces(GOLDEN / "sampled.trace.jsonl").traces[0].steps
    judged = sum(step.num_accepted + step.is_rejection for step in steps)
    assert text_of(browser, "alpha-out") == f"{sum(step.num_accepted for step in steps) / judged:.2f}"
    assert text_of(browser, "k-out") == "3"
    assert browser.evaluate("stepper.origin") == "trace"


def test_embedded_trace(running_browser, tmp_path):
    """`specverify play FILE` opens with the run, also where its meta tries to end the script."""
    file = read_traces(GOLDEN / "sampled.trace.jsonl")
    write_traces(tmp_path / "run.jsonl", file.traces, meta={"subject": "</script><b>engine</b>"})
    write_page(tmp_path / "page.html", trace_file=tmp_path / "run.jsonl")

    running_browser.open(tmp_path / "page.html")

    assert running_browser.errors == []
    assert shown(running_browser) == expected(file.traces[0].steps[0])
    assert "run.jsonl: </script><b>engine</b>; temperature 0.7" in text_of(running_browser, "trace-title")


def test_tree_of_a_real_run(browser, tmp_path):
    """A tree drafted by the reference engine: the accepted nodes, and a residual token exactly where it ended early."""
    request = Request((5, 9, 12, 7), 16, SamplingParams(), seed=5)
    trace = reference_engine(proposer="tree").generate([request], speculate=True)[0]
    write_traces(tmp_path / "tree.jsonl", [trace])

    open_file(browser, tmp_path / "tree.jsonl")

    browser.evaluate("document.getElementById('stepper').focus()")
    for step in trace.steps:
        tokens = shown(browser)
        accepted = [i for i, (_, kind) in enumerate(tokens) if kind in ("accepted", "cut")]
        assert accepted == sorted(step.accepted_nodes)
        assert len(step.token_ids) == step.num_accepted or tokens[-1][1] == (
            "residual" if step.is_rejection else "bonus"
        )
        browser.press("ArrowRight")


def test_tree(browser, tmp_path):
    """In a tree, earlier siblings of an accepted token are rejected, and everything beside the path is discarded."""
    trace = Trace(Request((1, 2), 4), (1, 8, 6, 2), (TREE,))
    write_traces(tmp_path / "tree.jsonl", [trace])

    open_file(browser, tmp_path / "tree.jsonl")

    assert shown(browser) == [
        ["7", "rejected"], ["8", "accepted"], ["9", "discarded"], ["5", "rejected"], ["6", "accepted"], ["2", "bonus"],
    ]  # fmt: skip


def in_python(path: Path) -> object:
    """What is embedded for this file, as JSON would carry it."""
    return json.loads(json.dumps(page_trace(read_traces(path, salvage=True), name=path.name)))


def in_the_page(browser, path: Path) -> object:
    # The boxes may be visible from the file before.
    browser.evaluate("page.file = null")
    browser.choose_file("#file", path)
    browser.wait_for("page.file !== null")
    return browser.evaluate("page.file")


def large_vocabulary(dtype: str) -> Step:
    """Laws that the format stores as bytes."""
    laws = np.random.default_rng(0).dirichlet(np.full(5_000, 0.01), size=4).astype(dtype)
    return Step(0, 3, (7, 4_999, 0), (7, 12), 1, draft_probs=laws[:3], target_probs=laws, uniforms=(0.1, 0.9))


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: GOLDEN / "greedy.trace.jsonl",
        lambda folder: GOLDEN / "lookup.trace.jsonl",
        lambda folder: GOLDEN / "sampled.trace.jsonl",
        lambda folder: written(folder, TREE),
        lambda folder: written(folder, large_vocabulary("float64")),
        lambda folder: written(folder, large_vocabulary("float32")),
        lambda folder: written(folder, replace(TREE, target_probs=np.full((6, 10), np.nan))),
    ],
    ids=["greedy", "lookup", "sampled", "tree", "bytes-64", "bytes-32", "not-numbers"],
)
def test_both_readers_agree(browser, tmp_path, make):
    """The page reads a file into exactly what `specverify play FILE` would have embedded."""
    path = make(tmp_path)

    assert in_the_page(browser, path) == in_python(path)


def written(folder: Path, step: Step) -> Path:
    write_traces(folder / "made.jsonl", [Trace(Request((1, 2), 9), (1, *step.token_ids), (step,))])
    return folder / "made.jsonl"


def lines_of_golden() -> list[str]:
    return (GOLDEN / "sampled.trace.jsonl").read_text().splitlines(keepends=True)


DAMAGED = {
    "empty": (lambda lines: [], "is empty"),
    "text": (lambda lines: ["hello\n"], "is not a trace file: line 1 is not JSON"),
    "other-json": (lambda lines: ['{"type":"x"}\n'], "its first line is no specverify-trace header"),
    "version": (lambda lines: [re.sub(r'"version":\d+', '"version":99', lines[0])], "has format version 99"),
    "broken-line": (lambda lines: [*lines[:3], "{broken\n", *lines[4:]], "line 4 is not JSON"),
    "missing-step": (lambda lines: [*lines[:3], *lines[4:]], "counts 6 steps, but 5 are there"),
    "missing-request": (lambda lines: [lines[0], *lines[2:]], 'line 2 is a "step" line out of place'),
    "changed": (lambda lines: [line.replace("[19,25,24]", "[19,25,23]") for line in lines], "its digest does not fit"),
    "twice": (lambda lines: [*lines, *lines], "goes on after its end marker"),
    "no-tokens": (lambda lines: [line.replace('"token_ids":', '"tokens":') for line in lines], "it lacks token_ids"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_file(browser, tmp_path, name):
    """A file that is no trace, or a damaged one, is refused with what is wrong, where; the page goes on."""
    damage, message = DAMAGED[name]
    (tmp_path / "bad.jsonl").write_text("".join(damage(lines_of_golden())))

    open_file(browser, tmp_path / "bad.jsonl")

    assert message in text_of(browser, "problem")
    assert text_of(browser, "problem").startswith("bad.jsonl ")
    assert text_of(browser, "place-text") == "Round 1 of 24"


@pytest.mark.parametrize(
    "cut", [lambda text: text[: len(text) // 2], lambda text: text[: text.rindex('{"type":"end"')]]
)
def test_file_that_was_cut_short(browser, tmp_path, cut):
    """What a dead run left behind is shown, and said to be a part."""
    (tmp_path / "cut.jsonl").write_text(cut("".join(lines_of_golden())))

    open_file(browser, tmp_path / "cut.jsonl")
    browser.wait_for("!page.by('trace-box').hidden")

    assert "was cut short" in text_of(browser, "problem")
    assert in_the_page(browser, tmp_path / "cut.jsonl") == in_python(tmp_path / "cut.jsonl")


def test_run_without_speculation(browser, tmp_path):
    """There is nothing to step through, and the page says why."""
    write_traces(tmp_path / "plain.jsonl", [Trace(Request((1,), 2), (3, 4), speculated=False)])

    open_file(browser, tmp_path / "plain.jsonl")

    assert "run without speculation" in text_of(browser, "problem")
