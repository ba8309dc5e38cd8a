"""Live calls under the SPECVERIFY switch."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from specverify import verified
from specverify.adapters.function_traffic import read_recorded_calls
from specverify.adapters.recorded import recorded_subjects
from specverify.catalogue import check_by_id
from specverify.core.errors import CheckFailed, UsageError
from specverify.core.outcomes import Outcome
from specverify.runner import run_checks

DRAFT = np.array([[0.5, 0.3, 0.2], [0.2, 0.4, 0.4]])
TARGET = np.array([[0.0, 0.7, 0.3], [0.3, 0.3, 0.4], [0.2, 0.2, 0.6]])


def scripted(answer):
    """A verify function whose answer is given beforehand."""

    def verify(draft_token_ids, draft_probs, target_probs):
        return answer

    return verify


@pytest.fixture
def invariants(monkeypatch):
    monkeypatch.setenv("SPECVERIFY", "invariants")


@pytest.mark.usefixtures("invariants")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (([1, 2, 2, 0], 2), "4 tokens came back"),
        (([1, 0, 2], 2), "is not the draft's"),
        (([1, 2], 2), None),
        (([1, 0], 2), "do not begin with the first 2"),
        (([0], 0), "target probability 0"),
        (([7], 0), "not in the vocabulary"),
        (([1, 2, 0], 3), "reports 3 accepted of 2"),
        (([1, 2, 0], 2), None),
        (([2], 0), None),
    ],
)
def test_every_live_call_is_judged(answer, words):
    """A broken call raises CheckFailed with the rule; a good one returns its answer untouched."""
    verify = verified(scripted(answer))

    if words is None:
        assert answer is verify([1, 2], DRAFT, TARGET)
    else:
        with pytest.raises(CheckFailed, match=words):
            verify([1, 2], DRAFT, TARGET)


@pytest.mark.usefixtures("invariants")
def test_changed_inputs_are_noticed():
    """Arrays that a call changed in place are named."""

    @verified
    def verify(draft_token_ids, draft_probs, target_probs):
        target_probs[0] *= 0.5
        return [1, 0], 1

    with pytest.raises(CheckFailed, match="changed its argument target_probs"):
        verify([1, 2], DRAFT, TARGET.copy())


@pytest.mark.usefixtures("invariants")
def test_batched_logits_are_read():
    """Rows of a batch are judged one by one, logits turned into laws at the call's own temperature."""

    @verified
    def verify(draft_tokens, draft_logits, target_logits, temperature=1.0):
        return torch.tensor([[1, 2, 0], [0, -1, -1]])

    logits = torch.from_numpy(np.stack([TARGET, TARGET])).log()
    drafts = torch.tensor([[1, 2], [1, 2]])

    with pytest.raises(CheckFailed, match="Token 0 at position 0 has target probability 0"):
        verify(drafts, torch.zeros(2, 2, 3), logits, temperature=0.5)


@pytest.mark.usefixtures("invariants")
@pytest.mark.parametrize(
    ("draft_token_ids", "target", "words"),
    [
        ([1, 2], TARGET * 3.0, "sums to 3"),
        ([1, 2], np.full((3, 3), np.nan), "is not a number"),
        (3, TARGET, "not a sequence of token ids"),
    ],
)
def test_unreadable_arguments_are_a_usage_error(draft_token_ids, target, words):
    """Logits passed as probabilities, NaN and the like are said in one sentence."""
    with pytest.raises(UsageError, match=words):
        verified(scripted(([1], 0)))(draft_token_ids, DRAFT, target)


def test_switch_must_be_known(monkeypatch):
    """A slip in the environment variable is not silently nothing."""
    monkeypatch.setenv("SPECVERIFY", "invariant")

    with pytest.raises(UsageError, match="neither invariants nor record:FILE"):
        verified(scripted(([1], 0)))


def test_calls_are_recorded_and_judged_later(monkeypatch, tmp_path):
    """record:FILE writes JSON lines; the file is a subject of the same per-call checks."""
    path = tmp_path / "calls.jsonl"
    monkeypatch.setenv("SPECVERIFY", f"record:{path}")
    verify = verified(scripted(([1, 2, 0], 2)))
    bad = verified(scripted(([0], 0)))

    verify([1, 2], DRAFT, TARGET)
    verify([1, 2], DRAFT, TARGET)
    good_calls = read_recorded_calls(path)
    bad([1, 2], DRAFT, TARGET)
    all_calls = read_recorded_calls(path)

    assert len(path.read_text().splitlines()) == 4
    form = [check_by_id("tokens.step-form")]
    assert [subject.capabilities for subject in recorded_subjects(path)] == [all_calls.capabilities]
    assert [result.outcome for result in run_checks(good_calls, checks=form).results] == [Outcome.PASSED]
    assert [result.outcome for result in run_checks(all_calls, checks=form).results] == [Outcome.FAILED]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cut short"),
        ('{"format": "other"}\n', "not a file of verify calls"),
        ('{"format": "specverify-verify-calls", "version": 9}\n', "not a file of verify calls"),
        ('{"format": "specverify-verify-calls", "version": 1}\n{"draft_tok', "line 2 is cut short"),
        ('{"format": "specverify-verify-calls", "version": 1}\n{"token_ids": []}\n', "line 2 is not a verify call"),
        ('{"format": "specverify-verify-calls", "version": 1}\n[1]\n', "line 2 is no JSON object"),
    ],
)
def test_damaged_files_are_refused(tmp_path, text, words):
    """The line is named."""
    path = tmp_path / "calls.jsonl"
    path.write_text(text)

    with pytest.raises(UsageError, match=words):
        read_recorded_calls(path)


def test_file_that_cannot_be_written(monkeypatch, tmp_path):
    """A wrong path is said at decoration, not at the first call."""
    monkeypatch.setenv("SPECVERIFY", f"record:{tmp_path}/missing/calls.jsonl")

    with pytest.raises(UsageError, match="cannot write there"):
        verified(scripted(([1], 0)))


def test_record_keeps_the_call(monkeypatch, tmp_path):
    """What is written is what was given and emitted."""
    path = tmp_path / "calls.jsonl"
    monkeypatch.setenv("SPECVERIFY", f"record:{path}")

    verified(scripted(([1, 2, 0], 2)))([1, 2], DRAFT, TARGET)

    record = json.loads(path.read_text().splitlines()[1])
    assert record["draft_token_ids"] == [1, 2]
    assert TARGET.tolist() == record["target_probs"]
    assert record["token_ids"] == [1, 2, 0]
