"""One case of a verify step; what the step checks ask of a verify function, whatever its dialect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from specverify.core.capabilities import Capability
from specverify.core.errors import SubjectCrashed
from specverify.core.types import VerifyInput, VerifyOutput, WholeStepInput
from specverify.exact.program import RandomSource
from specverify.laws.residual import residual
from specverify.laws.steps import Law
from specverify.laws.tree import Conditional, path_rows

Joint = dict[tuple[tuple[int, ...], tuple[int, ...], int | None], float]
"""(draft tokens, emitted tokens, number accepted where told) -> probability."""


class VerifySubject(Protocol):
    """A verify function that can be called on cases; see specverify.adapters.function.FunctionSubject.

    takes_draft_law: whether the accept rule may use the draft law; if not, each draft must be lossless by itself.
    draft_law_is_optional: it may also be left out. takes_all_uniforms: every draw is handed over. draws_inside: it may
    draw by itself. decides_only: it only decides how many drafts to accept. takes_batches, takes_ragged_batches: rows
    of one length, or of any. batch_refusal: what a call on two rows ended in, where the function has a batch axis but
    takes no second row. takes_no_drafts: it may be called without any draft token. dtype: of the laws it is given.
    law_seen: a law as it gets it. rounded_to: the same function, fed laws that went through a narrower type first.
    in_float32: the same function fed float32 tensors, None where it takes none. temperature: what it divides the target
    logits by, and the draft logits where tempers_draft. at_temperature: the same function at another one, None where it
    has no such parameter.
    """

    name: str
    capabilities: frozenset[Capability]
    is_greedy: bool
    draft_law_is_optional: bool
    takes_draft_law: bool
    takes_batches: bool
    takes_ragged_batches: bool
    batch_refusal: str
    takes_no_drafts: bool
    takes_all_uniforms: bool
    takes_trees: bool
    drafts_itself: bool
    decides_only: bool
    draws_inside: bool
    dtype: str
    temperature: float
    tempers_draft: bool

    def parts(self, cases: Sequence[VerifyInput], source: RandomSource) -> tuple[Any, ...]: ...
    def read(self, parts: Any, cases: Sequence[VerifyInput]) -> list[VerifyOutput]: ...
    def call_rows(self, cases: Sequence[VerifyInput], source: RandomSource) -> list[VerifyOutput]: ...
    def observed_call(
        self, cases: Sequence[VerifyInput], source: RandomSource
    ) -> tuple[list[VerifyOutput], tuple[str, ...]]: ...
    def law_seen(self, law: NDArray[np.float64]) -> NDArray[np.float64]: ...
    def rounded_to(self, dtype: str) -> VerifySubject: ...
    def in_float32(self) -> VerifySubject | None: ...
    def at_temperature(self, temperature: float, *, divides: str) -> VerifySubject | None: ...


def crash(subject: VerifySubject, scenario: Scenario, error: Exception) -> Exception:
    """What an exception of an ordinary call is to a reader: the function's name, what it said, and to which case."""
    if isinstance(error, SubjectCrashed):
        return error
    text = (str(error).strip().splitlines() or ["no message"])[0]
    return SubjectCrashed(f"{subject.name} raised {type(error).__name__}: {text} ({scenario.name}: {scenario.size})")


def completions(subject: VerifySubject, case: VerifyInput, output: VerifyOutput) -> list[tuple[tuple[int, ...], float]]:
    """What a call emitted, with weights: as it is, or completed by the final token's law where the function only
    decides how many drafts to accept and its caller draws that token.

    Source: Leviathan et al. 2023, arXiv 2211.17192, algorithm 1.
    """
    if not subject.decides_only:
        return [(output.token_ids, 1.0)]
    accepted = output.token_ids
    law = final_law(case, len(accepted))
    return [((*accepted, int(token)), float(law[token])) for token in np.flatnonzero(law)]


def final_law(case: VerifyInput, num_accepted: int) -> NDArray[np.float64]:
    """Law of the final token after that many accepted drafts: the residual, or the bonus row after all of them."""
    target: NDArray[np.float64] = np.asarray(case.target_probs)[num_accepted]
    if num_accepted == len(case.draft_token_ids):
        return target
    if case.draft_probs is None:
        point = np.zeros_like(target)
        point[case.draft_token_ids[num_accepted]] = 1.0
        return residual(point, target)
    return residual(np.asarray(case.draft_probs)[num_accepted], target)


def emitted_law(joint: Joint) -> Law:
    """The law of what was emitted, whatever the draft."""
    law: Law = {}
    for (_, emitted, _), probability in joint.items():
        law[emitted] = law.get(emitted, 0.0) + probability
    return law


