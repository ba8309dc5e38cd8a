"""The tasks are what they say, and come from text that nothing was trained on."""

from __future__ import annotations

import random

import pytest

from specverify.families import workloads
from specverify.families.workloads import EDIT, EDITING, END, OUTLINE, RESULT, SUMMARY, WRITING, tasks
from specverify.reference.training.corpus import standard_library

FILES = {
    "a.py": "class Store:\n    def __init__(self, path, mode):\n        self.path = path\n        self.mode = mode\n\n"
    "    def load(self, path):\n        with open(path, self.mode) as file:\n            return file.read(path)\n"
}


@pytest.mark.parametrize("workload", workloads.WORKLOADS)
def test_tasks_are_the_same_every_time(workload: str) -> None:
    assert tasks(workload, 5) == tasks(workload, 8)[:5]


def test_writing_goes_on_in_a_held_out_file() -> None:
    """The prompt and its answer stand in one held-out file, one behind the other, but for the indentation."""
    texts = ["".join(text.split()) for text in standard_library().held_out.values()]

    for task in tasks(WRITING, 8):
        assert any("".join((task.prompt + task.answer).split()) in text for text in texts)


def test_edit_changes_one_name_everywhere() -> None:
    for task in tasks(EDITING, 8):
        source, request = task.prompt.split(EDIT)
        old, new = request.removesuffix(RESULT).split(" -> ")
        edited = task.answer.removesuffix(END)
        assert old != new
        assert source.count("\n") == edited.count("\n")
        assert new in edited
        assert new not in source.split()


def test_summary_is_the_lines_that_define_something() -> None:
    task = next(workloads.summary(FILES, random.Random(0)))

    assert task.prompt.endswith(OUTLINE)
    assert task.answer == "class Store:\n    def __init__(self, path, mode):\n    def load(self, path):\n" + END


def test_too_many_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="held-out files give"):
        tasks(SUMMARY, 100_000)
