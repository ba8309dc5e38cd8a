"""Evidence from the emitted tuples of one verify scenario: general, celled and directed, averaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specverify.core.errors import UsageError
from specverify.stats.combine import average_log_e
from specverify.stats.design import detectable_tv
from specverify.stats.directions import Portfolio, direction_rows
from specverify.stats.dirichlet import log_e_by_scale

Rows = Callable[[tuple[int, ...]], NDArray[np.float64]]
"""Prefix of emitted tokens -> law of the next one, [vocab]."""

# Eight by eight cells were enough for every mistake tried at 32,000 tokens; hash buckets and a single split by sign
# were blind to whole classes of them.
CELLS_PER_KEY = 8

# Below this probability ratios mean nothing; it only keeps logarithms finite.
_TINY = 1e-300

# Ten rows for every prefix of a larger vocabulary would fill the memory.
_KEPT_VOCAB = 4096


@dataclass
class _Prefix:
    """What followed one emitted prefix, among the calls that emitted it and went on."""

    target: NDArray[np.float64]
    draft: NDArray[np.float64] | None
    cells: NDArray[np.int64]
    counts: NDArray[np.float64] = field(init=False)
    cell_law: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros_like(self.target)
        self.cell_law = cell_counts(self.cells, self.target)
        self._directions: NDArray[np.float64] | None = None

    def directions(self, previous: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Rows of the directed bets, [directions, vocab]; kept unless they are large."""
        if self._directions is not None:
            return self._directions
        rows = direction_rows(
            self.target[None],
            None if self.draft is None else self.draft[None],
            None if previous is None else previous[None],
        )[:, 0]
        if len(self.target) <= _KEPT_VOCAB:
            self._directions = rows
        return rows


class StepProcess:
    """An e-process for calls of one scenario: draft tokens drawn from the draft law, rows from the two trees.

    A method is lossless iff, after every prefix s, the next token among calls that emit s and go on follows
    target(s). So every prefix is a stratum of its own, and three kinds of evidence are averaged in equal shares: a
    Dirichlet e-value over all tokens, one over cells of log(target / draft) by log(target), and directed bets; each
    over all prefixes together and over each slot alone.

    target, draft: prefix -> row. num_draft_tokens: slots 0 to k - 1 have a draft law, slot k is the bonus.
    """

    def __init__(self, target: Rows, draft: Rows | None, num_draft_tokens: int) -> None:
        self._target = target
        self._draft = draft
        self._num_slots = num_draft_tokens + 1
        self._prefixes: dict[tuple[int, ...], _Prefix] = {}
        self._portfolio = Portfolio(self._num_slots)
        self.num_calls = 0
        self.impossible: Counter[tuple[int, ...]] = Counter()

    def update(self, emitted: Iterable[tuple[int, ...]] | Mapping[tuple[int, ...], int]) -> None:
        """Adds calls: the emitted tuples, or how often each was emitted."""
        new: dict[tuple[int, ...], Counter[int]] = {}
        for output, count in Counter(emitted).items():
            if len(output) > self._num_slots:
                raise UsageError(f"a call emitted {output}; {self._num_slots - 1} draft tokens allow {self._num_slots}")
            self.num_calls += count
            for i, token in enumerate(output):
                if not self._is_possible(output[:i], token):
                    self.impossible[output[: i + 1]] += count
                    break
                new.setdefault(output[:i], Counter())[token] += count
        for prefix, tokens in new.items():
            self._add(prefix, tokens)

    @property
    def log_e(self) -> float:
        return float(np.inf) if self.impossible else float(average_log_e(list(self.detail().values())))

    def detail(self) -> dict[str, float]:
        """Log e-value of each kind of evidence, impossible tokens left out."""
        return {
            "tokens": self._dirichlet_log_e(in_cells=False),
            "cells": self._dirichlet_log_e(in_cells=True),
            "bets": self._portfolio.log_e,
        }

    def suspects(self, most: int = 3) -> list[tuple[tuple[int, ...], float, NDArray[np.float64]]]:
        """The prefixes with most evidence of their own: prefix, log e-value, counts of the next token [vocab]."""
        found = [(prefix, float(average_log_e(log_e_by_scale(seen.target[None], seen.counts[None]))), seen.counts)
                 for prefix, seen in self._prefixes.items()]  # fmt: skip
        return sorted(found, key=lambda entry: -entry[1])[:most]

    def detectable_tv(self, alpha: float, num_calls: int | None = None) -> float:
        """Total variation of the first token's law that so many calls, or those made, show with probability .99."""
        kinds_and_strata = 3 * (1 + self._num_slots)
        count = self.num_calls if num_calls is None else num_calls
        return detectable_tv(alpha, count, len(self._target(())), num_averaged=kinds_and_strata)

    def _is_possible(self, prefix: tuple[int, ...], token: int) -> bool:
        row = self._seen(prefix).target
        return 0 <= token < len(row) and row[token] > 0.0

    def _seen(self, prefix: tuple[int, ...]) -> _Prefix:
        seen = self._prefixes.get(prefix)
        if seen is None:
            target = np.asarray(self._target(prefix), dtype=np.float64)
            is_bonus = len(prefix) == self._num_slots - 1
            draft = None if self._draft is None or is_bonus else np.asarray(self._draft(prefix), dtype=np.float64)
            seen = _Prefix(target, draft, ratio_cells(target if draft is None else draft, target))
            self._prefixes[prefix] = seen
        return seen

    def _add(self, prefix: tuple[int, ...], tokens: Counter[int]) -> None:
        seen = self._seen(prefix)
        ids = np.fromiter(tokens.keys(), dtype=np.int64, count=len(tokens))
        counts = np.fromiter(tokens.values(), dtype=np.float64, count=len(tokens))
        seen.counts[ids] += counts
        previous = self._seen(prefix[:-1]).target if prefix else None
        self._portfolio.update(len(prefix), ids, counts, seen.target, seen.directions(previous))

    def _dirichlet_log_e(self, *, in_cells: bool) -> float:
        """All prefixes together, and the prefixes of each slot; one scale for all that are together."""
        seen = [(len(prefix), entry) for prefix, entry in self._prefixes.items() if entry.counts.any()]
        if not seen:
            return 0.0
        if in_cells:
            laws = np.stack([entry.cell_law for _, entry in seen])
            counts = np.stack([cell_counts(entry.cells, entry.counts) for _, entry in seen])
        else:
            laws = np.stack([entry.target for _, entry in seen])
            counts = np.stack([entry.counts for _, entry in seen])
        by_prefix = log_e_by_scale(laws / laws.sum(axis=1, keepdims=True), counts)
        by_slot: NDArray[np.float64] = np.zeros((self._num_slots, by_prefix.shape[1]))
        np.add.at(by_slot, [slot for slot, _ in seen], by_prefix)
        return float(average_log_e(np.concatenate([by_slot.sum(axis=0, keepdims=True), by_slot])))


