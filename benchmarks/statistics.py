"""What the statistics cost, and that they do not cry wolf.

    python benchmarks/statistics.py            both parts, about two minutes; writes benchmarks/statistics.md
    python benchmarks/statistics.py --runs 50  a quick look

Part 1: calls of a broken verify function until it is found, beside the least that any test could need.
Part 2: seeded runs of every statistical process on correct subjects; none may raise an alarm.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import chi2, ncx2

from specverify.laws.mistakes import MISTAKES
from specverify.laws.multi import multi_step_law
from specverify.laws.sequence import completed_distance, sequence_law
from specverify.laws.steps import Law, block_step, chain_step, point_mass_step, step_law
from specverify.laws.tree import ConditionalTree
from specverify.stats.budget import DEFAULT_ALPHA as ALPHA
from specverify.stats.chi_square import MIN_EXPECTED, ChiSquareDesign, pooled_bins, proven_threshold
from specverify.stats.design import POWER
from specverify.stats.pair import TUPLE_FEATURES, PairBetting
from specverify.stats.pit import PitStream
from specverify.stats.step import StepProcess

VOCAB_SIZE, NUM_DRAFT_TOKENS = 5, 2
REPEATS = 20
MOST_CALLS = 3_000_000
# Looks at the process come at sample sizes that grow by this factor: stopping times are read to about a tenth.
GROWTH = 1.1


def drawn(law: Law, count: int, rng: np.random.Generator) -> dict[tuple[int, ...], int]:
    probabilities = np.array(list(law.values()))
    counts = rng.multinomial(count, probabilities / probabilities.sum())
    return {output: int(seen) for output, seen in zip(law, counts, strict=True) if seen}


def divergence(law: Law, target: ConditionalTree) -> float:
    """Nats per call that the best possible bet on emitted tokens gains: sum of M(s, y) log(M(s, y) / M(s) target)."""
    mass: dict[tuple[int, ...], float] = {}
    going_on: dict[tuple[int, ...], float] = {}
    for output, probability in law.items():
        for length in range(len(output)):
            going_on[output[:length]] = going_on.get(output[:length], 0.0) + probability
            mass[output[: length + 1]] = mass.get(output[: length + 1], 0.0) + probability
    return math.fsum(
        probability * math.log(probability / (going_on[output[:-1]] * target(output[:-1])[output[-1]]))
        for output, probability in mass.items()
    )


def completed_law(law: Law, target: ConditionalTree, length: int) -> Law:
    result: Law = {}
    for output, probability in law.items():
        for tail, tail_probability in sequence_law(target, length - len(output), prefix=output).items():
            result[output + tail] = result.get(output + tail, 0.0) + probability * tail_probability
    return result


def chi_square_samples(
    wrong: NDArray[np.float64], right: NDArray[np.float64], threshold_of: Callable[[NDArray[np.float64]], float]
) -> float:
    """Samples of completed sequences at which chi-square passes the threshold with power .99 (noncentral)."""

    def lacking(log_samples: float) -> float:
        samples = math.exp(log_samples)
        bins = pooled_bins(right, int(samples), MIN_EXPECTED)
        if bins.max() < 1:
            return POWER
        expected = (samples * np.bincount(bins[bins >= 0], weights=right[bins >= 0])).astype(np.float64)
        seen = samples * np.bincount(bins[bins >= 0], weights=wrong[bins >= 0])
        shift = float(((seen - expected) ** 2 / expected).sum())
        return POWER - float(ncx2.sf(threshold_of(expected), len(expected) - 1, shift))

    high = math.log(1e14)
    return math.inf if lacking(high) > 0.0 else math.exp(brentq(lacking, math.log(64.0), high, xtol=0.01))


def stopping_times(law: Law, target: ConditionalTree, draft: ConditionalTree, start: float) -> NDArray[np.float64]:
    """Calls until the step process raises the alarm, over seeded repeats; inf where it had not by MOST_CALLS."""
    times = []
    for seed in range(REPEATS):
        rng = np.random.default_rng(seed)
        process = StepProcess(target, draft, NUM_DRAFT_TOKENS)
        aim = max(8.0, 0.3 * start)
        while process.log_e < -math.log(ALPHA) and aim < MOST_CALLS:
            process.update(drawn(law, max(1, int(aim) - process.num_calls), rng))
            aim *= GROWTH
        times.append(process.num_calls if process.log_e >= -math.log(ALPHA) else math.inf)
    return np.array(times, dtype=np.float64)


def power_table() -> list[str]:
    target = ConditionalTree(VOCAB_SIZE, 1)
    draft = target.draft(2)
    length = NUM_DRAFT_TOKENS + 1
    right_law = sequence_law(target, length)
    right = np.array(list(right_law.values()))
    columns = "mistake | TV | least possible | e-process, median | e-process, 19 of 20 | median / least"
    lines = [f"| {columns} | chi-square, asymptotic | chi-square, proven |", "|---|---|---|---|---|---|---|---|"]
    for mistake in MISTAKES:
        law = step_law(mistake.rule, draft, target, NUM_DRAFT_TOKENS)
        least = -math.log(ALPHA) / divergence(law, target)
        completed = completed_law(law, target, length)
        wrong = np.array([completed.get(output, 0.0) for output in right_law])
        asymptotic = chi_square_samples(wrong, right, lambda expected: float(chi2.isf(ALPHA, len(expected) - 1)))
        proven = chi_square_samples(wrong, right, lambda expected: proven_threshold(ALPHA, expected))
        times = np.sort(stopping_times(law, target, draft, least)) if least < MOST_CALLS else np.full(REPEATS, np.inf)
        median, late = float(np.median(times)), float(times[-2])
        ratio = "-" if math.isinf(median) else f"{median / least:.1f}"
        lines.append(
            f"| {mistake.name} | {completed_distance(law, target).tv:.2g} | {shown(least)} | {shown(median)} | "
            f"{shown(late)} | {ratio} | {shown(asymptotic)} | {shown(proven)} |"
        )
        print(lines[-1], flush=True)
    return lines


def shown(count: float) -> str:
    return f"{count:,.0f}" if count < 1e6 else ("never" if math.isinf(count) else f"{count:.1e}")


def correct_laws(target: ConditionalTree, draft: ConditionalTree) -> list[Law]:
    """What correct subjects emit: three rules on one draft, two trees of candidates."""
    return [step_law(rule, draft, target, NUM_DRAFT_TOKENS) for rule in (chain_step, block_step, point_mass_step)] + [
        multi_step_law(draft, target, (2, 2), with_replacement=with_replacement) for with_replacement in (True, False)
    ]


def step_run(law: Law, target: ConditionalTree, draft: ConditionalTree, rng: np.random.Generator) -> float:
    """Highest evidence over looks at 100, 200, ... 1,600 calls: watched all the time, as a user would."""
    process, highest = StepProcess(target, draft, NUM_DRAFT_TOKENS), -math.inf
    for count in (100, 100, 200, 400, 800):
        process.update(drawn(law, count, rng))
        highest = max(highest, process.log_e)
    return highest


def stream_run(law: Law, target: ConditionalTree, draft: ConditionalTree, rng: np.random.Generator) -> float:
    """The emitted tokens of 300 calls as one stream, by slot, with draft and previous rows."""
    process = PitStream(target.vocab_size, num_slots=NUM_DRAFT_TOKENS + 1)
    outputs = [output for output, count in drawn(law, 300, rng).items() for _ in range(count)]
    highest = -math.inf
    for index in np.array_split(rng.permutation(len(outputs)), 3):
        prefixes = [(outputs[i][:slot], outputs[i][slot]) for i in index for slot in range(len(outputs[i]))]
        nothing = np.full(target.vocab_size, np.nan)
        process.update(
            [token for _, token in prefixes],
            np.stack([target(prefix) for prefix, _ in prefixes]),
            rng=rng,
            slots=[len(prefix) for prefix, _ in prefixes],
            draft_laws=np.stack([draft(p) if len(p) < NUM_DRAFT_TOKENS else nothing for p, _ in prefixes]),
            previous_laws=np.stack([target(prefix[:-1]) if prefix else nothing for prefix, _ in prefixes]),
        )
        highest = max(highest, process.log_e, process.log_e_within(0.0))
    return highest


def pair_run(sequences: Law, rng: np.random.Generator) -> float:
    process, highest = PairBetting(TUPLE_FEATURES), -math.inf
    outputs, probabilities = list(sequences), np.array(list(sequences.values()))
    for _ in range(3):
        on, off = (rng.choice(len(outputs), 100, p=probabilities / probabilities.sum()) for _ in range(2))
        process.update([outputs[i] for i in on], [outputs[i] for i in off])
        highest = max(highest, process.log_e)
    return highest


def null_table(num_runs: int) -> list[str]:
    fixtures = []
    for seed in range(8):
        target = ConditionalTree(4, seed, specials=("zeros", "ties", "long-tail") if seed % 2 else ())
        draft = target.draft(100 + seed, specials=("disjoint", "near-equal", "equal") if seed % 2 else ())
        sequences = sequence_law(target, NUM_DRAFT_TOKENS + 1)
        design = ChiSquareDesign(np.array(list(sequences.values())), 1e-3, 0.1)
        fixtures.append((target, draft, correct_laws(target, draft), sequences, design))
    evidence: dict[str, list[float]] = {"step": [], "stream": [], "pairs": []}
    chi_alarms = 0
    for run in range(num_runs):
        target, draft, laws, sequences, design = fixtures[run % len(fixtures)]
        law = laws[(run // len(fixtures)) % len(laws)]
        rng = np.random.default_rng(10_000 + run)
        evidence["step"].append(step_run(law, target, draft, rng))
        evidence["stream"].append(stream_run(law, target, draft, rng))
        evidence["pairs"].append(pair_run(sequences, rng))
        chi_alarms += design.judge(rng.multinomial(design.num_samples, design.law)).is_alarm
    lines = [
        "| process | runs | alarms at 1e-9 | ever above 1/.001 | ever above 1/.01 | ever above 1/.1 | highest log e |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, values in evidence.items():
        alarms = [sum(value >= -math.log(alpha) for value in values) for alpha in (1e-9, 1e-3, 1e-2, 0.1)]
        lines.append(f"| {name} | {num_runs:,} | {' | '.join(map(str, alarms))} | {max(values):.1f} |")
    lines.append(f"| chi-square, planned at 1e-3 | {num_runs:,} | - | {chi_alarms} | - | - | - |")
    print("\n".join(lines), flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2_000, help="seeded runs on correct subjects")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".md"))
    options = parser.parse_args()
    started = time.perf_counter()
    powers = power_table()
    between = time.perf_counter()
    nulls = null_table(options.runs)
    ended = time.perf_counter()
    options.output.write_text(
        f"""# Statistics: samples to detect, and false alarms

