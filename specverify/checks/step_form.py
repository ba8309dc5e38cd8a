"""The form of single verify calls: an accepted prefix and at most one more token, nothing impossible, inputs intact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.checks.registry import CheckContext, Exercised, check
from specverify.checks.step_scenarios import scenarios_for
from specverify.checks.step_subject import crash
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind
from specverify.core.types import VerifyInput, VerifyOutput, WholeStepInput
from specverify.exact.program import NativeSource

# Ordinary calls of each scenario; what is looked for is impossible, so one sighting is enough.
_CALLS = 24


@check(
    "tokens.step-form",
    claim="A verify call returns the accepted draft prefix and at most one token more, none of them impossible, and "
    "leaves its inputs alone.",
    needs={Capability.VERIFY_CALLS},
    kind=Kind.EXACT,
    exercised_by=Exercised("verify-calls"),
    catches=(
        "verify-inputs-changed", "verify-kept-after-rejection", "verify-always-accepts", "verify-count-one-more",
        "verify-bonus-behind-a-hole",
    ),
    source="arXiv 2211.17192, algorithm 1; vllm-project/vllm-ascend#2881 (target law changed in place)",
    per_call=True,
)  # fmt: skip
def step_form(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Every single call is held against four rules that no lossless method breaks.

    Tokens are in the vocabulary; all but the last are the draft's own, in order; the reported count of accepted
    tokens agrees with the tokens; every token is possible under the target law of its position. And the arrays
    handed in are the same afterwards: the next step uses them again.
    """
    for case, output, changed, label in _calls(subject, context):
        context.exercised("verify-calls")
        most = case.num_draft_tokens if isinstance(case, WholeStepInput) else len(case.draft_token_ids)
        if len(output.token_ids) <= most and output.token_ids != case.draft_token_ids:
            context.exercised("rejections")
        problems = broken_rules(case, output, changed, vocab_size=np.asarray(case.target_probs).shape[-1])
        if problems:
            yield _finding(case, output, problems, label)
            return
    seen = context.counters
    context.worth(f"{seen['verify-calls']} calls, {seen['rejections']} of them with a rejection")


def _calls(subject: Any, context: CheckContext) -> Iterator[tuple[VerifyInput, VerifyOutput, tuple[str, ...], str]]:
    """Calls that have happened, or calls made here on every scenario."""
    if hasattr(subject, "calls"):
        for call in subject.calls:
            yield call.case, call.output, call.changed, ""
        return
    for number, scenario in enumerate(scenarios_for(subject)):
        generator = context.streams.generator("tokens.step-form", number)
        choose = partial(_chosen, generator)
        for _ in range(_CALLS):
            cases = scenario.batch(scenario.drawn(choose))
            source = NativeSource(int(generator.integers(2**62)))
            place = scenario.row if len(cases) > 1 else 0
            try:
                outputs, changed = subject.observed_call(cases, source)
            except Exception as error:
                raise crash(subject, scenario, error) from error
            yield cases[place], outputs[place], changed, f"{scenario.name}: {scenario.size}"


def _chosen(generator: np.random.Generator, law: NDArray[np.float64]) -> int:
    return int(generator.choice(len(law), p=law))