def split_by_draft(joint: Joint) -> dict[tuple[int, ...], tuple[float, Law]]:
    """Draft tokens -> (their probability, law of what was emitted given them)."""
    masses: dict[tuple[int, ...], Law] = {}
    for (drafted, emitted, _), probability in joint.items():
        law = masses.setdefault(drafted, {})
        law[emitted] = law.get(emitted, 0.0) + probability
    found = {}
    for drafted, law in masses.items():
        total = sum(law.values())
        if total > 0.0:
            found[drafted] = (total, {emitted: probability / total for emitted, probability in law.items()})
    return found


@dataclass(frozen=True)
class Scenario:
    """Two laws over prefixes, and how many tokens are drafted.

    draft: the law that draft tokens are drawn from and that the function is told of. is_told: whether the function
    is told of it; if not, every draft must be lossless by itself. told: rows [k, vocab] that the function is told
    instead. given, given_draft: laws that the function is given, where it is meant to turn them into `target` and
    `draft`. neighbour:
    in a batch, the other row, at the place that `row` leaves. parents: for a draft tree; `draft` is then the law of
    the next token of the tree given those before it in the list. drafts_itself: the function draws the draft tokens.
    """

    name: str
    vocab_size: int
    num_draft_tokens: int
    target: Conditional
    draft: Conditional
    is_told: bool = True
    neighbour: VerifyInput | None = None
    row: int = 0
    told: NDArray[np.float64] | None = None
    given: Conditional | None = None
    given_draft: Conditional | None = None
    parents: tuple[int, ...] | None = None
    drafts_itself: bool = False
    _cases: dict[tuple[int, ...], VerifyInput] = field(default_factory=dict, repr=False, compare=False)

    def case(self, tokens: tuple[int, ...]) -> VerifyInput:
        """The input of one call, for these draft tokens."""
        if self.drafts_itself:
            law = self.given or self.target
            return WholeStepInput((), None, law(())[None], None, self.draft, law, self.num_draft_tokens)
        if tokens not in self._cases:
            draft = None
            if self.is_told:
                draft = path_rows(self.given_draft or self.draft, tokens)[:-1] if self.told is None else self.told
            law = self.given or self.target
            rows = np.stack([law(path) for path in [(), *tree_paths(tokens, self.parents)]])
            self._cases[tokens] = VerifyInput(tokens, draft, rows, self.parents)
        return self._cases[tokens]

    def drawn(self, choose: Callable[[NDArray[np.float64]], int]) -> tuple[int, ...]:
        """Draft tokens, drawn one by one from the draft law. choose: draws an index from a law."""
        tokens: tuple[int, ...] = ()
        for _ in range(self.num_drawn):
            tokens += (choose(self.draft(tokens)),)
        return tokens

    @property
    def num_drawn(self) -> int:
        """How many draft tokens are drawn before the call."""
        return 0 if self.drafts_itself else self.num_draft_tokens

    def is_rejection(self, drafted: tuple[int, ...], emitted: tuple[int, ...]) -> bool:
        """Whether not all draft tokens came out."""
        if self.drafts_itself:
            return len(emitted) <= self.num_draft_tokens
        return emitted[: len(drafted)] != drafted

    @property
    def is_chain(self) -> bool:
        """Whether there is one candidate for each position."""
        return self.parents is None or self.parents == tuple(range(-1, len(self.parents) - 1))

    @property
    def depth(self) -> int:
        """Most draft tokens that can be accepted."""
        return max(map(len, tree_paths((0,) * self.num_draft_tokens, self.parents)), default=0)

    def batch(self, tokens: tuple[int, ...]) -> list[VerifyInput]:
        """The rows of one call: the case, and its neighbour if there is one."""
        rows = [self.case(tokens)]
        if self.neighbour is not None:
            rows.insert(1 - self.row, self.neighbour)
        return rows

    @property
    def size(self) -> str:
        if not self.is_chain:
            return f"vocabulary {self.vocab_size}, draft tree with parents {list(self.parents or ())}"
        number = {0: "no", 1: "one"}.get(self.num_draft_tokens, str(self.num_draft_tokens))
        tokens = f"{number} draft token{'s' if self.num_draft_tokens > 1 else ''}"
        return f"vocabulary {self.vocab_size}, {tokens}"


def tree_paths(tokens: tuple[int, ...], parents: tuple[int, ...] | None) -> list[tuple[int, ...]]:
    """The tokens from the root to each draft token, itself included."""
    paths: list[tuple[int, ...]] = []
    for place, token in enumerate(tokens):
        parent = place - 1 if parents is None else parents[place]
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return paths