Written by `python benchmarks/statistics.py`; {platform.machine()}, Python {platform.python_version()},
numpy {np.__version__}; {between - started:.0f} s and {ended - between:.0f} s.

## Verify calls until a mistake is found

Vocabulary {VOCAB_SIZE}, {NUM_DRAFT_TOKENS} draft tokens, draft and target .4 apart at every prefix, alpha 1e-9. TV:
total variation of the completed law. *Least possible*: log(1/alpha) / KL (Chernoff-Stein), for a test that knows the
mistake beforehand, looks at the emitted tokens and is right half the time. *e-process*: `StepProcess`, which knows
nothing, watched continuously, {REPEATS} seeded repeats. *Chi-square*: a fixed sample of completed sequences
({VOCAB_SIZE**3} cells) with power .99, once with the asymptotic threshold, whose real alarm rate is not known at 1e-9,
once with the proven one. "never": not within {shown(MOST_CALLS)} calls; such mistakes are left to exact enumeration.

{chr(10).join(powers)}

## Runs on correct subjects

Each run takes one of 40 correct subjects (five lossless methods on eight pairs of laws, half of them with zeros, ties,
disjoint and equal rows) and watches every process while it grows; what counts is the highest evidence at any look.
By Ville's inequality a process may exceed 1/a in at most a share a of the runs.

{chr(10).join(nulls)}
"""
    )
    print(f"wrote {options.output}; {ended - started:.0f} s")


if __name__ == "__main__":
    main()
