"""The dialect of one verify function: which parameter holds what, in which kind of array, and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specverify.adapters.function_names import FORMS
from specverify.core.errors import UsageError

KINDS = ("numpy", "torch", "list", "numpy rows", "torch rows", "torch rows [1, vocab]")
LAYOUTS = ("single", "batch", "flat")
RNG_KINDS = ("numpy", "torch", "python", "function")
DTYPES = ("float64", "float32", "float16", "bfloat16")
ELEMENTS = (
    "token_ids", "accepted_token_ids", "accepted_nodes", "num_accepted", "num_emitted", "final_token_id",
    "accepted_mask", "_",
)  # fmt: skip


@dataclass(frozen=True)
class ReturnForm:
    """Where the parts of an answer are.

    names: what each part is (see ELEMENTS; "_" is ignored). fields: attribute or key of each part, or empty where
    the answer is a tuple, or an array whose last axis holds the parts. cut: how padded token ids end: "negative"
    (placeholders below zero) or "count" (num_accepted or num_emitted says how many). has_prefix: the committed
    tokens come back in front of the new ones. by_row: the answer is a sequence of one such answer a batch row.
    """

    names: tuple[str, ...] = ("token_ids",)
    fields: tuple[str, ...] = ()
    cut: str = "negative"
    has_prefix: bool = False
    by_row: bool = False

    @property
    def decides_only(self) -> bool:
        """Whether only the accept decisions come back, so that the caller draws the final token."""
        return not {"token_ids", "final_token_id"} & set(self.names)


@dataclass(frozen=True)
class Dialect:
    """How to call one verify function.

    roles: role to parameter name. kinds: parameter name to one of KINDS. layout: one sequence, a batch with a leading
    axis, or the rows of a batch laid end to end. rng_kind: what the rng parameter takes. target_rows: "k + 1", or "k"
    where the bonus row comes apart or not at all. constants: fixed arguments. arguments: parameter name to a function
    of (case, source) that makes the argument, for anything the roles do not cover. rounding: a narrower type that
    laws pass through on their way to dtype; how a function's inner precision is measured. num_uniforms: how many
    uniforms a row are handed over, "k" or "k + 1". finite_logs: whether it refuses -inf. is_tree:
    whether it verifies draft trees. drafts_itself: whether it draws the draft tokens too. bonus_is_column: whether the
    bonus token ids of a batch come as [batch, 1] and not as [batch].
    """

    roles: Mapping[str, str]
    kinds: Mapping[str, str] = field(default_factory=dict)
    dtype: str = "float64"
    layout: str = "single"
    rng_kind: str = "numpy"
    target_rows: str = "k + 1"
    returns: ReturnForm = ReturnForm()
    constants: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    rounding: str = ""
    num_uniforms: str = "k"
    finite_logs: bool = False
    is_tree: bool = False
    drafts_itself: bool = False
    bonus_is_column: bool = False

    @property
    def takes_draft_law(self) -> bool:
        """Whether the draft law is an argument, or may be part of one that is made by hand."""
        if any(f"draft_{form}" in self.roles for form in FORMS):
            return True
        return bool(self.arguments) and not {"draft_token_ids", "sequence_token_ids"} & set(self.roles)

    @property
    def takes_trees(self) -> bool:
        return self.is_tree or "parents" in self.roles

    def describe(self) -> str:
        """The mapping in one line, as it would be written by hand."""
        parts = [f'{role}="{name}"' for role, name in self.roles.items()]
        names = self.returns.names
        kinds = sorted(set(self.kinds.values()))
        parts.append(f"returns={names[0]!r}" if len(names) == 1 else f"returns={names!r}")
        if len(kinds) == 1:
            parts.append(f'kind="{kinds[0]}"')
        elif kinds:
            parts.append(f"kind={dict(self.kinds)!r}")
        parts.append(f"batched={self.layout == 'batch'}")
        return f"verified({', '.join(parts)})"


def return_form(returns: str | Sequence[str] | Mapping[str, str] | None) -> ReturnForm | None:
    """The user's `returns=` as a form: an element, a tuple of elements, or element to field name."""
    if returns is None:
        return None
    if isinstance(returns, str):
        form = ReturnForm((returns,))
    elif isinstance(returns, Mapping):
        form = ReturnForm(tuple(returns), tuple(returns.values()))
    else:
        form = ReturnForm(tuple(returns))
    unknown = [name for name in form.names if name not in ELEMENTS]
    if unknown or not form.names:
        raise UsageError(
            f"returns={returns!r} holds {unknown[0]!r}, which is no part of an answer; the parts are "
            f"{', '.join(ELEMENTS)}, where _ is ignored"
            if unknown
            else "returns=() says nothing; give for example returns=('token_ids', 'num_accepted')"
        )
    if not set(form.names) - {"_"}:
        raise UsageError(f"returns={returns!r} names no part to read; name token_ids or num_accepted")
    if "num_emitted" in form.names and "token_ids" in form.names:
        return ReturnForm(form.names, form.fields, cut="count")
    return form
