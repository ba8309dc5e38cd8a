"""The tiny family: a trained target of half a million weights, and what drafts for it. It ships with the package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specverify.core.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END_TOKEN_ID = 0


@dataclass(frozen=True)
class Family:
    """Folders: two Llama checkpoints, each with the tokenizer, and two heads."""

    target: Path
    draft: Path
    eagle: Path
    medusa: Path

    @property
    def heads(self) -> dict[str, Path]:
        return {"eagle": self.eagle, "medusa": self.medusa}

    def tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        made: Tokenizer = Tokenizer.from_file(str(self.target / "tokenizer.json"))
        return made

    def prompts(self, workload: str, num_prompts: int) -> list[tuple[int, ...]]:
        """Prompts of a workload of specverify.families.workloads, from files that nothing was trained on."""
        from specverify.families.workloads import tasks

        tokenizer = self.tokenizer()
        return [tuple(tokenizer.encode(task.prompt).ids) for task in tasks(workload, num_prompts)]


def family_in(folder: Path) -> Family:
    """The family in a folder that specverify.families.build wrote."""
    return Family(*(folder / name for name in ("target", "draft", "eagle", "medusa")))


def tiny_family() -> Family:
    """The one that ships. Raises UsageError where its files are not there."""
    family = family_in(Path(__file__).parent / "tiny")
    if not (family.target / "model.safetensors").is_file():
        raise UsageError(f"{family.target} holds no model; install the package anew, or run specverify.families.build")
    return family
