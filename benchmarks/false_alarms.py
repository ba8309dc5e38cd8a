"""Statistical checks on correct subjects, 2,000 seeded runs: how often they cried wolf, and how near they came.

    python benchmarks/false_alarms.py                          about 2,000 runs; writes benchmarks/false_alarms.md
    python benchmarks/false_alarms.py --runs 100 --full-rounds 0   a quick look

A round takes each correct subject of the self-test once: with a root seed of its own, engines with prompts of their
own, verify functions also with a generator hidden inside, so that nothing can be enumerated and all is sampled. The
checks run as users run them, by run_checks, with the default budget. Finished runs are kept in a .jsonl file next to
the table; started again, only the missing ones are made.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from false_alarms_page import DEAR, page

from specverify.adapters.resolve import as_subject
from specverify.catalogue import all_checks
from specverify.checks.registry import Check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import CheckResult, Kind, Outcome
from specverify.core.randomness import Streams
from specverify.faults.engine_parts import DeclaredLossy, DeclaresDraftSampling, OwnDrafterOnly
from specverify.faults.fault import CorrectSubject
from specverify.runner import num_statistical, run_checks
from specverify.selftest import specimens
from specverify.stats.budget import DEFAULT_ALPHA

# Of a verify function with nothing hidden these are enumerated: no luck is involved, and once is as good as often.
ENUMERATED = frozenset({"lossless.step-law", "random.draws-independent"})
HIDDEN = " (hidden generator)"
_FIRST_WORD, _LAST_WORD = 4, 31
GENERATORS: Mapping[str, Callable[[int], Any]] = {"tokenwise-python": random.Random}
# Nothing that torch draws can be hidden from the enumeration.
NEVER_HIDDEN = frozenset({"tokenwise-torch-batched", "reference-tree-rejection"})


def statistical() -> list[Check]:
    return [one for one in all_checks() if one.kind is Kind.STATISTICAL]


def names() -> list[str]:
    """Subjects, by the name of their specimen; tokenizers have no statistical checks and are left out."""
    found = []
    for one in specimens():
        if isinstance(one, CorrectSubject):
            subject = as_subject(one.make(), one.name)
            if num_statistical(statistical(), [subject]):
                found.append(one.name)
                if Capability.VERIFY in subject.capabilities and one.name not in NEVER_HIDDEN:
                    found.append(one.name + HIDDEN)
    return found


def made(name: str, seed: int) -> Any:
    """The subject for this run: own randomness for every seed, own prompts too if it is an engine."""
    one = next(one for one in specimens() if one.name == name.removesuffix(HIDDEN))
    found = one.make()
    if name.endswith(HIDDEN):
        return as_subject(with_hidden_generator(found, GENERATORS.get(one.name, np.random.default_rng), seed), name)
    subject = as_subject(found, name)
    if Capability.GENERATE not in subject.capabilities:
        return subject
    if isinstance(subject, DeclaredLossy):
        inner = with_prompts(subject._subject, seed)
        return DeclaredLossy(inner, reason=subject.lossy_by_design, distance=subject.lossy_distance)
    if isinstance(subject, OwnDrafterOnly):
        return OwnDrafterOnly(with_prompts(subject._subject, seed))
    if isinstance(subject, DeclaresDraftSampling):
        return DeclaresDraftSampling(with_prompts(subject._subject, seed), subject.draft_sampling)
    return with_prompts(subject, seed)


def with_hidden_generator(function: Any, make: Callable[[int], Any], seed: int) -> Callable[..., Any]:
    """The same verify function, drawing from a generator that nobody outside can reach."""
    signature = inspect.signature(function)
    parameter = next(name for name in signature.parameters if name in ("rng", "generator", "uniforms"))
    kept = signature.replace(parameters=[one for one in signature.parameters.values() if one.name != parameter])
    generator = make(seed)

    def verify(*args: Any, **kwargs: Any) -> Any:
        given = kept.bind(*args, **kwargs).arguments
        drawn = generator.random(len(given["draft_token_ids"])) if parameter == "uniforms" else generator
        return function(**given, **{parameter: drawn})

    verify.__signature__ = kept  # type: ignore[attr-defined]
    return verify


def with_prompts(subject: Any, seed: int) -> Any:
    """The engine asked after other prompts of the same lengths; for prompt lookup such that repeat themselves."""
    generator = Streams(seed).generator("benchmark", "prompts")
    lengths = [len(prompt) for prompt in subject.scenarios[0].prompts]
    prompts = []
    for length in lengths:
        words = tuple(int(word) for word in generator.integers(_FIRST_WORD, _LAST_WORD + 1, size=length - 1))
        half = words[: (length - 1) // 2 + 1]
        prompts.append((1, *half, *half[: length - 1 - len(half)]) if subject.proposer == "n-gram" else (1, *words))
    scenarios = tuple(replace(one, prompts=tuple(prompts)) for one in subject.scenarios)
    return replace(subject, prompts=tuple(prompts), own_scenarios=scenarios)


def applicable(subject: Any, *, is_full: bool) -> list[Check]:
    """The statistical checks that this subject gets in a round."""
    checks = [one for one in statistical() if not one.missing(subject.capabilities)]
    if getattr(subject, "lossy_by_design", ""):
        checks = [one for one in checks if not one.claims_losslessness]
    if subject.name.endswith(HIDDEN):
        # Its fixed sample of ordinary calls would be the same run as without hiding.
        return [one for one in checks if one.id in ENUMERATED]
    return [one for one in checks if is_full or one.id not in {*ENUMERATED, DEAR}]


def run(name: str, round_number: int, effort: float, check_ids: Sequence[str]) -> list[dict[str, Any]]:
    """One subject in one round: a record for each check."""
    torch.set_num_threads(1)
    seed = Streams(2026).integer("benchmark", name, round_number) % 2**31
    subject = made(name, seed)
    shares = num_statistical(statistical(), [subject])
    started = time.process_time()
    report = run_checks(subject, ids=check_ids, seed=seed, effort=effort, alpha=DEFAULT_ALPHA, alpha_shares=shares)
    line = -math.log(DEFAULT_ALPHA / shares)
    cpu = time.process_time() - started
    return [
        {
            "check": result.check_id, "subject": name, "round": round_number, "seed": seed, "effort": effort,
            "outcome": result.outcome.name, "reason": told(result), "seconds": result.seconds, "unit_cpu": cpu,
            **reached(result, line),
        }
        for result in report.results
        if result.outcome is not Outcome.UNSUPPORTED
    ]  # fmt: skip


def told(result: CheckResult) -> str:
    if result.findings:
        return result.findings[0].headline
    return "" if result.outcome is Outcome.PASSED else result.reason


def reached(result: CheckResult, line: float) -> dict[str, float | str]:
    """The evidence that was reached and the share of the alarm line that it makes up, where the check tells."""
    figures = result.figures
    if figures.get("mode") in ("enumeration", "lattice"):
        return {"exact": 1.0}
    if "cases" in figures:
        cases = [case for case in figures["cases"] if "log_e" in case]
        worst = max(cases, key=lambda case: case["log_e"] / case["log_limit"], default=None)
        return {} if worst is None else {"log_e": worst["log_e"], "share": worst["log_e"] / worst["log_limit"]}
    if "threshold" in figures:
        return {"share": figures.get("statistic", figures.get("chi_square")) / figures["threshold"]}
    if figures.get("claimed_tv"):
        return {"share": figures["certified_tv"] / figures["claimed_tv"]}
    log_e = min(figures["log_e_by_rule"].values()) if "log_e_by_rule" in figures else figures.get("log_e")
    if log_e is not None:
        return {"log_e": log_e, "share": log_e / line}
    return {"exact": 1.0} if result.check_id == "random.draws-independent" and "exact joint" in result.worth else {}


Todo = tuple[str, int, float, tuple[str, ...]]
"""Subject, round, effort, checks."""


def missing(options: argparse.Namespace, finished: Sequence[Mapping[str, Any]]) -> Iterator[Todo]:
    """Whole rounds until as many runs as asked for have sampled, without the runs that are there already."""
    is_finished = {(record["subject"], record["round"], record["check"]) for record in finished}
    subjects = [made(name, 0) for name in names()]
    total, number = 0, 0
    while total < options.runs:
        is_full = number < options.full_rounds
        for subject in subjects:
            ids = [one.id for one in applicable(subject, is_full=is_full)]
            total += len(ids) if subject.name.endswith(HIDDEN) else sum(one not in ENUMERATED for one in ids)
            left = tuple(one for one in ids if (subject.name, number, one) not in is_finished)
            if left:
                yield subject.name, number, 1.0 if is_full else options.effort, left
        number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2_000, help="sampling runs to make at least, in whole rounds")
    parser.add_argument("--full-rounds", type=int, default=2, help=f"first rounds, at effort 1 and with {DEAR}")
    parser.add_argument("--effort", type=float, default=0.25, help="amount of sampling in later rounds")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".md"))
    parser.add_argument("--keep", type=Path, default=None, help="finished runs (default: .jsonl beside the output)")
    options = parser.parse_args()
    kept = options.keep or options.output.with_suffix(".jsonl")
    records = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    todo = list(missing(options, records))
    started = time.perf_counter()
    context = multiprocessing.get_context("fork")
    with kept.open("a") as file, ProcessPoolExecutor(options.processes, mp_context=context) as pool:
        futures = [pool.submit(run, *one) for one in todo]
        for done, future in enumerate(as_completed(futures), 1):
            found = future.result()
            records += found
            file.writelines(json.dumps(record) + "\n" for record in found)
            file.flush()
            wrong = [record["check"] for record in found if record["outcome"] in ("FAILED", "CRASHED")]
            print(
                f"{done}/{len(todo)} {found[0]['subject']} round {found[0]['round']}: {len(records):,} runs, "
                f"{time.perf_counter() - started:.0f} s {wrong or ''}",
                flush=True,
            )
    options.output.write_text(page(records))
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
