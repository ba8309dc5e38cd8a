"""Which k to use, and why: the measured optimum beside the one that follows from acceptance and cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from specverify.sweep.families import WORKLOADS
from specverify.sweep.rows import Row
from specverify.sweep.store import Sweep
from specverify.sweep.theory import RoundModel


@dataclass(frozen=True)
class Advice:
    """For one proposer on one workload. best_k: 0 where none is known to be worth it; row: the fastest one measured.

    theory: the closed form with acceptance and costs of all rows. as_good: k that the spread does not tell from row's.
    """

    proposer: str
    workload: str
    best_k: int
    row: Row
    theory: RoundModel
    theory_k: int
    as_good: Sequence[int]
    most_measured: int
    acceptance_error: float

    @property
    def headline(self) -> str:
        where = f"{self.proposer}, {WORKLOADS[self.workload]}"
        if self.is_undecided:
            return f"{where}: undecided, measure more: k {self.row.num_draft_tokens} was faster, theory says it is not"
        if not self.best_k:
            return f"{where}: do not speculate, no k measured is faster than plain decoding"
        return f"{where}: use k = {self.best_k}"

    @property
    def is_undecided(self) -> bool:
        """Faster by the few pairs of one row, slower by the acceptance and the costs of all rows."""
        return self.row.speedup > 1.0 and not self.theory_k

    @property
    def reasons(self) -> list[str]:
        """Sentences: what was measured, what theory says, what holds it back."""
        row, theory = self.row, self.theory
        spread = f"{row.speedup_low:.2f} to {row.speedup_high:.2f}"
        fastest = f"Fastest measured: k {row.num_draft_tokens} with {row.speedup:.2f}x ({spread})"
        others = [str(k) for k in self.as_good if k != row.num_draft_tokens]
        lines = [f"{fastest}; k {', '.join(others)} within the spread." if others else f"{fastest}."]
        cost = f"a round costs {theory.cost:.2f} plain steps and {theory.draft_cost:.3f} more per draft token"
        given = f"acceptance {theory.acceptance:.3f} +- {self.acceptance_error:.3f}, {cost}"
        if theory.share_drafting < 0.99:
            given += f", {theory.share_drafting:.0%} of rounds draft anything"
        said = f"k {self.theory_k}, {theory.speedup(self.theory_k):.2f}x" if self.theory_k else "plain decoding"
        lines.append(f"Theory says {said}: {given}.")
        if self.best_k:
            reached = [f"number {k} in {theory.acceptance ** (k - 1) * theory.share_drafting:.0%}" for k in (2, 5, 10)]
            lines.append(f"Of the draft tokens {', '.join(reached)} of rounds is reached; all are paid for.")
            if theory.best() > self.most_measured:
                lines.append(f"More than {self.most_measured} may be faster still: theory's best is {theory.best()}.")
        else:
            needed = _needed_acceptance(theory, row.num_draft_tokens)
            lines.append(
                f"At k {row.num_draft_tokens} these costs pay from acceptance {needed:.2f} on."
                if needed is not None
                else f"At k {row.num_draft_tokens} these costs do not pay at any acceptance."
            )
        return lines


def advice(sweep: Sweep) -> list[Advice]:
    """One for each proposer and workload whose draft length was swept over at least two lengths."""
    rows = sweep.axis("draft-length")
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.proposer, row.workload), []).append(row)
    return [_advice(group) for group in groups.values() if len(group) > 1 and any(row.num_judged for row in group)]


def fitted(rows: Sequence[Row]) -> tuple[RoundModel, float]:
    """The closed form with one acceptance and one line of costs for all draft lengths, and the acceptance's error.

    The line is the least-squares fit of the rounds' measured costs over k.
    """
    accepted, judged = sum(row.num_accepted for row in rows), sum(row.num_judged for row in rows)
    value = accepted / judged
    slope, start = np.polyfit([row.num_draft_tokens for row in rows], [row.round_cost for row in rows], 1)
    model = RoundModel(
        acceptance=value,
        share_drafting=sum(row.num_drafting for row in rows) / sum(row.num_rounds for row in rows),
        cost=float(start),
        draft_cost=float(slope),
        prompt_cost=float(np.mean([row.prompt_cost for row in rows])),
        num_tokens=rows[0].output_length,
    )
    # All lengths were measured on the same texts: their errors do not average out.
    return model, float(np.mean([row.acceptance_error or 0.0 for row in rows]))


def _advice(rows: Sequence[Row]) -> Advice:
    model, error = fitted(rows)
    fastest = max(rows, key=lambda row: row.speedup)
    as_good = [row.num_draft_tokens for row in rows if row.speedup_high >= fastest.speedup_low]
    # Theory knows no noise: among what measurement cannot tell apart, its choice is the better guess.
    chosen = model.best(as_good)
    lengths = [row.num_draft_tokens for row in rows]
    theory_k = model.best(range(1, max(lengths) + 1))
    best = 0 if fastest.speedup <= 1.0 or not theory_k else chosen or fastest.num_draft_tokens
    return Advice(rows[0].proposer, rows[0].workload, best, fastest, model, theory_k, as_good, max(lengths), error)


def _needed_acceptance(model: RoundModel, num_draft_tokens: int) -> float | None:
    """Acceptance from which num_draft_tokens pay at these costs; None where none does."""
    grid = np.linspace(0.0, 1.0, 201)
    paying = [a for a in grid if replace(model, acceptance=float(a)).speedup(num_draft_tokens) >= 1.0]
    return float(paying[0]) if paying else None
