"""What models are asked to write in measurements: go on, summarise a text, edit a text. All made of Python sources.

A small model cannot summarise prose. Its summary of a program is the outline, the lines that define something; its edit
is a name changed everywhere. Both take most of their words from the prompt, as real summaries and edits do.
"""

from __future__ import annotations

import ast
import random
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from specverify.core.randomness import Streams
from specverify.reference.training.corpus import standard_library

END, EDIT, OUTLINE, RESULT = "<|end|>", "<|edit|>", "<|outline|>", "<|result|>"
SPECIAL_TOKENS = (END, EDIT, OUTLINE, RESULT)
WRITING, SUMMARY, EDITING = "open-ended writing", "summarise this document", "edit this code"
WORKLOADS = (WRITING, SUMMARY, EDITING)
# Characters of the text that is summarised or edited: 3 to 7 lines, about 40 to 100 tokens of a small vocabulary.
_SHORTEST, _LONGEST = 100, 260
_IDENTIFIER = re.compile(r"[A-Za-z_]\w{2,}")


@dataclass(frozen=True)
class Task:
    """A prompt and what a perfect model would answer; open-ended writing has the text that really follows."""

    prompt: str
    answer: str


def tasks(workload: str, num_tasks: int) -> list[Task]:
    """The first tasks of a workload, from files of the standard library that nothing was trained on.

    The same ones every time on one version of Python.
    """
    made = _MAKERS[workload](standard_library().held_out, random.Random(Streams(0).integer("workload", workload)))
    found = [task for task, _ in zip(made, range(num_tasks), strict=False)]
    if len(found) < num_tasks:
        raise ValueError(f"the held-out files give {len(found)} tasks of {workload!r}, not {num_tasks}")
    return found


def functions(text: str) -> Iterator[str]:
    """Functions and methods of a source file, flush left, of a length that suits an edit."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    lines = text.splitlines(keepends=True)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            source = textwrap.dedent("".join(lines[node.lineno - 1 : node.end_lineno])).rstrip() + "\n"
            if _SHORTEST <= len(source) <= _LONGEST:
                yield source


def editing(files: Mapping[str, str], draws: random.Random) -> Iterator[Task]:
    """Functions with one of their names changed everywhere; the new name is one of another function."""
    new_names = ["value"]
    for source in _shuffled(files, functions, draws):
        names = sorted({name for name in _IDENTIFIER.findall(source) if 2 <= _count(name, source) <= 5})
        new = draws.choice(new_names)
        if names and not _count(new, source):
            old = draws.choice(names)
            edited = re.sub(rf"\b{old}\b", new, source)
            yield Task(f"{source}{EDIT}{old} -> {new}{RESULT}", f"{edited}{END}")
        new_names = names or new_names


def summary(files: Mapping[str, str], draws: random.Random) -> Iterator[Task]:
    """Pieces of files, and of them the lines that define a class or a function."""
    for piece in _shuffled(files, _pieces, draws):
        outline = [line for line in piece.splitlines(keepends=True) if _defines(line)]
        if len(outline) >= 2:
            yield Task(f"{piece}{OUTLINE}", "".join(outline) + END)


def writing(files: Mapping[str, str], draws: random.Random) -> Iterator[Task]:
    """Pieces of files, to be continued."""
    for piece in _shuffled(files, _pieces, draws):
        cut = piece.index("\n", len(piece) // 2) + 1
        yield Task(piece[:cut], piece[cut:])


_MAKERS = {WRITING: writing, SUMMARY: summary, EDITING: editing}


def _pieces(text: str) -> Iterator[str]:
    """Consecutive lines, each piece starting at a definition."""
    piece = ""
    for line in [*text.splitlines(keepends=True), ""]:
        is_end = not line or len(piece) + len(line) > _LONGEST or (_defines(line) and len(piece) > _LONGEST // 2)
        if is_end:
            if len(piece) >= _SHORTEST and _defines(piece):
                yield textwrap.dedent(piece)
            piece = ""
        if piece or _defines(line):
            piece += line


def _defines(line: str) -> bool:
    return line.lstrip().startswith(("def ", "class ", "async def "))


def _shuffled(files: Mapping[str, str], cut: object, draws: random.Random) -> Sequence[str]:
    found = [part for name in sorted(files) for part in cut(files[name])]  # type: ignore[operator]
    draws.shuffle(found)
    return found


def _count(name: str, source: str) -> int:
    return len(re.findall(rf"\b{name}\b", source))
