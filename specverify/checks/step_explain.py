"""Turns the wrong law of a step into a finding: smallest case, observed beside wanted, accepted and rejected apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from specverify.checks.step_enumerate import StepResult
from specverify.checks.step_subject import Joint, emitted_law
from specverify.core.outcomes import Finding, Table
from specverify.laws.diagnosis import Fit, Observation, most_likely_mistake
from specverify.laws.residual import residual

MAX_COLUMNS = 8
# Shares of a law that print as the same three digits are called equal.
_PRINTED = 5e-4
# Differences below this are float64 sums in another order.
_DUST = 1e-12

_GREEDY = "it always emits the target's likeliest token. If it is meant for temperature 0, say so: is_greedy=True."


def law_finding(
    result: StepResult, *, not_noise: str, likely_cause: str, num_samples: int = 0, others: str = "",
    prefix: tuple[int, ...] | None = None,
) -> Finding:  # fmt: skip
    """The finding for one scenario whose emitted law is not the target's.

    not_noise: why neither luck nor rounding explains it. num_samples: number of steps where the law was sampled.
    others: what else failed. prefix: after which emitted tokens to look; by default where the law first goes wrong.
    """
    scenario, distance = result.scenario, result.distance
    joint = _of_draft(result.joint, result.draft_token_ids)
    if prefix is None:
        prefix = distance.first_prefix if distance.first_prefix is not None else distance.worst_prefix
    observed, mass = next_law(joint, prefix, scenario.vocab_size)
    wanted = scenario.target(prefix)
    local = 0.5 * float(np.abs(observed - wanted).sum())
    note = f"{num_samples:,} steps" if num_samples else ""
    return Finding(
        headline=_headline(result, prefix),
        table=_table(result, prefix, observed, wanted, local, note),
        not_noise=not_noise,
        where=[*_split(joint, result, prefix), *([others] if others else [])],
        likely_cause=likely_cause,
        details={
            "scenario": scenario.name, "vocab_size": scenario.vocab_size, "num_draft_tokens": scenario.num_draft_tokens,
            "prefix": list(prefix), "observed": observed.tolist(), "wanted": wanted.tolist(), "prefix_mass": mass,
            "total_variation": distance.tv, "impossible_mass": distance.impossible_mass,
            "draft_token_ids": list(result.draft_token_ids) if result.draft_token_ids is not None else None,
        },
    )  # fmt: skip


def next_law(joint: Joint, prefix: tuple[int, ...], vocab_size: int) -> tuple[NDArray[np.float64], float]:
    """Law of the next token among calls that emit the prefix and go on, and how likely those are."""
    mass = np.zeros(vocab_size)
    for (_, emitted, _), probability in joint.items():
        if len(emitted) > len(prefix) and emitted[: len(prefix)] == prefix and 0 <= emitted[len(prefix)] < vocab_size:
            mass[emitted[len(prefix)]] += probability
    total = float(mass.sum())
    return (mass / total if total > 0.0 else mass), total


def _of_draft(joint: Joint, tokens: tuple[int, ...] | None) -> Joint:
    """The joint law given one draft; as it is where the draft is part of the law."""
    if tokens is None:
        return joint
    chosen = {key: probability for key, probability in joint.items() if key[0] == tokens}
    total = sum(chosen.values())
    return {key: probability / total for key, probability in chosen.items()}


def _headline(result: StepResult, prefix: tuple[int, ...]) -> str:
    scenario = result.scenario
    text = f"Smallest case found: {scenario.size}"
    if scenario.neighbour is not None:
        text += f", row {scenario.row} of a batch of two"
    if result.draft_token_ids is not None:
        text += f", draft {list(result.draft_token_ids)}"
    return text + (f"; next token after {list(prefix)}." if prefix else "; first token emitted.")


def _table(
    result: StepResult, prefix: tuple[int, ...], observed: NDArray[np.float64], wanted: NDArray[np.float64],
    local: float, note: str,
) -> Table:  # fmt: skip
    scenario = result.scenario
    difference = observed - wanted
    columns: Sequence[int] = range(scenario.vocab_size)
    if scenario.vocab_size > MAX_COLUMNS:
        columns = sorted(np.argsort(-np.abs(difference), kind="stable")[:MAX_COLUMNS].tolist())
    rows = [["token", *[str(token) for token in columns], ""]]
    if len(prefix) < scenario.num_draft_tokens and scenario.is_told and scenario.is_chain:
        rows.append(["draft law", *_numbers(scenario.draft(prefix)[list(columns)]), ""])
    rows.append(["target law", *_numbers(wanted[list(columns)]), ""])
    rows.append(["emitted", *_numbers(observed[list(columns)]), note])
    signed = [three_digits(float(difference[token]), signed=True) for token in columns]
    rows.append(["emitted - target", *signed, f"total variation {three_digits(local)}"])
    return Table(rows)


def _split(joint: Joint, result: StepResult, prefix: tuple[int, ...]) -> list[str]:
    """What came out where the draft token was accepted, and where it was rejected."""
    scenario = result.scenario
    slot = len(prefix)
    if slot >= scenario.num_draft_tokens or not scenario.is_chain:
        return []
    accepted, rejected = np.zeros(scenario.vocab_size), np.zeros(scenario.vocab_size)
    for (drafted, emitted, count), probability in joint.items():
        if drafted[:slot] != prefix or emitted[:slot] != prefix or len(emitted) <= slot:
            continue
        token = emitted[slot]
        if not 0 <= token < scenario.vocab_size:
            continue
        is_accepted = count > slot if count is not None else len(emitted) > slot + 1 or token == drafted[slot]
        (accepted if is_accepted else rejected)[token] += probability
    total = float(accepted.sum() + rejected.sum())
    if total == 0.0 or not scenario.is_told:
        return []
    draft, target = scenario.draft(prefix), scenario.target(prefix)
    overlap = np.minimum(draft, target)
    # Without a count, a rejected token that is drawn again cannot be told from an accepted one.
    is_counted = all(count is not None for _, _, count in joint)
    kept, replaced = ("accepted", "rejected") if is_counted else ("emitted as drafted", "emitted otherwise")
    width = max(len(kept), len(replaced))
    lines = ["Split by what happened to the draft token"]
    lines.append(_share(kept.ljust(width), accepted, total, overlap, "min(draft, target)"))
    lines.append(_share(replaced.ljust(width), rejected, total, residual(draft, target), "the residual"))
    return lines


def _share(what: str, mass: NDArray[np.float64], total: float, wanted: NDArray[np.float64], name: str) -> str:
    share = float(mass.sum()) / total
    if share == 0.0:
        return f"  {what} never"
    law, right = mass / mass.sum(), wanted / wanted.sum() if wanted.sum() > 0.0 else wanted
    off = float(np.abs(law - right).max())
    if off < _PRINTED:
        how = "as it should" if off < _DUST else f"to within {off:.0e}"
        return f"  {what}  {three_digits(share)} of steps   follows {name}, {how}"
    return f"  {what}  {three_digits(share)} of steps   {_tokens(law)}; should be {_tokens(right)}"


def _tokens(law: NDArray[np.float64]) -> str:
    """The likeliest tokens of a law: 'always token 0', or 'tokens 0, 1 at .750, .250'."""
    order = [int(token) for token in np.argsort(-law, kind="stable")[:3] if law[token] > _PRINTED]
    if len(order) == 1 and law[order[0]] > 1.0 - _PRINTED:
        return f"always token {order[0]}"
    return f"tokens {', '.join(map(str, order))} at {', '.join(_numbers(law[order]))}"


def _numbers(values: Iterable[float]) -> list[str]:
    return [three_digits(float(value)) for value in values]


def three_digits(value: float, *, signed: bool = False) -> str:
    """.098, +.098, or 3.2e-06 where three decimals would read .000 for something that is not zero."""
    value = 0.0 if abs(value) < _DUST else value
    if value != 0.0 and abs(value) < _PRINTED:
        return f"{value:+.1e}" if signed else f"{value:.1e}"
    text = f"{value:+.3f}" if signed and abs(value) >= _PRINTED else f"{value:.3f}"
    return text.replace("0.", ".", 1) if abs(value) < 1.0 else text


# A prediction for every case is asked for; more cases than this refute nothing that these leave standing.
_MOST_CASES = 8


def likely_cause(results: Sequence[StepResult], shown: StepResult, *, tolerance: float) -> str:
    """One sentence naming the only mistake that predicts every case, right or wrong, and how well it fits.

    results: all cases that were run. shown: the case that the report shows. tolerance: as for the law itself.
    """
    if not shown.scenario.is_told or not shown.scenario.is_chain:
        # The named mistakes are those of a chain with a draft law.
        return _GREEDY if all(map(_takes_the_likeliest, results)) else ""
    others = [one for one in results if one is not shown and one.scenario.neighbour is None and one.scenario.is_chain]
    observations = [_observation(result) for result in [shown, *others][:_MOST_CASES]]
    fit = most_likely_mistake(observations, tolerance=tolerance)
    if fit is None:
        return ""
    text = f"the verifier {fit.sentence}. That predicts {_predicted(fit, shown)} for the case above"
    if shown.num_samples:
        text += f", which fits (chi-square p-value {fit.p_value:.2g})."
    else:
        text += f"; all {len(observations)} cases compared fit to {max(fit.distance, 1e-16):.0e}."
    return f"{text} None of the {fit.num_refuted} other known mistakes fits."


def _takes_the_likeliest(result: StepResult) -> bool:
    """Whether every emitted token is the target's likeliest, as at temperature 0."""
    return all(
        token == int(np.argmax(result.scenario.target(emitted[:place])))
        for _, emitted, _ in result.joint
        for place, token in enumerate(emitted)
    )


def _observation(result: StepResult) -> Observation:
    scenario, law = result.scenario, emitted_law(result.joint)
    if result.num_samples:
        law = {emitted: float(round(probability * result.num_samples)) for emitted, probability in law.items()}
    return Observation(law, scenario.draft, scenario.target, scenario.num_draft_tokens)


def _predicted(fit: Fit, shown: StepResult) -> str:
    """The predicted law of the token that the report shows, as a row of numbers."""
    law = _observation(shown).predicted(fit.mistake.rule)
    prefix = shown.distance.first_prefix or ()
    row, _ = next_law({((), emitted, None): probability for emitted, probability in law.items()}, prefix,
                      shown.scenario.vocab_size)  # fmt: skip
    order = np.argsort(-row, kind="stable")[:8]
    tokens = sorted(int(token) for token in order)
    if shown.scenario.vocab_size > len(tokens):
        return "the same law"
    return " ".join(three_digits(float(row[token])) for token in tokens)