def broken_rules(case: VerifyInput, output: VerifyOutput, changed: Sequence[str], *, vocab_size: int) -> list[str]:
    """What is wrong with one call, a sentence each; empty where nothing is."""
    if isinstance(case, WholeStepInput):
        return _broken_rules_of_step(case, output, vocab_size)
    drafts, tokens = case.draft_token_ids, output.token_ids
    nodes = _accepted_nodes(case, tokens)
    problems = []
    outside = [token for token in tokens if not 0 <= token < vocab_size]
    if outside:
        problems.append(f"Token {outside[0]} is not in the vocabulary of {vocab_size}.")
    if len(tokens) > len(drafts) + 1:
        problems.append(f"{len(tokens)} tokens came back for {len(drafts)} drafts; at most {len(drafts) + 1} can.")
    elif len(nodes) < len(tokens) - 1:
        wanted = sorted(token for _, token in _children(case, nodes[-1] if nodes else -1))
        meant = f"the draft's {wanted[0]}" if len(wanted) == 1 else f"among the draft's {wanted}"
        problems.append(
            f"Token {tokens[len(nodes)]} at position {len(nodes)} is not {meant}, yet more tokens follow it."
        )
    problems += _count_problems(case, output, nodes)
    target = np.asarray(case.target_probs)
    # Row node + 1 of the target laws follows draft token `node`; -1 is the committed text.
    for token, position, row in zip(tokens, range(len(tokens)), [0, *(node + 1 for node in nodes)], strict=False):
        if row < len(target) and 0 <= token < vocab_size and target[row, token] == 0.0:
            problems.append(f"Token {token} at position {position} has target probability 0.")
            break
    problems += [f"The call changed its argument {name} in place." for name in changed]
    return problems


def _broken_rules_of_step(case: WholeStepInput, output: VerifyOutput, vocab_size: int) -> list[str]:
    """What can be said where the draft is not known: how many tokens, and whether each is possible."""
    tokens, most = output.token_ids, case.num_draft_tokens + 1
    problems = []
    if len(tokens) > most:
        problems.append(f"{len(tokens)} tokens came back for {most - 1} drafts; at most {most} can.")
    for position, token in enumerate(tokens):
        if not 0 <= token < vocab_size:
            problems.append(f"Token {token} is not in the vocabulary of {vocab_size}.")
            break
        if case.target is not None and case.target(tokens[:position])[token] == 0.0:
            problems.append(f"Token {token} at position {position} has target probability 0.")
            break
    return problems


def _children(case: VerifyInput, node: int) -> list[tuple[int, int]]:
    """(place, token) of the draft tokens that may follow a node."""
    parents = case.parents if case.parents is not None else range(-1, len(case.draft_token_ids) - 1)
    return [(place, case.draft_token_ids[place]) for place, parent in enumerate(parents) if parent == node]


def _accepted_nodes(case: VerifyInput, tokens: tuple[int, ...]) -> list[int]:
    """Places of the draft tokens that the emitted ones can be, from the root on, as far as they are any.

    Siblings may hold the same token; all of them are followed, and one stands for them.
    """
    nodes: list[int] = []
    frontier = [-1]
    for token in tokens:
        frontier = [place for node in frontier for place, drafted in _children(case, node) if drafted == token]
        if not frontier:
            break
        nodes.append(frontier[0])
    return nodes


def _count_problems(case: VerifyInput, output: VerifyOutput, nodes: list[int]) -> list[str]:
    drafts, count, tokens = case.draft_token_ids, output.num_accepted, output.token_ids
    if count is None:
        return []
    if not 0 <= count <= len(drafts):
        return [f"It reports {count} accepted of {len(drafts)} drafts."]
    if len(nodes) < min(count, len(tokens)) or len(tokens) < count:
        return [f"It reports {count} accepted, but the tokens do not begin with the first {count} drafts."]
    if len(tokens) not in (count, count + 1):
        return [f"It reports {count} accepted, but {len(tokens)} tokens came back; {count} or {count + 1} would fit."]
    return []


def _finding(case: VerifyInput, output: VerifyOutput, problems: list[str], label: str) -> Finding:
    target = np.asarray(case.target_probs)
    where = [f"draft     {list(case.draft_token_ids)}", f"returned  {list(output.token_ids)}"]
    if output.num_accepted is not None:
        where.append(f"accepted  {output.num_accepted} by its own count")
    return Finding(
        headline=f"One call ({label})." if label else "A live call.",
        not_noise="This is a single call, so nothing here is a matter of luck.",
        where=(*problems, *where),
        details={
            "draft_token_ids": list(case.draft_token_ids), "token_ids": list(output.token_ids),
            "target_probs": target.tolist(), "problems": problems,
        },
    )  # fmt: skip
