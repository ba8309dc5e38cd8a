"""Edge-hugging lattice scenarios: zero tolerance for functions that take their uniforms as an argument.

The laws are chosen so that every threshold of a correct token-wise rejection lies on the grid of multiples of
1 / resolution. Uniforms are fed just above and just below every grid line, all combinations of cells, so the number of
times each output comes is known exactly; one wrong count is a proof. Nothing has to be known of the function: opaque
kernels can be judged.

The construction: take any draft law q, accept ratios a in Z/M for the tokens of a deficit set, a residual law r in Z/M
on the other tokens, and p = a q + (sum of q (1 - a)) r. Then p / q and the residual of (p, q) are in Z/M again.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.core.errors import UsageError

Emitted = tuple[int, ...]
VerifyWithUniforms = Callable[[NDArray[np.int64], NDArray[Any], NDArray[Any], NDArray[Any]], Any]
"""(draft_token_ids [k], draft_probs [k, vocab], target_probs [k + 1, vocab], uniforms [k + 1]) -> emitted token ids.

Batched: uniforms [calls, k + 1] -> a sequence of emitted token ids, one for each call.
"""

# Where in a cell the uniform lies, as a share of the cell: just inside either edge.
OFFSETS = (1e-3, 1.0 - 1e-3)


@dataclass(frozen=True)
class LatticeScenario:
    """Rows whose thresholds lie on the grid: counts over all cells are whole numbers.

    accept_cells [k, vocab]: in how many of `resolution` cells a draft token is accepted. final_cells [k + 1, vocab]:
    cells of each residual token, and of each bonus token in the last row.
    """

    resolution: int
    draft_probs: NDArray[np.float64]
    target_probs: NDArray[np.float64]
    accept_cells: NDArray[np.int64]
    final_cells: NDArray[np.int64]

    def wanted_counts(self, draft_token_ids: Sequence[int]) -> dict[Emitted, int]:
        """How often a correct function emits each tuple, over all cells of its k + 1 uniforms."""
        num_draft_tokens = len(draft_token_ids)
        counts: dict[Emitted, int] = {}
        reached = 1
        for position in range(num_draft_tokens + 1):
            is_bonus = position == num_draft_tokens
            cells = self.resolution if is_bonus else int(self.accept_cells[position, draft_token_ids[position]])
            # The uniforms that come after the first rejection are not used: every one of their cells counts.
            free = self.resolution ** (num_draft_tokens - 1 - position) if not is_bonus else 1
            stops = reached * (self.resolution - cells) * free if not is_bonus else reached
            for token in np.flatnonzero(self.final_cells[position]):
                if stops:
                    counts[(*draft_token_ids[:position], int(token))] = stops * int(self.final_cells[position, token])
            reached *= cells
        return counts


@dataclass(frozen=True)
class LatticeFailure:
    """One wrong count: this draft, at this place within the cells, gave an output too often or too rarely."""

    draft_token_ids: Emitted
    emitted: Emitted
    observed: int
    wanted: int
    num_cells: int
    offset: float
    scenario: LatticeScenario


@dataclass(frozen=True)
class LatticeReport:
    """num_calls: calls of the function. failures: worst first; empty for a correct function."""

    num_calls: int
    failures: tuple[LatticeFailure, ...]

    @property
    def worst(self) -> float:
        """Largest wrong share over all drafts, 0 where every count is right."""
        shares = (abs(failure.observed - failure.wanted) / failure.num_cells for failure in self.failures)
        return max(shares, default=0.0)


def lattice_scenario(
    *, vocab_size: int, num_draft_tokens: int, resolution: int, generator: np.random.Generator
) -> LatticeScenario:
    """Random rows on the grid. Every row has accepted, partly accepted and residual tokens."""
    if vocab_size < 2 or num_draft_tokens < 1 or resolution < 2:
        raise UsageError(
            f"a lattice was asked for with vocab_size {vocab_size}, resolution {resolution} and {num_draft_tokens} "
            "draft tokens; give at least 2, 2 and 1"
        )
    draft_probs = np.zeros((num_draft_tokens, vocab_size))
    target_probs = np.zeros((num_draft_tokens + 1, vocab_size))
    accept_cells = np.full((num_draft_tokens, vocab_size), resolution, dtype=np.int64)
    final_cells = np.zeros((num_draft_tokens + 1, vocab_size), dtype=np.int64)
    for row in range(num_draft_tokens):
        draft = generator.dirichlet(np.full(vocab_size, 2.0))
        num_deficit = int(generator.integers(1, vocab_size))
        deficit = generator.permutation(vocab_size)[:num_deficit]
        accept_cells[row, deficit] = generator.integers(0, resolution, size=num_deficit)
        others = np.setdiff1d(np.arange(vocab_size), deficit)
        final_cells[row, others] = _composition(resolution, len(others), generator)
        accept = accept_cells[row] / resolution
        missing = float((draft * (1.0 - accept)).sum())
        draft_probs[row] = draft
        target_probs[row] = draft * accept + missing * final_cells[row] / resolution
    final_cells[-1] = _composition(resolution, vocab_size, generator)
    target_probs[-1] = final_cells[-1] / resolution
    return LatticeScenario(resolution, draft_probs, target_probs, accept_cells, final_cells)


def check_lattice(
    verify: VerifyWithUniforms,
    *,
    vocab_size: int = 4,
    num_draft_tokens: int = 2,
    resolution: int = 8,
    num_scenarios: int = 1,
    seed: int = 0,
    batched: bool = False,
    dtype: Any = np.float64,
) -> LatticeReport:
    """Feeds every cell of every scenario to the function and compares the counts, for every draft path.

    batched: the function takes uniforms [calls, k + 1] and returns one emitted tuple for each. dtype: of rows and
    uniforms; float32 leaves 1e-3 of a cell far above rounding for resolutions up to a thousand.
    """
    num_calls = 0
    failures: list[LatticeFailure] = []
    cells = np.array(list(itertools.product(range(resolution), repeat=num_draft_tokens + 1)), dtype=np.float64)
    for number in range(num_scenarios):
        scenario = lattice_scenario(
            vocab_size=vocab_size, num_draft_tokens=num_draft_tokens, resolution=resolution,
            generator=np.random.Generator(np.random.PCG64([seed, number])),
        )  # fmt: skip
        rows = scenario.draft_probs.astype(dtype), scenario.target_probs.astype(dtype)
        for draft in itertools.product(range(vocab_size), repeat=num_draft_tokens):
            wanted = scenario.wanted_counts(draft)
            for offset in OFFSETS:
                uniforms = ((cells + offset) / resolution).astype(dtype)
                observed = _counted(verify, np.array(draft), *rows, uniforms, batched=batched)
                num_calls += len(uniforms)
                for emitted in observed.keys() | wanted.keys():
                    counts = observed[emitted], wanted.get(emitted, 0)
                    if counts[0] != counts[1]:
                        failures.append(LatticeFailure(draft, emitted, *counts, len(cells), offset, scenario))
    failures.sort(key=lambda found: (-abs(found.observed - found.wanted), found.draft_token_ids, found.emitted))
    return LatticeReport(num_calls, tuple(failures))


def _counted(
    verify: VerifyWithUniforms,
    draft: NDArray[np.int64],
    draft_probs: NDArray[Any],
    target_probs: NDArray[Any],
    uniforms: NDArray[Any],
    *,
    batched: bool,
) -> Counter[Emitted]:
    if batched:
        outputs = verify(draft, draft_probs, target_probs, uniforms)
    else:
        outputs = [verify(draft, draft_probs, target_probs, row) for row in uniforms]
    return Counter(tuple(int(token) for token in output) for output in outputs)


def _composition(total: int, parts: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Whole numbers that sum to the total, some of them 0."""
    counts: NDArray[np.int64] = generator.multinomial(total, np.full(parts, 1.0 / parts)).astype(np.int64)
    return counts
