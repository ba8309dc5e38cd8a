"""One line of the result: what was set, what was measured, and what the closed forms say about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace

import numpy as np

from specverify.core.types import Step
from specverify.laws.economics import expected_tokens, request_speedup
from specverify.laws.tree_economics import measured_child_acceptance, tree_round_law
from specverify.sweep.plan import Cell
from specverify.sweep.theory import RoundModel


@dataclass(frozen=True)
class Row:
    """Figures of one cell. Costs are in plain decoding steps of the same batch; errors are standard ones.

    num_drafting: rounds that drafted anything.
    acceptance: of a judged draft token; for a tree, that one of the children of a reached node is accepted.
    num_accepted, num_judged: what it is made of. share_accepted: accepted over all drafted, as many engines report it.
    tokens_per_pass: tokens that a round yields, before any limit cuts the last one.
    speedup: median of num_pairs ratios, speedup_low and speedup_high the quartiles around it.
    *_theory: closed forms, from the acceptance of this row and the cost of its rounds.
    round_cost: of a whole round; draft_cost: per drafted token; verify_cost: the target's pass in it;
      prompt_cost: of taking in the prompt. best_k: by theory, for this acceptance and these costs.
    """

    axis: str
    value: str
    proposer: str
    num_draft_tokens: int
    workload: str
    temperature: float
    prompt_length: int
    output_length: int
    batch_size: int
    draft: str
    int8: str
    num_nodes: int
    num_rounds: int
    num_drafting: int
    num_accepted: int
    num_judged: int
    acceptance: float | None
    acceptance_error: float | None
    share_accepted: float
    tokens_per_pass: float
    tokens_per_pass_error: float
    tokens_per_pass_theory: float
    plain_tokens_per_second: float
    tokens_per_second: float
    speedup: float
    speedup_low: float
    speedup_high: float
    num_pairs: int
    speedup_theory: float
    round_cost: float
    draft_cost: float
    verify_cost: float
    prompt_cost: float
    best_k: int | None

    @property
    def setting(self) -> tuple[object, ...]:
        """As Cell.setting."""
        return tuple(getattr(self, one.name) for one in fields(Cell) if one.name not in ("axis", "value"))

    @property
    def name(self) -> str:
        """As Cell.name."""
        return f"{self.axis} {self.proposer} {self.workload} {self.value}"


@dataclass(frozen=True)
class Speed:
    """Timings of one cell. plain, speculative: tokens per second. Costs in plain decoding steps.

    draft: of all drafting in a round.
    """

    speedups: Sequence[float]
    plain: float
    speculative: float
    round: float
    draft: float
    verify: float
    prompt: float


def row(cell: Cell, answers: Sequence[Sequence[Step]], speed: Speed) -> Row:
    """The line of this cell. answers: the steps of each request."""
    steps = [step for answer in answers for step in answer]
    yielded = np.array([step.num_accepted + 1 for step in steps], dtype=float)
    num_drafted = sum(step.num_draft_tokens for step in steps)
    acceptance, judged, theory = _acceptance(steps)
    error = None if acceptance is None else _error([_judged(answer) for answer in answers])
    draft_cost = speed.draft * len(steps) / max(1, num_drafted)
    low, middle, high = np.quantile(speed.speedups, (0.25, 0.5, 0.75))
    decoding = theory / speed.round
    found = Row(
        **asdict(cell),
        num_rounds=len(steps),
        num_drafting=sum(step.num_draft_tokens > 0 for step in steps),
        num_accepted=int(yielded.sum()) - len(steps),
        num_judged=judged,
        acceptance=acceptance,
        acceptance_error=error,
        share_accepted=(float(yielded.sum()) - len(steps)) / max(1, num_drafted),
        tokens_per_pass=float(yielded.mean()),
        tokens_per_pass_error=_error([(sum(s.num_accepted + 1 for s in answer), len(answer)) for answer in answers]),
        tokens_per_pass_theory=theory,
        plain_tokens_per_second=speed.plain,
        tokens_per_second=speed.speculative,
        speedup=float(middle),
        speedup_low=float(low),
        speedup_high=float(high),
        num_pairs=len(speed.speedups),
        # The first token comes with the prompt, whichever way is decoded.
        speedup_theory=request_speedup(decoding, max(1, cell.output_length - 1), fixed_cost=speed.prompt),
        round_cost=speed.round,
        draft_cost=draft_cost,
        verify_cost=speed.verify,
        prompt_cost=speed.prompt,
        best_k=None,
    )
    if acceptance is None or not all(map(_is_chain, steps)):
        return found
    return replace(found, best_k=round_model(found).best())


def round_model(row: Row) -> RoundModel:
    """The closed form around this row: its costs, taken to grow with k where they come from draft tokens.

    What the target's pass costs beyond a plain step is put down to its positions.
    """
    share_drafting = row.num_drafting / row.num_rounds
    per_token = row.draft_cost * share_drafting + max(0.0, row.verify_cost - 1.0) / row.num_draft_tokens
    return RoundModel(
        acceptance=row.acceptance or 0.0,
        share_drafting=share_drafting,
        cost=row.round_cost - row.num_draft_tokens * per_token,
        draft_cost=per_token,
        prompt_cost=row.prompt_cost,
        num_tokens=row.output_length,
    )


def _is_chain(step: Step) -> bool:
    """Also a tree in which every node has one child, which is how heads draft their chains."""
    return step.parents is None or step.parents == tuple(range(-1, step.num_draft_tokens - 1))


def _acceptance(steps: Sequence[Step]) -> tuple[float | None, int, float]:
    """(acceptance, tests, tokens per pass by the closed form). No acceptance where nothing was drafted."""
    drafting = [step for step in steps if step.num_draft_tokens]
    if not drafting:
        return None, 0, 1.0
    accepted, judged = _judged(steps)
    if all(map(_is_chain, drafting)):
        lengths = Counter(step.num_draft_tokens for step in steps)
        total = sum(count * expected_tokens(accepted / judged, length) for length, count in lengths.items())
    else:
        shapes = [(step.parents or (), step.accepted_nodes or ()) for step in steps]
        shares, _ = measured_child_acceptance(shapes)
        counts: Mapping[tuple[int, ...], int] = Counter(parents for parents, _ in shapes)
        total = sum(count * tree_round_law(parents, shares).mean for parents, count in counts.items())
    return accepted / judged, judged, total / len(steps)


def _judged(steps: Sequence[Step]) -> tuple[int, int]:
    """(accepted, judged) draft tokens; in a tree, the children of a node are judged together."""
    accepted = sum(step.num_accepted for step in steps)
    return accepted, accepted + sum(step.num_draft_tokens > 0 and step.is_rejection for step in steps)


def _error(counts: Sequence[tuple[int, int]]) -> float:
    """Standard error of sum / sum over requests: the rounds of one text are alike, so they do not count singly.

    Source: the ratio estimator, Cochran 1977, Sampling Techniques, section 6.3.
    """
    values = np.array(counts, dtype=float)
    above, below = values.sum(axis=0)
    return float(np.sqrt(((values[:, 0] - above / below * values[:, 1]) ** 2).sum()) / below)
