"""What is said of outputs that leave their constraint, and of requests beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from specverify.checks import wording
from specverify.checks.divergence import Divergence
from specverify.checks.evidence import Run
from specverify.checks.grammar_automata import Asked
from specverify.core.constraint import Constraint
from specverify.core.outcomes import Finding, Table
from specverify.core.types import Step, Trace

_MOST_TOKENS_SHOWN = 6
# A cause is named where it explains this many findings at least: a wrong one fits each with a chance of a third or so.
_FEWEST_EXPLAINED = 3


@dataclass(frozen=True, eq=False)
class Breach:
    """The first token of an output that was not allowed. state: of the constraint, before it.

    token: None where the output ends, and may not. run.drafter: empty where speculation was off.
    """

    run: Run
    trace: Trace
    index: int
    token: int | None
    state: int

    @property
    def constraint(self) -> Constraint:
        assert self.trace.request.constraint is not None
        return self.trace.request.constraint

    @property
    def step(self) -> Step | None:
        """The step that emitted the token, where steps are recorded."""
        position = len(self.trace.request.prompt_token_ids) + self.index
        for step in self.trace.steps:
            if step.start_position <= position < step.start_position + len(step.token_ids):
                return step
        return None

    def begin(self, step: Step) -> int:
        """Index of the step's first token among the new ones."""
        return step.start_position - len(self.trace.request.prompt_token_ids)

    def state_at(self, index: int) -> int:
        """The state before new token number index, which lies before the breach."""
        state = self.constraint.state_after(self.trace.token_ids[:index])
        assert state is not None
        return state

    def allows(self, state: int | None) -> bool:
        """Whether the token would have been right in this state."""
        return state is not None and self.token in self.trace.request.allowed_in(state)


def breach_finding(breaches: Sequence[Breach], wanted: Asked, traces: Sequence[Trace]) -> Finding:
    """The earliest breach, shown; traces: all that were made with speculation."""
    with_speculation = [one for one in breaches if one.run.drafter]
    worst = min(with_speculation or breaches, key=lambda one: one.index)
    num_held = sum(trace.request.constraint is not None for trace in traces)
    drafters = Counter(one.run.drafter for one in with_speculation)
    names = ", ".join(f"{count} with the {name} drafter" for name, count in drafters.items())
    name = next(
        name for name, request in zip(wanted.names, wanted.requests, strict=True)
        if request.request_id == worst.trace.request.request_id
    )  # fmt: skip
    num_plain = len(breaches) - len(with_speculation)
    where = [
        f"Seen in: {worst.run.drafter + ' drafter' if worst.run.drafter else 'speculation off'}, request "
        f"{worst.trace.request.request_id} ({'greedy' if worst.trace.request.sampling.is_greedy else 'sampled'}), "
        f"prompt {wording.prompt_text(worst.trace.request.prompt_token_ids)}.",
        f"Allowed there: {_allowed_text(worst)}.",
        *_place(worst),
        f"{len(with_speculation)} of {num_held} outputs with speculation leave their constraint"
        f"{': ' + names if names else ''}; {num_plain} of {sum(map(bool, wanted.names))} without.",
    ]
    return Finding(
        headline=_headline(worst, name),
        table=_table(worst),
        not_noise="The constraint says which tokens may come: the case is exact.",
        where=where,
        likely_cause=_cause(with_speculation, num_plain),
        details={"breaches": len(with_speculation), "without_speculation": num_plain, "outputs": num_held},
    )


def _headline(worst: Breach, name: str) -> str:
    if worst.token is None:
        return (
            f"The output ends after {wording.plural(worst.index, 'token')} of {worst.trace.request.max_new_tokens}, in "
            f"state {worst.state} of its constraint ({name}), where it may not end."
        )
    if worst.constraint.is_complete(worst.state):
        return f"The output is complete after {wording.plural(worst.index, 'token')} ({name}), and goes on."
    if worst.token in worst.trace.request.eos_token_ids:
        return (
            f"New token {worst.index} is the end token, in state {worst.state} of its constraint ({name}), where the "
            "output may not end."
        )
    return f"New token {worst.index} is {worst.token}, which state {worst.state} of its constraint ({name}) forbids."


def _table(worst: Breach) -> Table:
    first = max(0, worst.index - 4)
    shown = range(first, min(worst.index + 1, len(worst.trace.token_ids)))
    states = [str(worst.state_at(index)) for index in range(first, worst.index + 1)]
    ended = [] if worst.token is not None else ["the end"]
    numbers = [str(index) for index in range(first, worst.index + 1)]
    return Table(
        rows=(
            ("new token", *numbers),
            ("state before it", *states),
            ("emitted", *wording.token_text(worst.trace.token_ids[shown.start : shown.stop]), *ended),
        )
    )


def _allowed_text(worst: Breach) -> str:
    allowed = sorted(worst.constraint.allowed(worst.state))
    ends = worst.trace.request.eos_token_ids if worst.state in worst.constraint.accepting else ()
    shown = wording.token_text(allowed[:_MOST_TOKENS_SHOWN])
    more = [f"{len(allowed) - len(shown)} more"] if len(allowed) > len(shown) else []
    return ", ".join([*shown, *more, *(f"the end token ({end})" for end in ends)]) or "nothing"