def ratio_cells(draft_probs: ArrayLike, target_probs: ArrayLike) -> NDArray[np.int64]:
    """The cell of every token, [vocab]: log(target / draft) by log(target), eight quantiles of each.

    Depends on the two rows alone, so cells are fixed before any outcome is seen.
    """
    draft, target = np.asarray(draft_probs, dtype=np.float64), np.asarray(target_probs, dtype=np.float64)
    if draft.shape != target.shape or target.ndim != 1:
        raise UsageError(f"draft_probs has shape {draft.shape} and target_probs {target.shape}; give two rows [vocab]")
    log_target = np.log(np.maximum(target, _TINY))
    log_ratio = log_target - np.log(np.maximum(draft, _TINY))
    by_ratio, by_target = _quantile_cells(log_ratio, target), _quantile_cells(log_target, target)
    return by_ratio * CELLS_PER_KEY + by_target


def cell_counts(cells: NDArray[np.int64], values: ArrayLike) -> NDArray[np.float64]:
    """Sums of a row of probabilities or counts, [vocab], over the cells, [64]."""
    sums: NDArray[np.float64] = np.zeros(CELLS_PER_KEY**2)
    np.add.at(sums, cells, np.asarray(values, dtype=np.float64))
    return sums


def _quantile_cells(key: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.int64]:
    """Cells of equal weight along the key; equal keys share a cell.

    Weight is half target mass and half head count: by mass alone the whole tail of a large vocabulary, where cuts
    such as top-p act, would be one cell; by count alone the likely tokens would be.
    """
    order = np.argsort(key, kind="stable")
    weight = 0.5 * target[order] / target.sum() + 0.5 / len(key)
    middle = np.cumsum(weight) - 0.5 * weight
    sorted_key = key[order]
    starts = np.concatenate([[True], sorted_key[1:] != sorted_key[:-1]])
    first_of_run = np.maximum.accumulate(np.where(starts, np.arange(len(key)), 0))
    cells = np.empty(len(key), dtype=np.int64)
    cells[order] = np.minimum((middle[first_of_run] * CELLS_PER_KEY).astype(np.int64), CELLS_PER_KEY - 1)
    return cells
