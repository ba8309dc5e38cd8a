"""What a sweep measures: cells, each a setting of the engine, ordered in axes along which one thing varies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from specverify.core.errors import UsageError
from specverify.sweep.families import WORKLOADS, WRITE, Family


@dataclass(frozen=True)
class Axis:
    """One thing that is varied. reported: what published reports say of it, to compare with."""

    title: str
    reported: str = ""


# In the order in which they are measured.
AXES = {
    "draft-length": Axis("Draft tokens per round", "Reported of a 7-billion model: one best k, 6, with 2.5x."),
    "proposer": Axis("Who drafts"),
    "draft-size": Axis("Size of the draft model", "Reported: a sweet spot at a tenth to a twentieth of the target."),
    "temperature": Axis("Sampling temperature", "Reported: from 0.7 to 1.0 acceptance loses about 15 points."),
    "workload": Axis("What is written, and who drafts",
                     "Expected: copying from the prompt is poor at open-ended writing, excellent at summaries, edits."),
    "prompt-length": Axis("Tokens of the prompt", "Reported: longer prompts take up to 5 points off the acceptance."),
    "output-length": Axis("Tokens of the answer", "Reported: short answers gain less, and very long ones less again."),
    "batch-size": Axis("Requests decoded together", "Expected: a batch spends the arithmetic that speculation needs."),
    "quantisation": Axis("Which model has int8 weights", "Reported: quantising one of the two costs 10 points."),
    "tree": Axis("Chain against tree at equally many draft tokens", "Expected: more tokens per pass from a tree."),
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One setting. value: its place on the axis, as shown. draft: name of the draft model, "" for the usual one.

    num_nodes: for the tree axis, draft tokens of the tree; num_draft_tokens is then the depth it may have.
    int8: which models are quantised: "", "target", "draft" or "both".
    """

    axis: str
    value: str
    proposer: str = "draft-model"
    num_draft_tokens: int = 4
    workload: str = WRITE
    temperature: float = 0.7
    prompt_length: int = 48
    output_length: int = 64
    batch_size: int = 1
    draft: str = ""
    int8: str = ""
    num_nodes: int = 0

    @property
    def setting(self) -> tuple[object, ...]:
        """Everything but its place on an axis: cells that agree in this are one measurement."""
        return tuple(getattr(self, one.name) for one in fields(Cell) if one.name not in ("axis", "value"))

    @property
    def name(self) -> str:
        """Distinct within a sweep."""
        return f"{self.axis} {self.proposer} {self.workload} {self.value}"


def cells(family: Family, *, is_quick: bool, only: Sequence[str] = ()) -> list[Cell]:
    """The cells of the axes in `only`, of all axes where it is empty, that this family can be measured on.

    Raises UsageError for an axis that is none.
    """
    unknown = [axis for axis in only if axis not in AXES]
    if unknown:
        raise UsageError(f"axis {unknown[0]!r} is unknown; choose from {', '.join(AXES)}")
    return [cell for axis in AXES if not only or axis in only for cell in _AXIS_CELLS[axis](family, is_quick)]


def _base(family: Family, axis: str) -> Cell:
    return Cell(axis, "", output_length=family.output_length, prompt_length=family.prompt_length)


def _draft_length(family: Family, is_quick: bool) -> Iterator[Cell]:
    for proposer, workload in family.main:
        for k in (2, 4, 6, 8, 10) if is_quick else range(1, 11):
            cell = _base(family, "draft-length")
            yield replace(cell, value=str(k), num_draft_tokens=k, proposer=proposer, workload=workload)


def _proposer(family: Family, is_quick: bool) -> Iterator[Cell]:
    for proposer in family.proposers:
        for temperature in (0.0,) if is_quick else (0.0, 0.7):
            cell = _base(family, "proposer")
            yield replace(cell, value=f"{proposer}, T {temperature:g}", proposer=proposer, temperature=temperature)


def _draft_size(family: Family, is_quick: bool) -> Iterator[Cell]:
    names = list(family.drafts)
    for name in names[:: 2 if is_quick else 1]:
        yield replace(_base(family, "draft-size"), value=name, draft=name)


def _temperature(family: Family, is_quick: bool) -> Iterator[Cell]:
    for temperature in (0.0, 0.7, 1.0) if is_quick else (0.0, 0.3, 0.7, 1.0, 1.3, 1.6):
        yield replace(_base(family, "temperature"), value=f"{temperature:g}", temperature=temperature)


def _workload(family: Family, is_quick: bool) -> Iterator[Cell]:
    for proposer in ("draft-model", "n-gram"):
        for workload in WORKLOADS:
            cell = _base(family, "workload")
            yield replace(cell, value=f"{workload}, {proposer}", workload=workload, proposer=proposer)


def _prompt_length(family: Family, is_quick: bool) -> Iterator[Cell]:
    base = _base(family, "prompt-length")
    for length in family.prompt_lengths[:: 2 if is_quick else 1]:
        yield replace(base, value=str(length), prompt_length=length)


def _output_length(family: Family, is_quick: bool) -> Iterator[Cell]:
    base = _base(family, "output-length")
    for length in family.output_lengths[: 2 if is_quick else None]:
        yield replace(base, value=str(length), output_length=length)


def _batch_size(family: Family, is_quick: bool) -> Iterator[Cell]:
    for size in (1, 4) if is_quick else (1, 2, 4, 8, 16, 32):
        yield replace(_base(family, "batch-size"), value=str(size), batch_size=size)


def _quantisation(family: Family, is_quick: bool) -> Iterator[Cell]:
    for which in ("", "target", "draft", "both"):
        yield replace(_base(family, "quantisation"), value=which or "none", int8=which)


def _tree(family: Family, is_quick: bool) -> Iterator[Cell]:
    for nodes in (4, 8) if is_quick else (4, 8, 12, 16):
        cell = replace(_base(family, "tree"), num_draft_tokens=nodes)
        yield replace(cell, value=f"chain of {nodes}")
        yield replace(cell, value=f"tree of {nodes}", proposer="tree", num_nodes=nodes)


_AXIS_CELLS = {
    "draft-length": _draft_length,
    "proposer": _proposer,
    "draft-size": _draft_size,
    "temperature": _temperature,
    "workload": _workload,
    "prompt-length": _prompt_length,
    "output-length": _output_length,
    "batch-size": _batch_size,
    "quantisation": _quantisation,
    "tree": _tree,
}
