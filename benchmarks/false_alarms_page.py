"""The page that benchmarks/false_alarms.py writes: its table, and every run that did not pass."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

# Takes half of an engine's time: run in the first rounds only.
DEAR = "lossless.sequence-stream"
_HIGH_E = math.log(100.0)


def table(records: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "| check | subjects | runs | at effort 1 | exact | alarms | crashed | inconclusive | highest log e | "
        "largest share of the alarm line | e above 100 (expected at most) |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for check_id in sorted({record["check"] for record in records}):
        lines.append(row(check_id, [record for record in records if record["check"] == check_id]))
    lines.append(row("all", records).replace(" all ", " **all** "))
    return lines


def row(label: str, records: Sequence[Mapping[str, Any]]) -> str:
    def count(outcome: str) -> int:
        return sum(record["outcome"] == outcome for record in records)

    log_e = [record["log_e"] for record in records if "log_e" in record]
    shares = [record["share"] for record in records if "share" in record]
    is_one = label != "all"
    return (
        f"| {label} | {len({record['subject'] for record in records})} | {len(records):,} | "
        f"{sum(record['effort'] == 1.0 for record in records):,} | "
        f"{sum('exact' in record for record in records):,} | {count('FAILED')} | {count('CRASHED')} | "
        f"{count('INCONCLUSIVE')} | {f'{max(log_e):.1f}' if log_e and is_one else '-'} | "
        f"{f'{max(shares):.2f}' if shares and is_one else '-'} | "
        f"{f'{sum(value >= _HIGH_E for value in log_e)} ({len(log_e) / 100:.1f})' if log_e else '-'} |"
    )


def not_passed(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every run that did not pass, grouped by what was said."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for record in records:
        if record["outcome"] != "PASSED":
            reason = "".join("#" if sign.isdigit() else sign for sign in record["reason"])
            key = (record["outcome"].lower(), record["check"], reason)
            groups.setdefault(key, []).append(record["subject"])
    return [
        f"- {outcome}, {check_id}, {len(subjects)} times ({', '.join(sorted(set(subjects)))}): {reason}"
        for (outcome, check_id, reason), subjects in sorted(groups.items())
    ] or ["None."]


def page(records: Sequence[Mapping[str, Any]]) -> str:
    """The whole page. records: what false_alarms.run returned, of all runs."""
    rounds = 1 + max(record["round"] for record in records)
    num_sampled = sum("exact" not in record for record in records)
    efforts = " and ".join(f"{effort:g}" for effort in sorted({record["effort"] for record in records} - {1.0})) or "1"
    cpu = sum(seconds for *_, seconds in {(one["subject"], one["round"], one["unit_cpu"]) for one in records})
    alarms = sum(record["outcome"] == "FAILED" for record in records)
    rate = f"at most {1.0 - 0.05 ** (1.0 / num_sampled):.1e} a run with 95 % confidence" if not alarms else "see below"
    return f"""# False alarms: whole statistical checks on correct subjects

Written by `python benchmarks/false_alarms.py`; {platform.machine()}, Python {platform.python_version()}, numpy
{np.__version__}, torch {torch.__version__}; {cpu:,.0f} CPU seconds.

**{num_sampled:,} runs that sampled, {alarms} false alarms** ({rate}).
The checks promise 1e-9 for all checks of a subject together.

A run is one check on one subject with one root seed. {rounds} rounds, each over every correct subject of `specverify
selftest` that a statistical check applies to. The first rounds ran at effort 1, which is what users get (column); the
later ones at {efforts}, and without `{DEAR}`, which takes half of an engine's time. Default
budget. As in a user's run, the checks of one subject and seed share evidence (joint and chi-square judge the same
outputs), so runs are independent across subjects and rounds, not across checks. Other in every round: all random
numbers of subject and check, and the prompts of the engines. The laws of the verify scenarios are part of the checks
and stay the same.

Verify functions are judged as they are, where `lossless.step-law` and `random.draws-independent` enumerate and no luck
is involved (column *exact*, first rounds only), and with a generator hidden inside, where both sample. *Share of the
alarm line*: log e over log(1 / alpha), chi-square over its threshold, certified over declared distance, for the case
that came nearest. *e above 100*: at most 1 % of the runs may end there, by Markov's inequality.

{chr(10).join(table(records))}

## Runs that did not pass

{chr(10).join(not_passed(records))}
"""
