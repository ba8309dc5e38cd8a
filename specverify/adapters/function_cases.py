"""Cases so one-sided that only one outcome is possible, whatever lossless rule a function uses."""

from __future__ import annotations

from typing import Any

import numpy as np

from specverify.core.types import VerifyInput, VerifyOutput, WholeStepInput

_VOCAB, _FAINT = 11, 1e-9
_DRAFT = (6, 7, 8)


def trial_cases(*, has_draft_law: bool, is_tree: bool = False) -> list[tuple[VerifyInput, VerifyOutput]]:
    """Two cases and what must come out: everything accepted and token 9; the second draft rejected for token 10.

    is_tree: of two first tokens, the second is accepted with all behind it, and token 9; the first, and token 10.
    """
    if is_tree:
        return _tree_cases(has_draft_law=has_draft_law)
    everything = _peaked(6, 7, 8, 9)
    second_rejected = _peaked(6, 10, 8, 9)
    draft = _peaked(6, 7, 8) if has_draft_law else None
    return [
        (VerifyInput(_DRAFT, draft, everything), VerifyOutput((6, 7, 8, 9), 3)),
        (VerifyInput(_DRAFT, draft, second_rejected), VerifyOutput((6, 10), 1)),
    ]


def alike_cases(*, has_draft_law: bool) -> list[tuple[VerifyInput, VerifyOutput]]:
    """Two cases with one law in every row: everything accepted, nothing accepted. A function that reads a wrong row
    may fail on the other cases, whose rows differ; these it survives.
    """
    draft = _peaked(6, 6, 6) if has_draft_law else None
    return [
        (VerifyInput((6, 6, 6), draft, _peaked(6, 6, 6, 6)), VerifyOutput((6, 6, 6, 6), 3)),
        (VerifyInput((6, 6, 6), draft, _peaked(9, 9, 9, 9)), VerifyOutput((9,), 0)),
    ]


def empty_case(*, has_draft_law: bool) -> tuple[VerifyInput, VerifyOutput]:
    """No draft token at all, and token 9."""
    return VerifyInput((), _peaked() if has_draft_law else None, _peaked(9)), VerifyOutput((9,), 0)


def _tree_cases(*, has_draft_law: bool) -> list[tuple[VerifyInput, VerifyOutput]]:
    parents, tokens = (-1, -1, 1, 2), (6, 5, 7, 8)
    draft = _peaked(*tokens) if has_draft_law else None
    return [
        (VerifyInput(tokens, draft, _peaked(5, 10, 7, 8, 9), parents), VerifyOutput((5, 7, 8, 9), 3)),
        (VerifyInput(tokens, draft, _peaked(6, 10, 7, 8, 9), parents), VerifyOutput((6, 10), 1)),
    ]


def whole_step_cases() -> list[tuple[VerifyInput, VerifyOutput]]:
    """The same two outcomes for a function that drafts by itself from conditional laws."""

    def rows(*tokens: int) -> Any:
        law = _peaked(*tokens)
        return lambda prefix: law[min(len(prefix), len(law) - 1)]

    return [
        (_whole(rows(6, 7, 8), rows(6, 7, 8, 9)), VerifyOutput((6, 7, 8, 9), 3)),
        (_whole(rows(6, 7, 8), rows(6, 10, 8, 9)), VerifyOutput((6, 10), 1)),
    ]


def _whole(draft: Any, target: Any) -> VerifyInput:
    return WholeStepInput((), None, target(())[None], None, draft, target, len(_DRAFT))


def certain_case(*, has_draft_law: bool) -> VerifyInput:
    """Laws that leave nothing to chance at all: as logits they hold -inf."""
    target = np.eye(_VOCAB)[[*_DRAFT, 9]]
    return VerifyInput(_DRAFT, target[:-1].copy() if has_draft_law else None, target, (-1, 0, 1))


def _peaked(*tokens: int) -> Any:
    law = np.full((len(tokens), _VOCAB), _FAINT)
    law[np.arange(len(tokens)), tokens] = 1.0 - (_VOCAB - 1) * _FAINT
    return law
