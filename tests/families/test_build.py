"""What the tiny target is taught, and that what ships is what the script makes."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch

from specverify.families.build import PLANS, emphasis, target_notes
from specverify.families.family import tiny_family
from specverify.families.workloads import SPECIAL_TOKENS
from specverify.reference.checkpoints import load_model
from specverify.reference.head_files import target_digest

END, EDIT, OUTLINE, RESULT = range(len(SPECIAL_TOKENS))
CODE = 9


def test_answers_count_most_and_requests_nothing() -> None:
    """A target that is taught to write requests edits and outlines whatever it should go on with."""
    asked = [CODE, CODE, EDIT, 8, 7, RESULT, 5, 5, END]
    outlined = [CODE, OUTLINE, 5, END, CODE]

    found = emphasis(torch.tensor([asked + outlined, [CODE, END, *[CODE] * 12]]))

    assert found[0].tolist() == [1, 1, 0, 0, 0, 0, 3, 3, 3, 1, 0, 3, 3, 1]
    assert found[1].tolist() == [1] * 14


def test_target_was_made_by_this_script() -> None:
    """With the settings that the script has today; the version of torch may be another."""
    written = json.loads((tiny_family().target / "training.json").read_text(encoding="utf-8"))["notes"]
    notes = json.loads(json.dumps(target_notes()))["notes"]

    assert {**notes, "torch": written["torch"]} == written


@pytest.mark.parametrize("kind", PLANS)
def test_what_drafts_was_made_by_this_script(kind: str) -> None:
    """For the target that ships, with the plan and the settings that the script has today."""
    family, (plan, settings) = tiny_family(), PLANS[kind]
    file = {"draft": family.draft / "training.json"}.get(kind, getattr(family, kind) / "head.json")
    written = json.loads(file.read_text(encoding="utf-8"))

    assert (asdict(plan), asdict(settings)) == (written["notes"]["plan"], written["notes"]["settings"])
    digest = written["target_sha256"] if kind == "draft" else written["target"]["sha256"]
    assert target_digest(load_model(family.target, device="cpu")) == digest
