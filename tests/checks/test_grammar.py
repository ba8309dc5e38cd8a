"""Outputs under a constraint: what leaves it, what only looks so, and what cannot be decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from specverify.checks.grammar_automata import automata
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.core.types import Request, Trace
from specverify.faults import engine
from specverify.runner import run_checks
from tests.checks.engine_handmade import ScriptedEngine, result_of

CHECK = "grammar.outputs-conform"
GRAMMAR = (Capability.GENERATE, Capability.GRAMMAR, Capability.STOP)
FAULTS = {fault.name: fault for fault in engine.FAULTS}
PROMPTS = ((1, 4, 5, 6), (1, 7, 8, 9, 10), (1, 5, 7, 11))
Change = Callable[[Request, tuple[int, ...]], Sequence[int]]


def conforming(request: Request) -> tuple[int, ...]:
    """The largest token that is allowed, each time; without a constraint, the tokens 4, 5, 6 and so on."""
    output: tuple[int, ...] = ()
    while len(output) < request.max_new_tokens and not set(output) & set(request.eos_token_ids):
        allowed = request.allowed_after(output)
        output += (4 + len(output) % 20 if allowed is None else max(allowed - set(request.eos_token_ids) or allowed),)
    return output


def scripted(
    on: Change = lambda request, text: text,
    off: Change = lambda request, text: text,
    *,
    proposed: int | None = 8,
    accepted: int = 3,
    capabilities: Sequence[Capability] = GRAMMAR,
    **attributes: object,
) -> ScriptedEngine:
    """Emits what conforms, changed by one of the two functions."""

    def answer(requests: Sequence[Request], speculate: bool) -> list[Trace]:
        change = on if speculate else off
        return [
            Trace(
                request,
                tuple(change(request, conforming(request))),
                speculated=speculate,
                num_proposed=proposed,
                num_accepted=accepted if proposed else proposed,
            )
            for request in requests
        ]

    return ScriptedEngine(answer, capabilities=capabilities, **{"prompts": PROMPTS, **attributes})


def with_first(token: int) -> Change:
    """Another first token, where there is a constraint."""
    return lambda request, text: (token, *text[1:]) if request.constraint is not None else text


def test_conforming_outputs_pass() -> None:
    """Complete ones end with the end token; what was drafted is said."""
    result = result_of(CHECK, scripted())

    assert result.outcome is Outcome.PASSED
    assert "outputs ended where the constraint does" in result.worth
    assert "draft tokens accepted" in result.worth


def test_an_end_without_an_end_token_is_one() -> None:
    """Some servers end the request when the grammar is complete."""

    def cut(request: Request, text: tuple[int, ...]) -> tuple[int, ...]:
        return text[:-1] if text[-1] in request.eos_token_ids else text

    assert result_of(CHECK, scripted(cut, cut)).outcome is Outcome.PASSED


def test_a_token_that_is_not_allowed_is_a_finding() -> None:
    """Named with its state and what would have been allowed, without steps too."""
    result = result_of(CHECK, scripted(with_first(1)))

    (finding,) = result.findings
    assert "New token 0 is 1, which state 0 of its constraint" in finding.headline
    assert any("Allowed there: " in line for line in finding.where)
    assert finding.likely_cause == ""


def test_plain_decoding_is_judged_too() -> None:
    """Then speculation is not to blame."""
    result = result_of(CHECK, scripted(with_first(1), with_first(1)))

    assert "without speculation either" in result.findings[0].likely_cause


def test_an_output_that_ends_where_it_may_not_is_a_finding() -> None:
    """Cut off in the middle, or by an end token there."""

    def cut(request: Request, text: tuple[int, ...]) -> tuple[int, ...]:
        return text[:1] if request.constraint is not None else text

    def ended(request: Request, text: tuple[int, ...]) -> tuple[int, ...]:
        return (text[0], *request.eos_token_ids) if request.constraint is not None else text

    assert "The output ends after 1 token" in result_of(CHECK, scripted(cut)).findings[0].headline
    assert "is the end token, in state 1" in result_of(CHECK, scripted(ended)).findings[0].headline


def test_an_output_that_misses_its_end_is_a_finding() -> None:
    """Complete, and it goes on; every such finding has that cause."""

    def goes_on(request: Request, text: tuple[int, ...]) -> tuple[int, ...]:
        return (*text[:-1], 4, 4, 4) if text[-1] in request.eos_token_ids else text

    (finding,) = result_of(CHECK, scripted(goes_on)).findings
    assert "The output is complete after 3 tokens (three words), and goes on" in finding.headline
    assert "nobody notices that the constraint is complete" in finding.likely_cause


def test_an_end_token_of_its_own_is_no_breach_where_the_output_may_end() -> None:
    """An engine whose checkpoint nobody knows may have one; in the middle of an output it is a token as others are."""

    def ended(request: Request, text: tuple[int, ...]) -> tuple[int, ...]:
        if request.constraint is None:
            return text
        ends = [n for n in range(len(text)) if request.constraint.state_after(text[:n]) in request.constraint.accepting]
        return (*text[: ends[0]], 31) if ends else text

    without_stop = GRAMMAR[:2]
    assert result_of(CHECK, scripted(ended, ended, capabilities=without_stop)).outcome is Outcome.PASSED


def test_without_end_tokens_no_constraint_is_asked_for_that_ends() -> None:
    """The engine could not end the output."""
    seen: list[Request] = []

    def note(request: Request, text: tuple[int, ...]) -> tuple[int, ...]:
        seen.append(request)
        return text

    result_of(CHECK, scripted(note, capabilities=GRAMMAR[:2]))

    held = [request.constraint for request in seen if request.constraint is not None]
    assert held
    assert all(all(one.transitions) for one in held)


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        (scripted(proposed=0), "do constraints switch speculation off"),
        (scripted(accepted=0), "no draft token was accepted"),
        (scripted(prompts=((1, 4), (1, 5)), max_new_tokens=3), "too few for a constraint"),
    ],
    ids=["no draft", "none accepted", "few words"],
)
def test_what_shows_nothing_is_undecided(subject: ScriptedEngine, reason: str) -> None:
    """And says why."""
    result = result_of(CHECK, subject)

    assert result.outcome is Outcome.INCONCLUSIVE
    assert reason in result.reason


def test_constraints_that_forbid_nothing_show_nothing() -> None:
    """An engine that would have said the same anyway: only its words were taken for the constraints."""

    def fixed(request: Request, text: tuple[int, ...]) -> tuple[int, ...]:
        allowed = request.allowed_after(())
        return (min(allowed),) if allowed is not None else text

    subject = scripted(fixed, fixed, max_new_tokens=1)

    result = result_of(CHECK, subject)

    assert result.outcome is Outcome.INCONCLUSIVE
    assert "without a constraint" in result.reason


def other_word(request: Request, text: tuple[int, ...]) -> tuple[int, ...]:
    """Another allowed word in the first place, which the rest allows as well."""
    if request.constraint is None or not request.sampling.is_greedy:
        return text
    state = request.constraint.state_after(text[:1])
    same = [t for t in request.constraint.allowed(0) if request.constraint.state_after((t,)) == state and t != text[0]]
    return (max(same), *text[1:])


def score(gap: float) -> Callable[[Sequence[int], Sequence[int]], np.ndarray]:
    """Each token is so much likelier than the one below it, and token 1, which no constraint allows, than all."""

    def scores(prompt: Sequence[int], token_ids: Sequence[int]) -> np.ndarray:
        rows = np.tile(-np.arange(40.0)[::-1] * gap - 5.0, (len(token_ids), 1))
        rows[:, 1] = -0.01
        return rows

    return scores


@pytest.mark.parametrize(("gap", "outcome"), [(1e-13, Outcome.PASSED), (1.0, Outcome.FAILED)])
def test_margins_are_taken_among_allowed_tokens(gap: float, outcome: Outcome) -> None:
    """A token that is far below the best one may be near the best that is allowed."""

    subject = scripted(other_word, capabilities=(*GRAMMAR, Capability.SCORE), score=score(gap), dtype="float64")

    assert result_of(CHECK, subject).outcome is outcome


def test_a_lossy_engine_owes_the_constraint_only() -> None:
    """Greedy tokens may differ; forbidden ones may not come."""
    lossy = (*GRAMMAR, Capability.LOSSY_BY_DESIGN)
    options = {"capabilities": lossy, "lossy_by_design": "typical"}

    assert result_of(CHECK, scripted(other_word, **options)).outcome is Outcome.PASSED
    assert result_of(CHECK, scripted(with_first(1), **options)).outcome is Outcome.FAILED


def test_requests_without_a_constraint_are_judged() -> None:
    """Against what they get alone, without speculation; where scores say that it is no near tie."""

    def masked(request: Request, text: tuple[int, ...]) -> tuple[int, ...]:
        return (0,) * len(text) if request.constraint is None and len(text) < 20 else text

    subject = scripted(masked, capabilities=(*GRAMMAR, Capability.SCORE), score=score(1.0), dtype="float64")

    (finding,) = result_of(CHECK, subject).findings
    assert "A request without a constraint gets other tokens beside those with one" in finding.headline


@pytest.mark.parametrize(
    ("fault", "causes"),
    [
        ("grammar-not-rolled-back", ("was not rolled back after a rejection",)),
        ("grammar-one-mask-per-step", ("one mask is used for all its positions",)),
        ("grammar-mask-one-late", ("one position late",)),
        ("grammar-zeros-for-others", ("nothing is allowed to requests without a constraint",)),
        ("grammar-end-missed", ("nobody notices that the constraint is complete",)),
    ],
)
@pytest.mark.parametrize("seed", [0, 3])
def test_the_cause_is_named(fault: str, causes: Sequence[str], seed: int) -> None:
    """The one that fits all findings; or two, where no place tells them apart."""
    (result,) = run_checks(FAULTS[fault].make(), ids=[CHECK], seed=seed).results

    assert all(cause in result.findings[0].likely_cause for cause in causes)


def test_in_the_cycle_no_word_is_allowed_in_two_states_that_follow_each_other() -> None:
    """So that a state that is off by one forbids every right token."""
    cycle = automata(range(4, 32))["a cycle"]

    for state in range(6):
        assert not cycle.allowed(state) & cycle.allowed((state + 1) % 6)
        assert not cycle.allowed(state) & cycle.allowed((state + 2) % 6)
