"""Ordinary calls of a program against its own enumerated law: this checks the enumerator, not the program."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln

from specverify.exact.errors import UnsoundEnumeration
from specverify.exact.output import normalised
from specverify.exact.program import FrontEnd, NativeSource, Program, Salt

# The cross check may reject a right law once in 10^9 enumerations.
_LOG_LIMIT = float(np.log(1e9))
_SCALES = 10.0 ** np.arange(1, 8)


@dataclass(frozen=True)
class CrossCheck:
    """How many ordinary calls were compared with the enumerated law, and how well they agree.

    log_e: log of the evidence against the law (20.7 would reject it; negative is agreement).
    """

    num_calls: int
    num_outputs: int
    log_e: float
    seconds: float


def native_outputs(
    program: Program,
    front_ends: Sequence[FrontEnd],
    *,
    num_calls: int,
    max_seconds: float,
    seed: int,
    reset: Callable[[], None] | None = None,
    choice_seed: int | None = None,
) -> list[Any]:
    """Outputs of ordinary calls, each with its own seeds everywhere: sources, global generators, program's seeds.

    choice_seed: of what the source itself chooses, one for all calls.
    """
    outputs = []
    salt = Salt()
    started = time.monotonic()
    with ExitStack() as stack:
        for front_end in front_ends:
            stack.enter_context(front_end.salted(salt))
        for index in range(num_calls):
            if index and time.monotonic() - started > max_seconds:
                break
            salt.value = seed + index
            for front_end in front_ends:
                front_end.reseed(seed + index)
            if reset is not None:
                reset()
            outputs.append(normalised(program(NativeSource(seed + index, choice_seed=choice_seed)), front_ends))
    return outputs


def cross_check(law: Mapping[Any, float], outputs: Sequence[Any], *, seconds: float) -> CrossCheck:
    """Compares the outputs of ordinary calls with the law.

    Raises UnsoundEnumeration where an output came that the law calls impossible, or where the evidence against the
    law passes 10^9.
    """
    counts = Counter(outputs)
    for output, count in counts.items():
        if not law.get(output, 0.0) > 0.0:
            raise UnsoundEnumeration(
                f"ordinary calls gave {output!r} {count} times in {len(outputs)}, which the enumerated law calls "
                "impossible: some randomness is hidden, or random values are too coarse for exact laws"
            )
    evidence = log_evidence([counts[output] for output in counts], [law[output] for output in counts])
    if evidence > _LOG_LIMIT:
        output = max(counts, key=lambda key: abs(counts[key] / len(outputs) - law[key]))
        raise UnsoundEnumeration(
            f"{len(outputs)} ordinary calls contradict the enumerated law (evidence e^{evidence:.1f}): {output!r} came "
            f"{counts[output]} times where {law[output] * len(outputs):.1f} were expected; some randomness is hidden"
        )
    return CrossCheck(len(outputs), len(counts), evidence, seconds)


def log_evidence(counts: Sequence[int], probabilities: Sequence[float]) -> float:
    """Log e-value of a multinomial sample against a law: Dirichlet alternatives centred on it, averaged over scales.

    Only observed cells matter. Source: null-centred Dirichlet mixture, E[e] = 1 under the law for every sample size.
    """
    seen = np.asarray(counts, dtype=np.float64)
    law = np.asarray(probabilities, dtype=np.float64)
    centre = _SCALES[:, None] * law
    terms = (gammaln(centre + seen) - gammaln(centre) - seen * np.log(law)).sum(axis=1)
    logs = terms + gammaln(_SCALES) - gammaln(_SCALES + seen.sum())
    largest = float(logs.max())
    return largest + float(np.log(np.exp(logs - largest).mean()))
