"""A sweep on the probe pair: what is measured, kept, and taken up again."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest

from specverify.core.errors import UsageError
from specverify.laws.economics import measured_acceptance
from specverify.sweep import run as sweep_run
from specverify.sweep.measure import Stopwatch, measure, requests_of
from specverify.sweep.passes import pass_costs, weight_bytes
from specverify.sweep.plan import AXES, Cell, cells
from specverify.sweep.run import about, best_growth, run
from specverify.sweep.store import Store, read_sweep
from tests.sweep.made import quick_probe

TWO = ["temperature", "output-length"]


def sweep(folder, only=TWO, family=None, progress=lambda label, done, total: None):
    family = family or quick_probe()
    store = Store(folder)
    store.open(about(family, is_quick=True))
    known = run(store, family, is_quick=True, only=only, progress=progress)
    return store, known


def test_every_axis_has_distinct_cells():
    """Names tell cells apart, and every axis has some on the probe pair."""
    planned = cells(quick_probe(), is_quick=False)

    assert len(planned) == len({cell.name for cell in planned})
    assert set(AXES) == {cell.axis for cell in planned}


def test_unknown_axis_is_refused():
    """The message lists the axes there are."""
    with pytest.raises(UsageError, match="choose from draft-length"):
        cells(quick_probe(), is_quick=True, only=["tempo"])


def test_acceptance_is_the_engines_own():
    """A row counts what the engine's steps say."""
    family, cell = quick_probe(), Cell("temperature", "0.7", output_length=8, prompt_length=8)
    requests = requests_of(cell, family, 4)
    traces = family.subject("draft-model", num_draft_tokens=4).generate(requests, speculate=True)
    steps = [step for trace in traces for step in trace.steps]

    row = measure(cell, family, family.quick)

    wanted = measured_acceptance([s.num_accepted for s in steps], [s.num_draft_tokens for s in steps])
    assert wanted.value == row.acceptance
    assert len(steps) == row.num_rounds


def test_tree_has_the_draft_tokens_it_was_given():
    """The best tree for measured shares spends exactly the nodes of the chain that it is compared with."""
    growth = best_growth(6, [0.5, 0.2, 0.21])
    subject = quick_probe().subject("tree", num_draft_tokens=6, growth=growth)
    (trace,) = subject.generate(requests_of(Cell("tree", "", output_length=40), quick_probe(), 1), speculate=True)

    assert max(step.num_draft_tokens for step in trace.steps) == 6
    assert any(step.parents.count(-1) > 1 for step in trace.steps)


def test_parts_are_timed_inside_the_round():
    """Drafting and verifying lie within their round, and every round has one target pass."""
    ticks = iter(range(10**6))
    subject = quick_probe().subject("draft-model", num_draft_tokens=2)
    watch = Stopwatch(lambda: float(next(ticks)))
    watch.attach(subject)

    subject.generate(requests_of(Cell("", "", output_length=8), quick_probe(), 1), speculate=True)

    assert watch.counts["round"] == watch.counts["verify"]
    assert watch.seconds["draft"] + watch.seconds["verify"] < watch.seconds["round"]


def test_pass_costs_cover_sixteen_tokens():
    """Every pass is timed, one token is the unit, and the floor is the weights at the measured bandwidth."""
    target = quick_probe().target
    ticks = iter(range(10**9))
    costs = pass_costs(target, context=8, seconds=0.0, clock=lambda: next(ticks) * 1e-3)

    assert list(range(1, 17)) == [one.num_tokens for one in costs.passes]
    assert costs.passes[0].relative == 1.0
    assert weight_bytes(target) / costs.floor_seconds == max(costs.copy_bandwidth, costs.read_bandwidth)


def test_rows_are_on_disk(tmp_path):
    """CSV and JSON hold the same rows, in the order of the axes whatever was measured first."""
    sweep(tmp_path, ["output-length"])
    store, _ = sweep(tmp_path, ["temperature"])

    again = read_sweep(store.json_file)
    with store.csv_file.open(newline="") as file:
        listed = list(csv.DictReader(file))
    assert list(store.sweep.rows) == list(again.rows)
    assert [row.value for row in again.rows] == [line["value"] for line in listed]
    assert [line["axis"] for line in listed] == ["temperature"] * 3 + ["output-length"] * 2


def test_interrupted_sweep_goes_on(tmp_path):
    """What was measured before an interruption is not measured again."""

    def interrupt(label, done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path, progress=interrupt)
    kept = read_sweep(tmp_path / "sweep.json").rows
    measured = []

    store, known = sweep(tmp_path, progress=lambda label, done, total: measured.append(label))

    assert (len(kept), known) == (2, 2)
    assert list(kept) == list(store.sweep.rows[:2])
    assert len(measured) == 3 + 1


def test_finished_sweep_is_measured_again(tmp_path):
    """Asking twice means wanting new figures."""
    sweep(tmp_path)
    _, known = sweep(tmp_path)

    assert known == 0


def test_other_sweep_is_not_overwritten(tmp_path):
    """A folder with rows of another machine, version or family is refused, with what differs."""
    sweep(tmp_path, ["output-length"])
    store = Store(tmp_path)

    with pytest.raises(UsageError, match=r"another sweep \(family probe"):
        store.open({**about(quick_probe(), is_quick=True), "family": "mine"})


def test_foreign_file_is_refused(tmp_path):
    """sweep.json of somebody else is left alone."""
    (tmp_path / "sweep.json").write_text("{}")

    with pytest.raises(UsageError, match="no sweep of version"):
        Store(tmp_path).open({})


def test_only_pass_costs(tmp_path):
    """The memory-wall table can be had by itself."""
    store, _ = sweep(tmp_path, [sweep_run.PASSES], replace(quick_probe(), prompt_length=8))

    assert store.sweep.passes is not None
    assert tuple(store.sweep.rows) == ()