def _place(worst: Breach) -> Iterator[str]:
    """In which step it was, and where in it."""
    step = worst.step
    if step is None:
        if worst.trace.steps and worst.token is not None:
            yield "It came from prefill, before any draft."
        return
    slot = worst.index - worst.begin(step)
    if slot < step.num_accepted:
        what = f"accepted draft token {slot} of {step.num_draft_tokens}"
    else:
        what = f"the final token, behind {slot} accepted of {step.num_draft_tokens} draft tokens"
    yield f"It is {what}, in step {step.index}, which began in state {worst.state_at(worst.begin(step))}."


def _cause(breaches: Sequence[Breach], num_plain: int) -> str:
    """A cause that explains every breach, or nothing."""
    if num_plain:
        return "the constraint is not kept without speculation either: look there first, or at the adapter."
    if all(one.token is not None and one.constraint.is_complete(one.state) for one in breaches):
        return "nobody notices that the constraint is complete: neither is an end token forced, nor the output ended."
    if len(breaches) < _FEWEST_EXPLAINED:
        return ""
    fitting = [name for name, explains in _CAUSES.items() if all(map(explains, breaches))]
    if fitting == [_BEGIN, _LATE]:
        return f"{_BEGIN}; or {_LATE}."
    return f"{fitting[0]}." if len(fitting) == 1 else ""


def _is_right_at_begin(breach: Breach) -> bool:
    step = breach.step
    return step is not None and breach.begin(step) < breach.index and breach.allows(breach.state_at(breach.begin(step)))


def _is_right_one_late(breach: Breach) -> bool:
    step = breach.step
    return step is not None and breach.begin(step) < breach.index and breach.allows(breach.state_at(breach.index - 1))


def _is_right_one_early(breach: Breach) -> bool:
    step = breach.step
    if step is None or step.parents is not None:
        return False
    drafted = step.draft_token_ids[breach.index - breach.begin(step) :][:1]
    return bool(drafted) and breach.allows(breach.constraint.state_from(breach.state, drafted))


def _is_right_without_rollback(breach: Breach) -> bool:
    """Whether the token is right in the state that all draft tokens of an earlier step lead to, rejected ones too."""
    step = breach.step
    return step is not None and any(
        breach.allows(state)
        for earlier in breach.trace.steps[: step.index]
        if earlier.is_rejection and earlier.parents is None
        for state in _left_behind(breach, earlier)
    )


def _left_behind(breach: Breach, earlier: Step) -> Iterator[int]:
    """The state that this step leaves where it is not rolled back; with its final token read, and without."""
    begin = breach.begin(earlier)
    end = begin + len(earlier.token_ids)
    drafted = _read(breach.constraint, breach.state_at(begin), earlier.draft_token_ids)
    for first in (end - 1, end):
        yield _read(breach.constraint, drafted, breach.trace.token_ids[first : breach.index])


def _read(constraint: Constraint, state: int, token_ids: Sequence[int]) -> int:
    """The state after these tokens for an automaton that stays where it is when a token is not allowed."""
    for token in token_ids:
        following = constraint.state_from(state, (token,))
        state = state if following is None else following
    return state


_BEGIN = "the state is that of the step's beginning: one mask is used for all its positions"
_LATE = "the state is one position late: each token is masked as the one before it should be"
_CAUSES: Mapping[str, Callable[[Breach], bool]] = {
    _BEGIN: _is_right_at_begin,
    _LATE: _is_right_one_late,
    "the state is one position early: each token is masked as the one behind it should be": _is_right_one_early,
    "the state was not rolled back after a rejection: it has read draft tokens that are not in the text": (
        _is_right_without_rollback
    ),
}


def company_finding(bugs: Sequence[Divergence], tolerance: float) -> Finding:
    """Of requests without a constraint that get other tokens beside requests with one."""
    worst = min(bugs, key=lambda one: one.token_index)
    index = worst.token_index
    shown = slice(max(0, index - 3), index + 5)
    margin = worst.on_margin
    first_tokens = {one.on_token for one in bugs}
    return Finding(
        headline=f"A request without a constraint gets other tokens beside those with one, from new token {index} on.",
        table=Table(
            rows=(
                ("new token", *(str(number) for number in range(len(worst.off.token_ids))[shown])),
                ("alone", *wording.token_text(worst.off.token_ids[shown])),
                ("beside others", *wording.token_text(worst.on.token_ids[shown])),
            )
        ),
        not_noise="Nobody knows the scores of the two tokens, but too many outputs differ for near ties."
        if margin is None
        else f"Not a near tie: the token is {margin:.3g} below the best one in log-probability; rounding explains "
        f"{tolerance:.1g}.",
        where=(
            f"Seen in: {worst.run.drafter} drafter, request {worst.on.request.request_id}, prompt "
            f"{wording.prompt_text(worst.on.request.prompt_token_ids)}.",
            f"{len(bugs)} outputs without a constraint differ from what they are alone.",
        ),
        likely_cause="nothing is allowed to requests without a constraint: the token is the same in each of them."
        if len(first_tokens) == 1 and len(bugs) >= _FEWEST_EXPLAINED
        else "",
        details={"different": len(bugs), "margin": margin, "tolerance": tolerance},
    )
