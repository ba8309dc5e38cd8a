"""Laws of whole sequences, and how far what was emitted, completed by the target, is from the target."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from specverify.core.errors import UsageError
from specverify.laws.steps import Law
from specverify.laws.tree import Conditional

Outcome = TypeVar("Outcome")

# Laws come from enumeration or closed forms; a sum further from 1 means that outputs are missing.
_TOTAL_TOLERANCE = 1e-4
# Sums of some thousand float64 products of probabilities agree to far better than this.
_EXACT = 1e-12


@dataclass(frozen=True, eq=False)
class Distance:
    """How far an emitted law, completed by the target, is from the target's sequence law.

    tv: total variation at the full horizon. impossible_mass: probability of emitting a token that the target forbids.
    worst_prefix: the emitted prefix that contributes most.
    observed, wanted: law of the next token after that prefix, [vocab], as emitted and as the target has it.
    first_prefix: the shortest prefix that fails as badly as a tenth of the
      worst (None where the law is exact): where to start reading.
    """

    tv: float
    impossible_mass: float
    worst_prefix: tuple[int, ...]
    observed: NDArray[np.float64]
    wanted: NDArray[np.float64]
    first_prefix: tuple[int, ...] | None


def sequence_law(
    target: Conditional, length: int, *, eos_token_ids: Collection[int] = (), prefix: tuple[int, ...] = ()
) -> Law:
    """The target's law over sequences of that length; a sequence ends early with an end token, which it includes.

    prefix: tokens after which the sequence starts; it is not part of the keys. Cost: vocab ** length.
    """
    if length < 0:
        raise UsageError(f"length is {length}; give 0 or more tokens")
    law: Law = {(): 1.0}
    for _ in range(length):
        longer: Law = {}
        for tokens, probability in law.items():
            if tokens and tokens[-1] in eos_token_ids:
                longer[tokens] = probability
                continue
            row = target(prefix + tokens)
            for token in np.flatnonzero(row):
                longer[(*tokens, int(token))] = probability * float(row[token])
        law = longer
    return law


def total_variation(law: Mapping[Outcome, float], other: Mapping[Outcome, float]) -> float:
    """Half the sum of absolute differences between two laws."""
    return 0.5 * math.fsum(abs(law.get(key, 0.0) - other.get(key, 0.0)) for key in law.keys() | other.keys())


def completed_distance(
    law: Mapping[tuple[int, ...], float], target: Conditional, *, prefix: tuple[int, ...] = ()
) -> Distance:
    """Distance of an emitted law from the target, after completing every output with tokens from the target.

    law: emitted tuple -> probability, summing to 1. prefix: tokens before the emitted ones.
    Outputs are put in a trie; every node carries R, the completed mass of its region over the target's mass. Regions
    that no output enters keep their parent's R, so the cost is linear in distinct outputs whatever the horizon.
    A prefix s is lossless iff the next token, among calls that emit s and go on, follows target(. | s).

    Raises UsageError for an empty law, negative or NaN probabilities, or a sum other than 1.
    """
    _check_law(law)
    children: dict[tuple[int, ...], dict[int, float]] = {}
    ended: dict[tuple[int, ...], float] = {}
    for output, probability in law.items():
        if probability == 0.0:
            continue
        ended[output] = ended.get(output, 0.0) + probability
        for i in range(len(output)):
            node = children.setdefault(output[:i], {})
            node[output[i]] = node.get(output[i], 0.0) + probability

    # Target probability of a prefix; forbidden prefixes are left out with all below them.
    reach: dict[tuple[int, ...], float] = {(): 1.0}
    ratio: dict[tuple[int, ...], float] = {(): ended.get((), 0.0)}
    differences: list[float] = [abs(ratio[()] - 1.0)] if () not in children else []
    impossible = 0.0
    for parent in sorted(children, key=len):
        if parent not in reach:
            continue
        row = target(prefix + parent)
        expanded = 0.0
        for token, mass in children[parent].items():
            child = (*parent, token)
            wanted = _probability(row, token, child)
            if wanted * reach[parent] <= 0.0:
                impossible += mass
                differences.append(mass)
                continue
            expanded += wanted
            reach[child] = reach[parent] * wanted
            ratio[child] = ratio[parent] + ended.get(child, 0.0) / reach[child]
            if child not in children:
                differences.append(reach[child] * abs(ratio[child] - 1.0))
        differences.append(reach[parent] * max(0.0, float(row.sum()) - expanded) * abs(ratio[parent] - 1.0))
    failures = {node: _local_failure(children[node], target(prefix + node)) for node in children if node in reach}
    worst = max(failures, key=lambda node: (failures[node], -len(node)), default=())
    row = target(prefix + worst)
    mass = math.fsum(children.get(worst, {}).values())
    observed = np.zeros_like(row)
    for token, probability in children.get(worst, {}).items():
        if 0 <= token < len(observed):
            observed[token] = probability / mass
    largest = failures.get(worst, 0.0)
    failing = [node for node, failure in failures.items() if failure > max(0.1 * largest, _EXACT)]
    return Distance(
        tv=0.5 * math.fsum(differences),
        impossible_mass=impossible,
        worst_prefix=worst,
        observed=observed,
        wanted=row,
        first_prefix=min(failing, key=lambda node: (len(node), node)) if failing else None,
    )


def _local_failure(children: Mapping[int, float], row: NDArray[np.float64]) -> float:
    """Total variation between the next token's law here and the target's row, weighted by how often one gets here."""
    mass = math.fsum(children.values())
    emitted = np.fromiter(children.keys(), dtype=np.int64, count=len(children))
    probabilities = np.fromiter(children.values(), dtype=np.float64, count=len(children))
    is_known = (emitted >= 0) & (emitted < len(row))
    wanted = np.where(is_known, row[np.where(is_known, emitted, 0)], 0.0)
    return 0.5 * float(np.abs(probabilities - mass * wanted).sum() + mass * max(0.0, 1.0 - wanted.sum()))


def _probability(row: NDArray[np.float64], token: int, path: tuple[int, ...]) -> float:
    """The token's target probability; a token outside the vocabulary (padding, -1) is impossible."""
    if not isinstance(token, (int, np.integer)):
        raise UsageError(f"emitted tuple begins {path}; tokens must be integers, got {type(token).__name__}")
    return float(row[token]) if 0 <= token < len(row) else 0.0


def _check_law(law: Mapping[tuple[int, ...], float]) -> None:
    for output, probability in law.items():
        if not probability >= 0.0:
            raise UsageError(f"the law gives {output} the probability {probability}; probabilities are 0 or more")
    total = math.fsum(law.values())
    if not abs(total - 1.0) <= _TOTAL_TOLERANCE:
        raise UsageError(f"the law's probabilities sum to {total:.6g}; give a complete law, which sums to 1")
